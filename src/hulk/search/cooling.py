"""How every annealing cools: in pieces, so that the clock and Ctrl-C are seen, by its moves, or by the clock where its
moves would not be done in time."""

from __future__ import annotations

import time
from collections.abc import Callable

from hulk.search.budget import Budget, Pace
from hulk.search.heat import Heat

_CHUNK = 64


def cool(
    anneal: Callable[[int, Heat], None],
    heat: Heat,
    moves: int,
    deadline: float,
    budget: Budget,
    *,
    pace: Pace | None = None,
) -> None:
    """Anneal for so many moves, or until the deadline, on the monotonic clock, where they will not be done by then.
    `pace`: of a race that this is a part of; else its own."""
    begin = now = time.monotonic()
    pace = pace or Pace(moves, begin, deadline)
    made, done = 0, 0.0
    may_begin = begin < deadline or pace.is_kept(begin)  # a pause may have taken this part's share of the time
    while made < moves and may_begin and not budget.stop():
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
            if now >= deadline:
                break
            done = max(done, (now - begin) / (deadline - begin))
    budget.hurried |= made < moves
