"""How far long work is: bars where somebody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hulk.cli.screen import console
from hulk.text import safe

if TYPE_CHECKING:
    from rich.console import Console


def bar(unit: str, screen: Console, *, visible: bool = True, transient: bool = False) -> Progress:
    """Bars that count a `unit`, each with its words and the time that is left; `transient` ones go when all is done."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=screen,
        disable=not visible,
        transient=transient,
    )


@contextmanager
def parts(total: int, unit: str) -> Iterator[Callable[[str], None]]:
    """Work of so many parts, told on stderr: call what comes with the words for each part that begins. A bar on a
    terminal, elsewhere a line each."""
    if not sys.stderr.isatty():
        yield lambda words: print(f"{words} …", file=sys.stderr, flush=True)  # noqa: T201
        return
    begun = count()
    with bar(unit, console(sys.stderr), transient=True) as bars:
        task = bars.add_task("", total=total)
        yield lambda words: bars.update(task, description=safe(words), completed=next(begun))
