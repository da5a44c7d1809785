"""The objective with the time to move in it, and when a change has paid back."""

from __future__ import annotations

from collections.abc import Iterable

from hulk.domain.job import Job
from hulk.search.objective import job_cost

Term = tuple[Job, float | None, float]
"""A job, its seconds a step (None: it waits), and the seconds that it stands still first."""

# Of a horizon that is all spent on moving, this share counts as work: a job that moves is better than one that waits.
_LEAST_SHARE = 1e-3


def effective_seconds(step: float, move: float, horizon: float) -> float:
    """Seconds a step over the whole horizon, the seconds it takes to move first included: horizon / steps done."""
    share = 1 - move / horizon
    return step / share if share > _LEAST_SHARE else step / _LEAST_SHARE * (move / horizon)


def total_cost(terms: Iterable[Term], horizon: float) -> float:
    """The objective with the time to move spread over the horizon (seconds; may be infinite)."""
    return sum(
        job_cost(job, None if step is None else effective_seconds(step, move, horizon)) for job, step, move in terms
    )


def payback(before: Iterable[Term], after: Iterable[Term]) -> float | None:
    """Seconds after which `after`, its moves included, has done as much as `before`; None where it never has."""
    old, new = list(before), list(after)

    def behind(horizon: float) -> bool:
        return total_cost(new, horizon) > total_cost(old, horizon)

    if behind(float("inf")) or total_cost(new, float("inf")) == total_cost(old, float("inf")):
        return None
    longest = max((move for *_, move in new), default=0.0)
    if longest == 0:
        return 0.0
    low, high = 0.0, longest
    while behind(high):
        low, high = high, 2 * high
        if high > 1e15:
            return None
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if behind(middle) else (low, middle)
    return high
