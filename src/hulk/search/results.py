"""What is known of a job's plan, as compiled code and Python have it: a status, and a value that the status gives a
meaning. Of two results the smaller is the better one."""

from __future__ import annotations

from typing import NamedTuple

RUNS, OVER, LACKS, OPEN = range(4)
"""It runs: seconds of a step. It takes as many seconds at least, and no more was asked. It cannot run: how far it is
from that. Nothing is known yet: any value."""

# How far from running a plan is: layers that find no room, or, further than any of these,
TOO_FULL = 0.5  # a stage that takes more than was seen when it was cut
CUT_OFF = 1e3  # stages that cannot talk
TOO_MANY_PIPELINES = 1e6  # fewer microbatches or layers than it has pipelines or stages for, and by how many
NO_PIPELINES = 1e9
NO_MACHINES = 1e12


class Result(NamedTuple):
    """A status and its value."""

    status: int
    value: float

    @property
    def runs(self) -> bool:
        """Whether the plan runs."""
        return self.status == RUNS

    @property
    def seconds(self) -> float | None:
        """Seconds of a step; None where it does not run."""
        return self.value if self.status == RUNS else None
