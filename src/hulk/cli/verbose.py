"""`--verbose`: what the search says of itself, line by line on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="say on stderr what each phase of the search took and gained")
]


@contextmanager
def told(verbose: bool) -> Iterator[None]:
    """While this lasts, the log `hulk` goes to stderr, if it is wanted."""
    log, handler = logging.getLogger("hulk"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    before = log.level
    if verbose:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
