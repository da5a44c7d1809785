"""Every error Hulk raises on purpose.

    HulkError                  anything a person can act on; the command line prints it without a traceback
    ├── InputError             a file or an argument is wrong                                  exit code 2
    │   ├── UnitError          a quantity without a unit, or with an impossible one
    │   └── PlanError          a plan that breaks an invariant
    ├── InfeasibleError        the input is right, but no answer exists                        exit code 3
    └── OutputError            the answer could not be written                                 exit code 1

"This plan does not fit" is not an error but an answer: see `hulk.cost.price.Infeasible`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_COMPARED = 2000


class HulkError(Exception):
    """Base of all errors meant for people."""

    exit_code = 1


class InputError(HulkError):
    """Something a person wrote is wrong. `where` is a file with line or path; `hint` says what to do."""

    exit_code = 2

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{hint}"

    def at(self, where: str) -> InputError:
        """The same error, placed."""
        return type(self)(self.message, where=where, hint=self.hint)


class UnitError(InputError):
    """A quantity without a unit, or with an impossible one."""


class PlanError(InputError):
    """A plan that breaks an invariant."""


class InfeasibleError(HulkError):
    """The input is right, but no answer exists."""

    exit_code = 3


class OutputError(HulkError):
    """The answer is there, but could not be written. Without a message where nobody is left to read one."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the known name closest to a mistyped one, or None where nothing is close."""
    choices = list(known)
    if len(choices) > _MOST_COMPARED:  # looking at each takes some 50 µs
        choices = [choice for choice in choices if choice[:2] == name[:2]][:_MOST_COMPARED]
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    if 0 < len(choices) <= 12:
        return "known: " + ", ".join(sorted(choices))
    return None
