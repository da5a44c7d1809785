"""`--headroom`: the share of every GPU's memory that a plan leaves free."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cost.engine import HEADROOM
from hulk.errors import InputError

if TYPE_CHECKING:
    from hulk.cost.engine import Engine

HeadroomOption = Annotated[
    str | None, typer.Option(help='share of every GPU\'s memory that must be free, such as "5%"')
]
PlanHeadroomOption = Annotated[str, typer.Option(help="share of every GPU's memory to leave free")]
DEFAULT = f"{100 * HEADROOM:g}%"


def with_headroom(engine: Engine, text: str | None) -> Engine:
    """An engine whose plans leave that much free; as it is where nothing was asked for."""
    if text is None:
        return engine
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if found is None:
        raise InputError(f"--headroom {text!r} is not a share", hint='write it like "5%"')
    share = float(found[1]) / 100.0
    if share >= 1.0:
        raise InputError(f"--headroom {text.strip()} leaves nothing to plan with", hint='less than "100%"')
    return replace(engine, headroom=share)
