"""Where files come from and how they are written: bundled catalogues, paths a person gave, reads that cannot wait for
ever, and writes that never leave half a file behind or replace what must stay."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from hulk.errors import InputError, nearest

_SUFFIXES = (".yaml", ".yml", ".json")
_KINDS = (
    (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip

# The files that this command has read, so that it never writes over one of them: device and inode, and the name given.
_read: dict[tuple[int, int], str] = {}


def data_path(*parts: str) -> Path:
    """A file or folder of the data that comes with Hulk."""
    return Path(str(resources.files("hulk"))).joinpath("data", *parts)


def bundled_names(kind: str) -> tuple[str, ...]:
    """The names of the bundled files of a kind ("clusters", "jobs"), sorted."""
    return tuple(sorted(path.stem for path in data_path(kind).glob("*.yaml")))


def find_file(path_or_name: str | Path, kind: str, *, beside: Path | None = None) -> Path:
    """The file a person means: a bundled name such as "hulk47", or a path (relative to the folder `beside`, if given).

    Text without a folder and without a suffix is a name; InputError with the nearest one where it is not bundled.
    """
    text = str(path_or_name)
    if isinstance(path_or_name, Path) or "/" in text or os.sep in text or text.lower().endswith(_SUFFIXES):
        return Path(path_or_name) if beside is None else beside / path_or_name
    names = bundled_names(kind)
    if text in names:
        return data_path(kind, f"{text}.yaml")
    what = kind.removesuffix("s")
    raise InputError(f"no bundled {what} {text!r}, and not a path to a .yaml or .json file", hint=nearest(text, names))


def read_file(path: str | Path, *, most: int) -> bytes:
    """A regular file's content; InputError for anything else, at once, and for more than `most` bytes."""
    where = str(path)
    try:
        # Without O_NONBLOCK, opening a pipe waits until somebody writes to it.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError("no such file", where=where) from None
    except PermissionError:
        raise InputError("not allowed to read this file", where=where) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the name
        raise InputError(f"cannot read this file: {_reason(error)}", where=where) from None
    try:
        found = os.fstat(handle)
        _must_be_regular(found, where)
        content = b"" if found.st_size > most else _content(handle, most + 1)
    except OSError as error:
        raise InputError(f"cannot read this file: {_reason(error)}", where=where) from None
    finally:
        os.close(handle)
    if found.st_size > most or len(content) > most:
        raise InputError(f"the file is larger than {most // 2**20} MiB", where=where)
    _read[found.st_dev, found.st_ino] = where
    return content


def forget_reads() -> None:
    """A new command: what others have read is theirs."""
    _read.clear()


def check_output(path: str | Path | None, option: str, *, besides: Iterable[Path | None] = ()) -> None:
    """Check the file that an option (None: not given) says to write later, before work begins that would be lost.

    InputError where it cannot be written, is a file that this command has read (by whatever name: links are followed),
    or is there and is no regular file. `besides` are files that were not read here and must stay too.
    """
    if path is None:
        return
    where = f"{option} {str(path)!r}"
    if not str(path):
        raise InputError("the name of a file is needed", where=where)
    try:
        target = Path(path).resolve()
        found = Path(path).stat() if Path(path).exists() else None  # not the target: /dev/stdout may point to no path
        others = {_identity(other): str(other) for other in besides if other is not None and other.exists()}
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise InputError(f"cannot write this file: {_reason(error)}", where=where) from None
    if found is not None:
        _must_be_regular(found, where)
        name = (_read | others).get((found.st_dev, found.st_ino))
        if name is not None:
            hint = "choose another name"
            raise InputError(f"this would replace {name!r}, which this command reads", where=where, hint=hint)
        if not os.access(target, os.W_OK):
            raise InputError("not allowed to write this file", where=where)
    elif str(path).endswith(os.sep):
        raise InputError("this is a directory, not a file", where=where)
    try:
        handle, name = _temporary(target)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write this file: {_reason(error)}", where=where) from None
    os.close(handle)
    Path(name).unlink(missing_ok=True)


def _content(handle: int, most: int) -> bytes:
    """What an open file holds, up to so many bytes."""
    parts: list[bytes] = []
    left = most
    while left > 0 and (part := os.read(handle, min(left, 2**20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _must_be_regular(found: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((words for is_kind, words in _KINDS if is_kind(found.st_mode)), "something else")
        raise InputError(f"this is {kind}, not a file", where=where, hint="give the path of a regular file")


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _reason(error: Exception) -> str:
    """What the system says, without its numbers and without the path, which is named already."""
    return getattr(error, "strerror", None) or str(error)


def _temporary(target: Path) -> tuple[int, str]:
    """A new file beside the target, open for writing."""
    return tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:64]}.", suffix=".tmp")


def write_atomic(path: str | Path, text: str) -> None:
    """Writes the whole text or nothing: to a new file in the same folder, then renamed over `path`."""
    target = Path(path)
    try:
        if target.exists():
            _must_be_regular(target.stat(), str(path))
        target = target.resolve()  # a link stays a link: what it points to is replaced
        handle, name = _temporary(target)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise InputError(f"cannot write this file: {error}", where=str(path)) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(_mode_for(target))
        temporary.replace(target)
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot write this file: {error}", where=str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _mode_for(target: Path) -> int:
    """The permissions of the file that is replaced, or those any new file gets (mkstemp's are for its owner only)."""
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask
