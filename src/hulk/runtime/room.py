"""How much memory this computer has left, and what a process takes of it. Works without torch."""

from __future__ import annotations

import contextlib
from pathlib import Path

PROCESS = 5e8
"""Bytes of a process beside its tensors: Python and its libraries."""
_MEMINFO = Path("/proc/meminfo")


def memory_free() -> float | None:
    """Bytes of this computer's memory that a new process could have; None: not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    return None
