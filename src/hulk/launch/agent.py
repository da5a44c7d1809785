"""The program that `hulk launch` starts on every machine. It takes orders from standard input, a JSON object a line,
and answers on standard output.

    {"do": "check", "settings", "interfaces"}         what the machine is and has
    {"do": "listen", "address", "ports"}              open ports for a moment
    {"do": "reach", "targets"}                        which of these do not answer
    {"do": "put", "job", "files"}                     write the exported files of a job
    {"do": "checkpoints", "job", "settings", …}       make the folder of checkpoints ready, and hold its lock
    {"do": "quiet"}                                   close them
    {"do": "start", "job", "script"}                  start a job's script; then come lines {"job", "line"},
                                                      {"job", "said"} and, once, {"job", "ended"}
    {"do": "alive"}                                   nothing; somebody is still there

It ends, and with it all that it started and wrote, when standard input does, or when nothing has come for a minute:
whoever launched the plan is gone then.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from hulk.errors import HulkError
from hulk.launch.facts import facts, greeting
from hulk.launch.ports import Ports, unreached
from hulk.runtime.folder import log_folder
from hulk.runtime.launch import GRACE
from hulk.runtime.settings import Settings

SILENCE = 60.0
"""Seconds without a word after which nobody is there any more."""
_LONGEST = 64 * 2**20  # bytes of a line: all exported files of a job come in one


class Agent:
    """What one machine does for a launch. `folder` is for its files."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._ports = Ports()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []
        self._lock = threading.Lock()

    def obey(self, order: dict[str, Any]) -> None:
        """Do what an order says, and answer."""
        try:
            answer = getattr(self, f"_do_{order['do']}")(order)
        except HulkError as error:
            answer = {"error": str(error), "code": error.exit_code}
        except OSError as error:
            answer = {"error": f"{error.filename or 'this machine'}: {error.strerror}", "code": 1}
        except Exception as error:  # whatever it is, the other side must not wait in vain
            answer = {"error": f"a fault in hulk itself: {type(error).__name__}: {error}", "code": 1}
        if answer is not None:
            self.say(answer)

    def say(self, message: dict[str, Any]) -> None:
        """Write one message."""
        left = json.dumps(message).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):  # nobody listens any more
            while left:
                left = left[os.write(1, left) :]

    def close(self) -> None:
        """End all that was started, with all that it started."""
        self._ports.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._running.values():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
            end = time.monotonic() + GRACE
            for reader in self._readers:  # they end when nobody is left who could write
                reader.join(max(0.0, end - time.monotonic()))
        for process in self._running.values():
            process.wait()

    def _do_check(self, order: dict[str, Any]) -> dict[str, Any]:
        return facts(Settings.of(order["settings"]), order["interfaces"])

    def _do_listen(self, order: dict[str, Any]) -> dict[str, Any]:
        return self._ports.listen(order["address"], order["ports"])

    def _do_reach(self, order: dict[str, Any]) -> dict[str, Any]:
        return {"unreached": unreached(order["targets"])}

    def _do_quiet(self, order: dict[str, Any]) -> dict[str, Any]:
        del order
        self._ports.close()
        return {}

    def _do_alive(self, order: dict[str, Any]) -> None:
        del order

    def _do_put(self, order: dict[str, Any]) -> dict[str, Any]:
        for name, (text, mode) in order["files"].items():
            path = self._folder / order["job"] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
                file.write(text)
        return {}

    def _do_checkpoints(self, order: dict[str, Any]) -> dict[str, Any]:
        """Answers with the checkpoint to go on from, the step that it has, and what there is to say."""
        from hulk.io.bundle import JOBS
        from hulk.io.jobs_file import load_jobs
        from hulk.launch.checkpoints import make_ready

        job = load_jobs(str(self._folder / order["job"] / JOBS))[0]
        resume, overwrite = bool(order["resume"]), bool(order["overwrite"])
        found = make_ready(job, Settings.of(order["settings"]), self._stack, resume=resume, overwrite=overwrite)
        return {"resume": None if found.resume is None else str(found.resume), "step": found.step, "told": found.told}

    def _do_start(self, order: dict[str, Any]) -> dict[str, Any]:
        self._ports.close()
        job = order["job"]
        process = subprocess.Popen(  # noqa: S603 - a script that this agent wrote, by its path
            ["bash", "--", order["script"]],  # noqa: S607 - wherever this machine has it
            cwd=self._folder / job,
            env={**os.environ, "PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._running[job] = process
        assert process.stdout is not None and process.stderr is not None
        streams = [
            threading.Thread(target=self._pass_on, args=(job, kind, stream), daemon=True)
            for kind, stream in (("line", process.stdout), ("said", process.stderr))
        ]
        self._readers += streams
        for each in streams:
            each.start()
        threading.Thread(target=self._await, args=(job, process, streams), daemon=True).start()
        return {"started": job}

    def _pass_on(self, job: str, kind: str, stream: IO[bytes]) -> None:
        for line in stream:
            self.say({"job": job, kind: line.decode("utf-8", "replace").rstrip("\n")})

    def _await(self, job: str, process: subprocess.Popen[bytes], streams: list[threading.Thread]) -> None:
        for each in streams:
            each.join()
        code = process.wait()
        # bash ends with 128 and the number of the signal that ended what it waited for.
        self.say({"job": job, "ended": 128 - code if 128 < code <= 128 + signal.NSIG else code})


def main() -> None:
    """Obey until nobody is there any more; nothing is left behind then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the terminal is for whoever started this
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with ExitStack() as stack:
        agent = Agent(stack.enter_context(log_folder()), stack)
        stack.callback(agent.close)
        agent.say(greeting())
        orders: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=_listen, args=(orders,), daemon=True).start()
        with contextlib.suppress(SystemExit):
            while (line := orders.get()) is not None:
                agent.obey(json.loads(line))
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


def _leave(number: int, frame: object) -> None:
    del number, frame
    raise SystemExit(0)


def _listen(orders: queue.Queue[bytes | None]) -> None:
    for line in _lines():
        orders.put(line)
    orders.put(None)


def _lines() -> Iterator[bytes]:
    """What standard input brings, until it ends or is silent for too long."""
    parts: list[bytes] = []
    size = 0
    while select.select([0], [], [], SILENCE)[0] and (part := os.read(0, 1 << 16)):
        *whole, rest = part.split(b"\n")
        if whole:
            yield b"".join((*parts, whole[0]))
            yield from whole[1:]
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > _LONGEST:
            return


if __name__ == "__main__":
    main()
