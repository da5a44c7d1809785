"""How lightly an annealing takes losses."""

from __future__ import annotations

from typing import NamedTuple


class Heat(NamedTuple):
    """Losses, relative to the objective, that are taken lightly: at first, and in the end."""

    hot: float
    cold: float

    def part(self, begin: float, end: float) -> Heat:
        """The heat of a part of the way, both ends between 0 and 1."""
        hot, cold = (self.hot * (self.cold / self.hot) ** x for x in (begin, end))
        return Heat(hot, cold)
