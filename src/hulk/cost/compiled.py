"""Compiled code: how a function is compiled, where its machine code is kept, and whether it is there already.

Numba looks at a function's own file to see whether its kept code is still good, not at what the function calls. So the
folder that holds the code is named after a digest of all that compiled code is made of: every source with a compiled
function, what these import from, numba's version, and the switches that change what it compiles. Other sources, another
folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

_CONFIG: Any = numba.config  # its names are made when it is imported

_PACKAGE = Path(__file__).parent.parent
_IMPORTED = re.compile(rb"^from hulk\.([\w.]+) import", re.MULTILINE)
_USED = re.compile(rb"^@(kernel|lean|inner|maker|inlined)$", re.MULTILINE)
_KEPT = 6  # folders of other sources that stay, the newest ones


# What numba calls nrt is its counting of references. A function compiled while a caller is would take over the caller's
# choice, so every kind of function says its own.


def kernel(function: F) -> F:
    """A compiled function that Python calls as well."""
    return _compiled(function, _nrt=True)


def lean(function: F) -> F:
    """Like `kernel`, for functions that make no arrays (one that does is refused) and return none: they do not count
    references to those they are given, which took a third of the time where small functions are handed many arrays."""
    return _compiled(function, _nrt=False)


def inner(function: F) -> F:
    """Like `lean`, for functions that Python never calls: without a way in from Python they compile sooner."""
    return _compiled(function, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def maker(function: F) -> F:
    """Like `inner`, for functions that make or return arrays. Lean functions may call one that returns none."""
    return _compiled(function, _nrt=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: F) -> F:
    """Like `kernel`, written out in every function that calls it."""
    return _compiled(function, inline="always")


def constant(value: int) -> int:
    """A number for compiled functions to pass on: for a plain one numba would compile the callee once more, for just
    that number."""
    return cast(int, np.int64(value))


def plain(function: F) -> F:
    """The Python function that a compiled one was made of."""
    return cast(F, getattr(function, "py_func", function))  # NUMBA_DISABLE_JIT=1 leaves it as it is


def is_cached(function: Any) -> bool:
    """Whether a kernel's compiled code is kept, so that people can be told before they wait."""
    if not hasattr(function, "py_func"):  # NUMBA_DISABLE_JIT=1: nothing is compiled
        return True
    folder = Path(function._cache.cache_path)  # numba has no public name for it
    stem = Path(function.py_func.__code__.co_filename).stem
    return any(folder.glob(f"{stem}.{function.__name__}-*.nbi"))


@cache
def cache_folder() -> Path:
    """Where the code compiled from these very sources is kept: below NUMBA_CACHE_DIR, else below the user's own cache;
    where neither can be written, a folder that is used until this process ends."""
    given = _CONFIG.CACHE_DIR or os.environ.get("XDG_CACHE_HOME")
    homes = [Path(given)] if given else []
    with suppress(RuntimeError):  # no home
        homes.append(Path.home() / ".cache")
    for home in homes:
        folder = home.absolute() / "hulk" / "compiled" / digest()
        if _is_usable(folder):
            _forget_others(folder)
            return folder
    return _until_the_end()


def compiled_sources() -> list[Path]:
    """The files with compiled functions, and those they import from: a constant that compiled code uses is a part of
    it."""
    texts = {source: source.read_bytes() for source in _PACKAGE.rglob("*.py")}
    found = {source for source, text in texts.items() if source == Path(__file__) or _USED.search(text)}
    names = {name.decode() for source in found for name in _IMPORTED.findall(texts[source])}
    imported = {_PACKAGE.joinpath(*name.split(".")).with_suffix(".py") for name in names}
    return sorted(found | imported.intersection(texts))


def digest() -> str:
    """Of all that compiled code depends on, besides the processor, which numba looks at itself."""
    settings = (numba.__version__, np.__version__, _CONFIG.BOUNDSCHECK, _CONFIG.OPT, _CONFIG.DEBUG)
    found = hashlib.sha256(repr(settings).encode())
    for source in compiled_sources():
        content = source.read_bytes()
        found.update(f"{source.relative_to(_PACKAGE)} {len(content)} ".encode())
        found.update(content)
    return found.hexdigest()[:24]


def _compiled(function: F, **options: Any) -> F:
    with _kept_in(cache_folder()):
        made: F = njit(cache=True, **options)(function)
    return made


@contextmanager
def _kept_in(folder: Path) -> Iterator[None]:
    """Numba asks for the folder while it decorates; what others compile is kept where they want it."""
    before = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _CONFIG.CACHE_DIR = before


def _is_usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)  # so that it counts as new
    except OSError:
        return False
    return True


def _forget_others(folder: Path) -> None:
    """Only the newest folders of other sources stay: each takes some tens of megabytes."""
    with suppress(OSError):
        others = [(other.stat().st_mtime, other) for other in folder.parent.iterdir() if other != folder]
        for _, other in sorted(others, reverse=True)[_KEPT:]:
            shutil.rmtree(other, ignore_errors=True)


def _until_the_end() -> Path:
    """A folder that goes when the process ends; forked processes, which use it too, leave it alone."""
    import atexit

    folder, owner = Path(tempfile.mkdtemp(prefix="hulk-compiled-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
