"""The terminal: one console, and the small pieces that several verbs draw with."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

# Piped output has no width of its own; this one holds every table Hulk prints.
_PIPE_WIDTH = 120


def console() -> Console:
    """Where results are printed."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=max(width, 80), highlight=False)


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An open table with these headings, those in `right` aligned to the right."""
    result = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        result.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return result


def bar(share: float, width: int = 24) -> str:
    """A share of one as blocks."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return "█" * filled + "░" * (width - filled)
