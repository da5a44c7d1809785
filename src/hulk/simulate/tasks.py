"""Work that waits for other work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hulk.simulate.clock import Action


@dataclass(slots=True, eq=False)
class Task:
    """Starts when everything it waits for is done. `work` takes what to call when it is done; a task without work is a
    moment that others wait for, and whoever brings it about calls `done`."""

    work: Callable[[Action], None] | None = None
    _waits: int = 0
    _followers: list[Task] = field(default_factory=list)

    def wait_for(self, *others: Task) -> None:
        """Do not start before these are done."""
        for other in others:
            other._followers.append(self)
        self._waits += len(others)

    def done(self) -> None:
        """It is done: start what waited for nothing else."""
        for follower in self._followers:
            follower._waits -= 1
            if follower._waits == 0:
                follower._start()

    def _start(self) -> None:
        if self.work is None:
            self.done()
        else:
            self.work(self.done)
