"""Whether numba's cache has a kernel's compiled code, so that people can be told before they wait."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any


def is_cached(kernel: Any, *modules: ModuleType) -> bool:
    """Whether the kernel's compiled code is there and newer than its own source and that of these modules."""
    path = Path(kernel.py_func.__code__.co_filename)
    sources = [path, *(Path(str(module.__file__)) for module in modules)]
    newest = max(source.stat().st_mtime for source in sources)
    folder = Path(kernel._cache.cache_path)  # numba has no public name for it
    indices = folder.glob(f"{path.stem}.{kernel.__name__}-*.nbi")
    return any(index.stat().st_mtime >= newest for index in indices)
