"""Folders of files that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hulk.errors import HulkError, InputError


def check_folder(path: str | Path, option: str) -> None:
    """Check the folder that an option says to write later: InputError where it cannot be made, or has files already."""
    where = f"{option} {str(path)!r}"
    if not str(path):
        raise InputError("the name of a folder is needed", where=where)
    try:
        target = Path(path)
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise InputError("this is there already, and no folder", where=where, hint="choose another name")
        if target.is_dir() and any(target.iterdir()):
            raise InputError("this folder has files already", where=where, hint="choose a new one, or empty it")
        parent = target.absolute().parent
        if not parent.is_dir():
            raise InputError(f"there is no folder {str(parent)!r}", where=where, hint="make it first")
        if not os.access(parent, os.W_OK):
            raise InputError(f"not allowed to write in {str(parent)!r}", where=where)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        raise InputError(
            f"cannot write this folder: {getattr(error, 'strerror', None) or error}", where=where
        ) from None


def write_folder(path: str | Path, files: Mapping[str, tuple[str, int]]) -> None:
    """Write files, by their path within the folder, as (text, mode). They are written beside it and renamed: where
    something goes wrong (a full disk), a HulkError says so and nothing is left."""
    target = Path(path).absolute()
    made: Path | None = None
    try:
        made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:64]}.", suffix=".tmp"))
        for parent in {(made / name).parent for name in files}:
            parent.mkdir(parents=True, exist_ok=True)
        for name, (text, mode) in files.items():
            # Opened with its mode: a private file is never readable for others, not even for a moment.
            with os.fdopen(os.open(made / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
                opened.write(text.encode("utf-8"))
                os.fchmod(opened.fileno(), mode)
        made.chmod(0o755)
        made.rename(target)
        made = None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise HulkError(f"{str(path)!r} could not be written, and nothing of it is left: {reason}") from None
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
