"""Compiled code: functions that only other compiled ones call, and whether numba's cache has a kernel's code, so that
people can be told before they wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def inner(function: F) -> F:
    """Like `lean`, for functions that Python never calls: without a way in from Python they compile sooner."""
    compiled: F = njit(cache=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)  # type: ignore[call-overload]
    return compiled


def maker(function: F) -> F:
    """Like `inner`, for functions that make or return arrays."""
    compiled: F = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)  # type: ignore[call-overload]
    return compiled


def lean(function: F) -> F:
    """Like njit, for functions that make no arrays (one that does is refused) and return none: they do not count
    references to those they are given, which took a third of the time where small functions are handed many arrays."""
    compiled: F = njit(cache=True, _nrt=False)(function)  # type: ignore[call-overload]
    return compiled


def constant(value: int) -> int:
    """A number for compiled functions to pass on: for a plain one numba would compile the callee once more, for just
    that number."""
    return cast(int, np.int64(value))


def is_cached(kernel: Any, *modules: ModuleType) -> bool:
    """Whether the kernel's compiled code is there and newer than its own source and that of these modules."""
    newest = _newest_source(kernel, modules)
    return any(index.stat().st_mtime >= newest for index in _indices(kernel))


def drop_stale(kernel: Any, *modules: ModuleType) -> None:
    """Forget a kernel's compiled code that is older than the modules it calls: numba looks at its own file alone."""
    newest = _newest_source(kernel, modules)
    for index in _indices(kernel):
        with suppress(OSError):
            if index.stat().st_mtime < newest:
                index.unlink()


def _newest_source(kernel: Any, modules: Sequence[ModuleType]) -> float:
    # This file says how all of them are compiled.
    sources = [
        Path(__file__),
        Path(kernel.py_func.__code__.co_filename),
        *(Path(str(module.__file__)) for module in modules),
    ]
    return max(source.stat().st_mtime for source in sources)


def _indices(kernel: Any) -> list[Path]:
    folder = Path(kernel._cache.cache_path)  # numba has no public name for it
    stem = Path(kernel.py_func.__code__.co_filename).stem
    return list(folder.glob(f"{stem}.{kernel.__name__}-*.nbi"))
