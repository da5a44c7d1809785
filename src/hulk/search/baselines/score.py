"""What a system's step times are worth by the number that the planner makes small (`hulk.search.objective`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hulk.domain.job import Job
from hulk.search.objective import job_cost, time_cost


@dataclass(frozen=True, slots=True)
class Score:
    """`running`: weight × seconds to finish, over the jobs that run. `waiting`: what jobs that wait or end after their
    deadline count for besides.
    `finish`: seconds from the start until a job has used up its token budget; only jobs that have one."""

    running: float
    waiting: float
    finish: Mapping[str, float]

    @property
    def cost(self) -> float:
        """The number that the planner makes small."""
        return self.running + self.waiting

    @property
    def rank(self) -> tuple[float, float]:
        """Orders systems as `cost` does, but keeps the digits of `running` beside the huge `waiting`: nine of them, as
        what differs by less is the same plan, added up in another order."""
        return self.waiting, float(f"{self.running:.9g}")


def score(jobs: Iterable[Job], steps: Mapping[str, float], *, concurrent: bool) -> Score:
    """The score of a system from its step times in seconds; a job without one waits for ever.

    Side by side, every job starts at once. One after the other, a job with a token budget starts when those before it
    have ended, and they run in the order that makes the sum least: shortest time by weight first (Smith's rule). A job
    without a budget has no end that others could wait for: it counts its own step and keeps nobody waiting, so that the
    sum is that of the steps.
    """
    given = tuple(jobs)
    known = [job for job in given if job.name in steps]
    own = {job.name: steps[job.name] * job.steps for job in known if job.steps}
    finish, clock = dict(own), 0.0
    if not concurrent:
        weight = {job.name: job.weight for job in known}
        for name in sorted(own, key=lambda name: own[name] / weight[name]):
            clock += own[name]
            finish[name] = clock
    # Waiting for its turn makes a job slower by that much, as if each of its steps took longer.
    seconds = {job.name: finish[job.name] / job.steps if job.steps else steps[job.name] for job in known}
    late = sum(job_cost(job, seconds[job.name]) - time_cost(job, seconds[job.name]) for job in known)
    return Score(
        running=sum(time_cost(job, seconds[job.name]) for job in known),
        waiting=late + sum(job_cost(job, None) for job in given if job.name not in steps),
        finish=finish,
    )
