"""The testbeds of this machine: one file each, which says what it is and, by its lock, whether it is alive.

The lock belongs to the router and to the process that cleans up after it. A file that nobody has locked is left over:
both were killed, and whoever finds it finishes their work.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hulk.errors import HulkError, InputError
from hulk.testbed import namespaces
from hulk.testbed.network import Network

FOLDER = Path("/run/hulk/testbed")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_PAUSE = 0.01  # seconds between two looks at a lock: flock knows no timeout


@dataclass(frozen=True)
class State:
    """A testbed that is up: its name, the router's process and what it emulates."""

    name: str
    pid: int
    network: Network

    def namespace(self, index: int) -> str:
        """The network namespace of a host."""
        return namespace(self.name, index)


def namespace(testbed: str, index: int) -> str:
    """The network namespace of a host; it ends in the same number as the host's address."""
    return f"hulk-{testbed}-{index + 1}"


def check_name(name: str) -> None:
    """InputError where a testbed cannot be called so."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a testbed: at most 31 of a-z, 0-9 and -, not beginning with -")


def socket_path(name: str) -> Path:
    """Where the router of a testbed listens."""
    return FOLDER / f"{name}.sock"


def names() -> tuple[str, ...]:
    """All testbeds that have a file, alive or left over."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def take(name: str) -> int | None:
    """The lock of a testbed's file, which is made if needed; None where someone else has it."""
    import fcntl  # not at the top: `hulk testbed` says that it needs Linux where there is none

    FOLDER.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(_path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == _path(name).stat().st_ino:
                return handle
        os.close(handle)  # the one before us deleted the file while we waited for it


def take_within(name: str, seconds: float) -> int | None:
    """The same, after waiting for it; None where it takes longer."""
    deadline = time.monotonic() + seconds
    while (handle := take(name)) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE)
    return handle


def write(handle: int, state: State) -> None:
    """Fill the file that `take` gave."""
    text = json.dumps({"name": state.name, "pid": state.pid, "network": state.network.to_json()})
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)


def read(name: str) -> State | None:
    """What is known of a testbed; None where there is none, or it has only just begun to start."""
    try:
        data: dict[str, Any] = json.loads(_path(name).read_text(encoding="utf-8"))
        return State(data["name"], data["pid"], Network.from_json(data["network"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def alive(name: str) -> bool:
    """Whether the router of a testbed, or the process that cleans up after it, is there. One that died is not mistaken
    for a process that has got its number since."""
    handle = take(name)
    if handle is not None:
        os.close(handle)
    return handle is None


def clear(name: str, handle: int) -> None:
    """Remove everything that belongs to a testbed whose router is dead. `handle` is its lock, which ends here."""
    remove_namespaces(name)
    socket_path(name).unlink(missing_ok=True)
    _path(name).unlink(missing_ok=True)
    os.close(handle)


def remove_namespaces(name: str) -> None:
    """Remove the namespaces of a testbed; the caller has its lock."""
    pattern = re.compile(rf"hulk-{re.escape(name)}-\d+")
    namespaces.remove([each for each in namespaces.existing() if pattern.fullmatch(each)])


def sweep() -> tuple[str, ...]:
    """Remove what killed testbeds have left behind; their names."""
    left = []
    for name in names():
        handle = take(name)
        if handle is not None:
            clear(name, handle)
            left.append(name)
    return tuple(left)


def wait_and_clear(name: str, seconds: float) -> None:
    """Wait until a router that was told to end has been cleaned up after; HulkError where that takes too long."""
    handle = take_within(name, seconds)
    if handle is None:
        raise HulkError(f"testbed {name!r} is still there after {seconds:.0f} s")
    clear(name, handle)


def _path(name: str) -> Path:
    return FOLDER / f"{name}.json"
