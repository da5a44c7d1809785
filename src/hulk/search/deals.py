"""A deal: who has which machine, by which recipe, and what is known of each job; and what that costs, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import lean, maker
from hulk.search.late import late_part
from hulk.search.layouts import LAYOUT
from hulk.search.results import LACKS, OPEN, OVER, RUNS
from hulk.search.tables import OPTIONS, SearchTables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COLUMNS = LAYOUT + OPTIONS
"""Of a recipe: its layout's, then, for each option of `SPACE`, the place of a value among those tried for the job."""
# A job that waits counts the more the further it is from running, up to so far, and most where nothing is known.
_FURTHEST, _FOR_EACH, _UNKNOWN = 1e3, 1e-2, 12.0


class Deal(NamedTuple):
    """Who has which machine, by which recipe, and what is known of each job (`hulk.search.results`)."""

    owner: Ints  # [M] job, or −1
    recipes: Ints  # [J, COLUMNS]; DEGREE 0: none yet
    status: Ints  # [J]
    value: Floats  # [J]

    def copy(self) -> Deal:
        """The same in arrays of its own."""
        return Deal(self.owner.copy(), self.recipes.copy(), self.status.copy(), self.value.copy())

    @property
    def seconds(self) -> list[float | None]:
        """Seconds of each job's step; None where it does not run."""
        return [float(v) if s == RUNS else None for s, v in zip(self.status, self.value, strict=True)]

    @property
    def waits(self) -> NDArray[np.bool_]:
        """[J] the jobs that were looked at and cannot run."""
        waits: NDArray[np.bool_] = self.status == LACKS
        return waits


def empty_deal(packed: SearchTables) -> Deal:
    """Nobody has anything, and all is open."""
    jobs, machines = packed.allowed.shape
    return Deal(
        np.full(machines, -1, np.int64),
        np.zeros((jobs, COLUMNS), np.int64),
        np.full(jobs, OPEN, np.int64),
        np.zeros(jobs),
    )


@maker
def take_over(deal: Deal, other: Deal) -> None:
    """Let a deal be another one, in place."""
    deal.owner[:] = other.owner
    deal.recipes[:] = other.recipes
    deal.status[:] = other.status
    deal.value[:] = other.value


@lean
def keep_pins(packed: SearchTables, owner: Ints) -> None:
    """Machines that a job must use go back to it. Nobody else may have them, so they are with it or with nobody."""
    for k in range(packed.pins.shape[0]):
        if packed.pins[k, 1] >= 0:
            owner[packed.pins[k, 0]] = packed.pins[k, 1]


@lean
def cost_of(packed: SearchTables, job: int, status: int, value: float) -> float:
    """A job's part of the default objective. While it cannot run, the nearer it is to that the less, so that a search
    can see which way to go."""
    if status == RUNS:
        cost: float = packed.weight[job] * value + packed.waiting[job] * late_part(value, packed.longest[job])
        return cost
    if status == OVER:
        return np.inf
    return float(packed.waiting[job] * (1 + _FOR_EACH * min(value, _FURTHEST) if status == LACKS else _UNKNOWN))


@lean
def total_cost(packed: SearchTables, deal: Deal) -> float:
    """The default objective of a deal."""
    total = 0.0
    for j in range(deal.status.shape[0]):
        total += cost_of(packed, j, deal.status[j], deal.value[j])
    return total


@lean
def running_cost(packed: SearchTables, deal: Deal) -> float:
    """The time part of the default objective: a measure of losses that jobs without a place, or too late, do not
    drown."""
    total = 1e-12
    for j in range(deal.status.shape[0]):
        if deal.status[j] == RUNS:
            total += packed.weight[j] * deal.value[j]
    return total


@lean
def draw_job(packed: SearchTables, deal: Deal) -> int:
    """A job: half of the time any, half of the time by its part of the objective, where there is most to gain."""
    jobs = deal.status.shape[0]
    if np.random.random() < 0.5:
        left = running_cost(packed, deal) * np.random.random()
        for j in range(jobs):
            if deal.status[j] == RUNS:
                left -= packed.weight[j] * deal.value[j]
                if left < 0:
                    return j
    return np.random.randint(0, jobs)
