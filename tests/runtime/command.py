"""`hulk run` as a process of its own, watched from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cases import Case, write_case, write_text
from nursery import Launched

TWO = Case("two", "gpt2", ((12, (("rome-1", (0,), 2), ("oslo-1", (0,), 5))),))
HULK = [sys.executable, "-c", "from hulk.cli import main; main()", "run"]


def arguments(case: Case, folder: Path, *more: str) -> list[str]:
    """What follows `hulk run` for a case."""
    _, plan, *rest = write_case(case, folder)
    return [plan, *rest, "--data", str(write_text(folder / "text.txt")), *more]


def start(argv: list[str], first: str = "") -> Launched:
    """`hulk run`, after some lines of Python, which its workers know of too."""
    return Launched(["run", *argv], first)


def start_anew(argv: list[str], first: str = "") -> subprocess.Popen[str]:
    """The same, and its workers, as processes of their own from their start; they know nothing of those lines."""
    hulk = [HULK[0], HULK[1], f"{first}\n{HULK[2]}", HULK[3]]
    return subprocess.Popen(
        [*hulk, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


Process = Launched | subprocess.Popen[str]


def finish(process: Process, seconds: float = 240.0) -> tuple[int, str, str]:
    """Exit code, output and errors; whatever it started is ended if it takes longer."""
    workers = children(process.pid)
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        raise
    return process.returncode, output, errors


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.1)
    return not any(alive(pid) for pid in pids)


def read_until(process: Process, words: str) -> str:
    """The first line of the output with these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    assert process.stderr is not None
    raise AssertionError(f"no {words!r}: {process.stderr.read()}")
