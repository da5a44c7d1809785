"""The folders of a run. A job's checkpoints: one run at a time, nothing of another run by accident, nothing left over.
The workers' logs: gone when the run is. Works without torch."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hulk.errors import HulkError, InputError
from hulk.runtime.checkpoint import finished, leftovers, remove_ours

_LOGS = "hulk-run-"
_KEPT = "kept"


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Make a folder, and lock it: the lock's file descriptor. The lock ends when the last process that holds the
    descriptor does, however it ends, so workers get it too. InputError where another run holds it. A folder that was
    made here and is empty at the end is removed."""
    made = [path for path in (folder, folder.parent) if not path.exists()]
    handle = _lock(folder)
    try:
        yield handle
    finally:
        os.close(handle)
        for path in made:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()


def _lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"cannot be used for checkpoints: {error.strerror or error}", where=str(folder)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            os.close(handle)
            raise InputError(
                "in use by another run",
                where=str(folder),
                hint="wait for its end, or choose another --checkpoint-dir",
            ) from None
        # A file system without locks: better a run without one than none.
    return handle


def prepare_folder(folder: Path, *, resume: bool, overwrite: bool, say: Callable[[str], None]) -> None:
    """Make a locked folder ready for a run: what interrupted runs left is removed, and so are old checkpoints if asked.
    InputError where there are some and nobody said what to do with them."""
    for path in leftovers(folder):
        if any(path.iterdir()):
            say(f"removing what an interrupted run left: {path}")
        _remove(path)
    old = finished(folder)
    if not old or resume:
        return
    if not overwrite:
        raise InputError(
            f"has checkpoints of an earlier run, the newest is {old[0].name}",
            where=str(folder),
            hint="--resume goes on from it, --overwrite removes them; or choose another --checkpoint-dir",
        )
    for path in old:
        _remove(path)
    say(f"removed {len(old)} checkpoints of an earlier run from {folder}")


def remove_leftovers(folder: Path) -> None:
    """Remove what is left of a checkpoint whose writers are no more; what cannot be removed, the next start removes."""
    for path in leftovers(folder):
        with contextlib.suppress(OSError):
            remove_ours(path)


def _remove(path: Path) -> None:
    try:
        gone = remove_ours(path)
    except OSError as error:
        raise InputError(f"cannot be removed: {error.strerror or error}", where=str(path)) from None
    if not gone:
        raise InputError("has files that are not Hulk's, so it stays", where=str(path), hint="move them elsewhere")


@contextmanager
def log_folder() -> Iterator[Path]:
    """A new folder for workers' logs, removed at the end unless an error points to it; those that killed runs left
    behind are removed first."""
    for old in Path(tempfile.gettempdir()).glob(f"{_LOGS}*"):
        _remove_logs(old)
    logs, handle = _locked_logs()
    try:
        yield logs
    except HulkError as error:
        if str(logs) in str(error):
            (logs / _KEPT).touch()
        raise
    finally:
        if not (logs / _KEPT).exists():
            shutil.rmtree(logs, ignore_errors=True)
        os.close(handle)


def _locked_logs() -> tuple[Path, int]:
    """A new folder with its lock. Another run may see it before it is locked, and take it for one left behind."""
    while True:
        logs = Path(tempfile.mkdtemp(prefix=_LOGS))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(logs, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if logs.exists():
                return logs, handle
            os.close(handle)


def _remove_logs(logs: Path) -> None:
    """Remove the logs of a run that is no more: nobody holds their lock."""
    with contextlib.suppress(OSError):
        if logs.is_symlink() or logs.stat().st_uid != os.getuid() or (logs / _KEPT).exists():
            return
        handle = os.open(logs, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(logs, ignore_errors=True)
        finally:
            os.close(handle)
