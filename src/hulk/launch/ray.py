"""Launching on a Ray cluster: the exported program is the driver, and ends with the launch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from hulk.errors import InputError
from hulk.export import Scene
from hulk.launch.follow import Part
from hulk.runtime.launch import GRACE


def check_ray() -> None:
    """InputError where this Python has no Ray."""
    if find_spec("ray") is None:
        hint = "pip install ray, of the cluster's version; or export it with --to ray and start it elsewhere"
        raise InputError("--on ray needs the package ray in the Python that runs hulk", hint=hint)


class RayJob:
    """The driver of a job."""

    def __init__(self, scene: Scene, folder: Path, *, gpus: bool) -> None:
        del scene
        argv = [sys.executable, "start.py", *([] if gpus else ["--no-gpus"])]
        plain = {"RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}  # every line of every rank, as it is
        self._process = subprocess.Popen(  # noqa: S603 - the exported program
            argv,
            cwd=folder,
            env={**os.environ, **plain},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def follow(self, part: Part) -> None:
        """Pass on its output."""
        out, err = self._process.stdout, self._process.stderr
        assert out is not None and err is not None

        def read(stream: IO[bytes]) -> None:
            for line in stream:
                part.take(line.decode("utf-8", "replace").rstrip("\n"))

        streams = [threading.Thread(target=read, args=(stream,), daemon=True) for stream in (out, err)]

        def wait() -> None:
            for each in streams:
                each.join()
            part.end(self._process.wait())

        for each in (*streams, threading.Thread(target=wait, daemon=True)):
            each.start()

    def cancel(self) -> None:
        """End the driver; Ray ends the tasks of a driver that is gone."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(3 * GRACE)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
