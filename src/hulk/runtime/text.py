"""The text a run trains on, as files: what is no text is refused before anything starts, and nothing is read without
end. Works without torch."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from hulk.errors import InputError
from hulk.units import format_size

MOST_FILES = 100_000
"""Files in a folder of text."""
MOST_TEXT = 2 * 2**30
"""Bytes that a tokenizer may be given: their tokens are held in memory. Bytes as tokens are read where they are needed,
so there is no limit to them."""
_BEGINNING = 2**20

_KINDS = {
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def text_files(data: Path, *, tokenized: bool = False) -> list[Path]:
    """The files of a text: one, or all of a folder in order of their paths, those without content left out.

    InputError where there is nothing to train on, or no end to it; `tokenized`: a tokenizer is to read them all.
    """
    where = str(data)
    mode = kind_of(data)
    if stat.S_ISDIR(mode):
        files = _in_folder(data)
        if not files:
            raise InputError(
                "no files in this folder", where=where, hint="--data takes a text file, or a folder of them"
            )
    else:
        files = [data]
    sizes = {path: path.stat().st_size for path in files}
    files = [path for path in files if sizes[path]]
    if not files:
        raise InputError("empty: there is nothing to train on", where=where)
    closed = next((path for path in files if not os.access(path, os.R_OK)), None)
    if closed is not None:
        raise InputError("cannot be read: no permission", where=str(closed))
    total = sum(sizes.values())
    if tokenized and total > MOST_TEXT:
        raise InputError(
            f"{format_size(total)} of text are more than the {format_size(MOST_TEXT)} a tokenizer can hold in memory",
            where=where,
            hint="train on a part of it, or leave out --tokenizer",
        )
    return files


def kind_of(path: Path) -> int:
    """The mode of a file or folder that a person names; InputError where it is neither."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=str(path)) from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        words = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise InputError(f"neither a file nor a folder, but {words}", where=str(path))
    return mode


def check_file(path: Path) -> None:
    """InputError where a path is not a file that can be read."""
    if stat.S_ISDIR(kind_of(path)):
        raise InputError("a folder, not a file", where=str(path))
    if not os.access(path, os.R_OK):
        raise InputError("cannot be read: no permission", where=str(path))


def _in_folder(folder: Path) -> list[Path]:
    found: list[Path] = []
    for place, _, names in os.walk(folder):
        found += [path for name in names if (path := Path(place) / name).is_file()]
        if len(found) > MOST_FILES:
            raise InputError(f"more than {MOST_FILES} files", where=str(folder), hint="is this the folder you mean?")
    return sorted(found)


def describe(files: list[Path]) -> str:
    """A text in few words that change when it does: its size, and a digest of its beginning."""
    total = sum(path.stat().st_size for path in files)
    with files[0].open("rb") as file:
        begins = hashlib.sha256(file.read(_BEGINNING)).hexdigest()[:16]
    return f"{total} bytes, sha256 of the first MiB {begins}"
