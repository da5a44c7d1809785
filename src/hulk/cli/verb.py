"""What all verbs of the command line have in common."""

from __future__ import annotations

import math
from typing import Any

from typer.core import TyperCommand

from hulk.errors import InputError

MOST_WHOLE = 2**31 - 1
"""The largest whole number that an option takes."""


class Verb(TyperCommand):
    """A verb whose number options are numbers: finite, and whole ones of a size that compiled code can hold.

    Ranges that an option has of its own do not see NaN, which is in none and outside of none.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; InputError for a number that is none."""
        for param in self.params:
            value = ctx.params.get(param.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{param.opts[0]} {value}: not a finite number")
            if isinstance(value, int) and abs(value) > MOST_WHOLE:
                shown = str(value) if abs(value) < 10**40 else "a far larger one"
                raise InputError(f"{param.opts[0]}: must be at most {MOST_WHOLE}, not {shown}")
        return super().invoke(ctx)
