"""How every annealing cools: in pieces, so that the clock and Ctrl-C are seen, by its moves, or by the clock where its
moves would not be done in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from hulk.search.budget import Budget, Pace

_CHUNK = 64


class Heat(NamedTuple):
    """Losses, relative to the objective, that are taken lightly: at first, and in the end."""

    hot: float
    cold: float

    def part(self, begin: float, end: float) -> Heat:
        """The heat of a part of the way, both ends between 0 and 1."""
        hot, cold = (self.hot * (self.cold / self.hot) ** x for x in (begin, end))
        return Heat(hot, cold)


def cool(anneal: Callable[[int, Heat], None], heat: Heat, moves: int, pace: Pace, budget: Budget) -> None:
    """Anneal for so many moves, or until the deadline of the pace where they will not be done by then."""
    begin = now = time.monotonic()
    made, done = 0, 0.0
    while made < moves and begin < pace.deadline and not budget.stop():
        part = min(_CHUNK, moves - made)
        ahead = max((made + part) / moves, done)
        anneal(part, heat.part(done, ahead))
        made += part
        budget.tried += part
        before, now = now, time.monotonic()
        pace.note(part, now - before)
        done = made / moves
        if made < moves and not pace.is_kept(now):
            budget.hurried = True
            if now >= pace.deadline:
                break
            done = max(done, (now - begin) / (pace.deadline - begin))
    budget.hurried |= made < moves
