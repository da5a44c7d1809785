"""The terminal: one console, and the small pieces that several verbs draw with.

Text is never markup here: a label such as "[/]" is what it looks like. Styles are given beside the text (`styled`).
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hulk.text import escaped, safe

# Piped output has no width of its own; this one holds every table Hulk prints.
_PIPE_WIDTH = 120


class _Screen(Console):
    """A console that takes text as it is, and shows what could harm a terminal instead of sending it."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Every plain string goes through here: lines, titles, headings, cells."""
        return super().render_str(safe(text), **{**options, "markup": False, "emoji": False})


def console(stream: TextIO | None = None) -> Console:
    """Where results are printed: standard output, unless another stream is named."""
    stream = sys.stdout if stream is None else stream
    width = shutil.get_terminal_size().columns if stream.isatty() else _PIPE_WIDTH
    # What the console sends is safe, its own styles are meant: past the guard of `hulk.cli.streams`.
    return _Screen(file=getattr(stream, "trusted", stream), width=max(width, 80), highlight=False)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Text with styles: plain parts, and (text, style) for those that have one."""
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*((safe(text), style) for text, style in pairs))


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


def print_json(document: object) -> None:
    """Print one JSON object for programs: valid JSON whatever texts and numbers are in it, in any encoding."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(_numbers(document), indent=2, ensure_ascii=not unicode)
    sys.stdout.write(escaped(text) + "\n")


def _numbers(value: object) -> object:
    """The value with null for numbers that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list | tuple) else value


def status(words: str) -> None:
    """A line on stderr that the next one replaces; "" takes it away. Only people at a terminal see it."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    stream = getattr(sys.stderr, "trusted", sys.stderr)
    stream.write(f"\r{safe(words):<72}" + ("" if words else "\r"))
    stream.flush()
