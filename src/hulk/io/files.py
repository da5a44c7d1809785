"""Where files come from and how they are written: bundled catalogues, paths a person gave, and writes that never leave
half a file behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
from importlib import resources
from pathlib import Path

from hulk.errors import InputError, nearest

_SUFFIXES = (".yaml", ".yml", ".json")


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


def write_atomic(path: str | Path, text: str) -> None:
    """Writes the whole text or nothing: to a new file in the same folder, then renamed over `path`."""
    target = Path(path)
    try:
        target = target.resolve()  # a link stays a link: what it points to is replaced
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:64]}.", suffix=".tmp")
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
