"""`hulk run` in forks of one process that has imported everything: torch and transformers would be most of what a run
of a few steps does. Both the launcher and its workers are forked, workers of a testbed into their network namespace.

Whoever tests the start itself has `start_anew` in `command.py`.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TextIO

ROOT = Path(__file__).parent.parent.parent
NETWORK = 0x40000000  # CLONE_NEWNET
FAILED = 70  # how a fork ends that did not even begin


class Launched:
    """A forked `hulk`, with what tests use of subprocess.Popen. `argv`: its verb and what follows; `first`: lines of
    Python that come before, of which its workers know too."""

    def __init__(self, argv: list[str], first: str = "") -> None:
        ends = [os.pipe() for _ in range(3)]
        request = json.dumps([argv, first, str(Path.cwd()), dict(os.environ)]).encode()
        nursery = _nursery()
        written = array.array("i", [write for _, write in ends])
        head = len(request).to_bytes(8, "big")
        nursery.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, written)])
        nursery.sendall(request)
        for _, write in ends:
            os.close(write)
        self._ended = ends[2][0]
        self.stdout: TextIO = os.fdopen(ends[0][0], encoding="utf-8")
        self.stderr: TextIO = os.fdopen(ends[1][0], encoding="utf-8")
        self.returncode: int | None = None
        self.pid = int.from_bytes(os.read(self._ended, 8), "big")

    def poll(self) -> int | None:
        """Its exit code, below zero for a signal; None while it runs."""
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(os.read(self._ended, 8), "big"))
            os.close(self._ended)
        return self.returncode

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """All it still writes, when it has ended."""
        end = time.monotonic() + timeout
        readers = ThreadPoolExecutor(2)
        texts = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
        readers.shutdown(wait=False)
        try:
            output, errors = (text.result(end - time.monotonic()) for text in texts)
        except LateError:
            raise subprocess.TimeoutExpired("hulk", timeout) from None
        while self.poll() is None:
            if not select.select([self._ended], [], [], max(0.0, end - time.monotonic()))[0]:
                raise subprocess.TimeoutExpired("hulk", timeout)
        self.stdout.close()
        self.stderr.close()
        return output, errors

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


@cache
def _nursery() -> socket.socket:
    """One for each process that runs tests; it ends when nobody holds the other end any more."""
    ours, theirs = socket.socketpair()
    with theirs:
        variables = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=variables,
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(requests: socket.socket) -> None:
    """Fork a launcher for every request. Between it and the nursery stands a process that waits for its end."""
    _import_everything()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "threads do not live on in forked processes"
    gc.collect()
    gc.freeze()
    while True:
        head, ancillary, _, _ = requests.recvmsg(8, socket.CMSG_SPACE(3 * 4))
        if not head:
            with suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
            return
        files = array.array("i")
        for _, _, data in ancillary:
            files.frombytes(data)
        size, request = int.from_bytes(head, "big"), b""
        while len(request) < size:
            request += requests.recv(size - len(request))
        if os.fork() == 0:
            _keep_house(json.loads(request), files)
        for file in files:
            os.close(file)
        with suppress(ChildProcessError):  # those that have ended
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _import_everything() -> None:
    gc.disable()
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import transformers

    import hulk.runtime.real
    import hulk.runtime.waiting
    import hulk.runtime.worker  # noqa: F401
    from promises_run import _in_process

    transformers.AutoConfig, transformers.GPT2LMHeadModel  # noqa: B018  imported when they are named
    _in_process(["price", "examples/hulk47.plan.json", "--cluster", "hulk47", "--jobs", "paper4"], ROOT)
    gc.enable()


def _keep_house(request: list[Any], files: array.array[int]) -> NoReturn:
    out, err, ended = files
    launcher = os.fork()
    if launcher == 0:
        argv, first, folder, variables = request

        def launch() -> None:
            subprocess.Popen = Forking  # type: ignore[misc]
            os.chdir(folder)
            exec(first, {})
            from hulk.cli import main

            main()

        _become(["hulk", *argv], variables, out=out, err=err, keep=(), does=launch)
    os.close(out)
    os.close(err)
    os.write(ended, launcher.to_bytes(8, "big"))
    os.write(ended, os.waitpid(launcher, 0)[1].to_bytes(8, "big"))
    os._exit(0)


class Forking(subprocess.Popen):  # type: ignore[type-arg]
    """Workers are forked; all else is started as ever."""

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        inside = list(args[:3]) == ["ip", "netns", "exec"]
        command = list(args[4:] if inside else args)
        if command[:3] != [sys.executable, "-m", "hulk.runtime.worker"]:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        _, _, _, pass_fds, _, variables, _, _, _, _, _, _, out, _, err, *_ = rest
        pid = os.fork()
        if pid == 0:
            from hulk.runtime.worker import main

            if inside:
                _enter(args[3])
            _become(["hulk.runtime.worker", *command[3:]], variables, out=out, err=err, keep=pass_fds, does=main)
        os.close(out)  # what it wrote its log to is the launcher's to close
        self.pid, self._child_created = pid, True


def _enter(namespace: str) -> None:
    """Into a network namespace that `ip netns` has made."""
    handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, NETWORK):
        os._exit(FAILED)


def _become(
    argv: list[str], variables: dict[str, str], *, out: int, err: int, keep: Sequence[int], does: Callable[[], None]
) -> NoReturn:
    """In a fork: what a new process has by itself, then its program."""
    code = FAILED
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for file in [int(link.name) for link in Path("/proc/self/fd").iterdir()]:
            if file > 2 and file not in keep:
                with suppress(OSError):
                    os.close(file)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(variables)
        sys.argv = argv
        sys.stdin, sys.stdout, sys.stderr = (open(i, mode, closefd=False) for i, mode in enumerate("rww"))  # noqa: SIM115
        does()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
