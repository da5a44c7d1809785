"""Simulated time: what happens when, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

Action = Callable[[], None]


@dataclass(slots=True)
class Clock:
    """A queue of actions by time, in seconds from the step's start. Actions of one moment run in the order they came,
    so that a simulation is the same every time."""

    now: float = 0.0
    _events: list[tuple[float, int, Action]] = field(default_factory=list)
    _count: int = 0

    def at(self, time: float, action: Action) -> None:
        """Do it at that time; a time that rounding has put before now is now."""
        self._count += 1
        heappush(self._events, (max(time, self.now), self._count, action))

    def after(self, seconds: float, action: Action) -> None:
        """Do it that many seconds from now."""
        self.at(self.now + seconds, action)

    def run(self) -> None:
        """Do everything, and what follows from it, until nothing is left or somebody says that it is enough."""
        while self._events:
            self.now, _, action = heappop(self._events)
            action()

    def stop(self) -> None:
        """It is enough: forget what is still to come."""
        self._events.clear()
