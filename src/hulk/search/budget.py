"""What a search may spend: moves, time, and the patience of whoever asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hulk.search.defaults import EVALUATIONS, TIME_LIMIT, WORKERS

_SEED_STEP = 1_000_003
_BEHIND = 0.1  # of its time that a pace may be behind its moves before the clock shares out what is left


@dataclass(frozen=True, slots=True)
class Effort:
    """What a search may spend: that of `hulk plan` where nobody says otherwise. `time_limit` in seconds; `workers`:
    searches side by side, each in a process of its own with a seed of its own; `number`: which of them this is."""

    time_limit: float = TIME_LIMIT
    evaluations: int = EVALUATIONS
    seed: int = 0
    workers: int = WORKERS
    number: int = 0

    def beside(self, number: int) -> Effort:
        """That of one of several searches side by side, with a seed of its own; number 0 is this one."""
        return replace(self, seed=self.seed + _SEED_STEP * number, number=number)


class Budget:
    """What is left of one search's time: its moves end it, or the clock, or `stop`."""

    def __init__(self, time_limit: float = TIME_LIMIT, stop: Callable[[], bool] = lambda: False) -> None:
        self.begin = time.monotonic()
        self.time_limit = time_limit
        self.stop = stop
        self.tried = 0
        """Moves so far."""
        self.hurried = False
        """Whether the clock, or whoever asked, has ended any part of the search before its moves did."""

    def until(self, share: float) -> float:
        """When a share of the time is over, on the monotonic clock."""
        return self.begin + share * self.time_limit

    def is_over(self, share: float) -> bool:
        """Whether a share of the time is over; then the search is a hurried one."""
        over = time.monotonic() > self.until(share)
        self.hurried |= over
        return over


class Pace:
    """Whether moves are done by a deadline. While they will be, moves alone end every part of a search, so that a busy
    machine finds what an idle one does; when they will not, each part has its share of the time that is left."""

    def __init__(self, moves: int, begin: float, deadline: float) -> None:
        self.moves = moves
        self.begin = begin
        self.deadline = deadline
        self._made = 0
        self._fastest = 0.0

    def note(self, moves: int, seconds: float) -> None:
        """So many moves took so long."""
        self._made += moves
        self._fastest = min(self._fastest or seconds / moves, seconds / moves)

    def is_kept(self, now: float) -> bool:
        """A few slow moves count for nothing: the fastest so far tell what the machine can do, and what was lost since
        the beginning may be caught up."""
        window = self.deadline - self.begin
        due = min(1.0, self._made / self.moves + _BEHIND) * window
        return self._fastest * self.moves <= window and now - self.begin <= due
