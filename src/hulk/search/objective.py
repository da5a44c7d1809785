"""What a plan is judged by, and what it must keep: the jobs' times to finish, throughput under a money limit, money
at a least throughput, or money alone; each with the jobs' deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p
from typing import NamedTuple

from hulk.cost.compiled import plain
from hulk.domain.job import Job
from hulk.search.late import late_part
from hulk.units import format_count, format_money, format_time

# Seconds to finish, a thousand years, that a job counts for while it waits: placing it is always better, and of two
# that cannot both run, the weightier one runs. Sums with more digits than this would lose the small jobs' times.
WAITING = 3e10
_HOUR = 3600.0
_CLOSE = 1e-9  # of a limit: what is over by less is rounding
_late_part = plain(late_part)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One job by one plan: seconds a step (None: it waits) and dollars a step."""

    seconds: float | None
    dollars: float = 0.0


class Score(NamedTuple):
    """How good a plan is; the smaller the better, the first difference counts.

    waiting   weight of the jobs that wait
    broken    by how much limits and deadlines are broken, relative to each; 0 where all are kept
    goal      what is to be made small
    """

    waiting: float
    broken: float
    goal: float

    @property
    def energy(self) -> float:
        """The same as one number for annealing: a difference in the goal counts relative to it."""
        return log(max(self.goal, 1e-12)) + 30 * ((self.broken > 0) * 0.1 + log1p(self.broken)) + 300 * self.waiting


@dataclass(frozen=True, slots=True)
class Objective:
    """Without limits: the weighted sum of times to finish (of step times where there is no budget).

    most_dollars_per_second   the most throughput (weighted tokens/s) that costs no more than this
    least_tokens_per_second   the least dollars a second that still reach this throughput, all jobs together
    cheapest                  the least dollars to finish (of a step, where there is no budget), within the limits
    slack                     the share of every limit and deadline that is left unused
    """

    most_dollars_per_second: float | None = None
    least_tokens_per_second: float | None = None
    cheapest: bool = False
    slack: float = 0.0

    @property
    def needs_money(self) -> bool:
        """Whether dollars matter at all."""
        return self.cheapest or self.most_dollars_per_second is not None or self.least_tokens_per_second is not None

    def score(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> Score:
        """Of these jobs, each with its outcome."""
        pairs = list(zip(jobs, outcomes, strict=True))
        waiting = sum(job.weight for job, outcome in pairs if outcome.seconds is None)
        broken = sum(excess for excess, _ in self._excesses(pairs))
        if not self.needs_money:
            return Score(waiting, broken, sum(job_cost(job, outcome.seconds) for job, outcome in pairs))
        if self.cheapest:
            goal = sum(o.dollars * (job.steps or 1.0) for job, o in pairs if o.seconds is not None)
        elif self.most_dollars_per_second is not None:
            throughput = sum(job.weight * job.tokens_per_step / o.seconds for job, o in pairs if o.seconds)
            goal = sum(job.weight * job.tokens_per_step for job in jobs) / max(throughput, 1e-12)
        else:
            goal = _spending(pairs)
        return Score(waiting / sum(job.weight for job in jobs), broken, goal)

    def broken(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[str]:
        """What of the limits and deadlines is not kept by these outcomes, in words."""
        return [words for excess, words in self._excesses(list(zip(jobs, outcomes, strict=True))) if excess > 0]

    def _excesses(self, pairs: Sequence[tuple[Job, Outcome]]) -> list[tuple[float, str]]:
        """For every limit, by how much it is broken, relative to it, and what to say then."""
        found = []
        for job, outcome in pairs:
            if job.deadline is not None and outcome.seconds is not None:
                finish = outcome.seconds * (job.steps or 1.0)
                words = f"{job.name} takes {format_time(finish)} to finish, its deadline is {format_time(job.deadline)}"
                found.append((self._over(finish, job.deadline), words))
        if self.most_dollars_per_second is not None:
            spending, most = _spending(pairs), self.most_dollars_per_second
            words = f"it costs {format_money(spending * _HOUR)} an hour, the limit is {format_money(most * _HOUR)}"
            found.append((self._over(spending, most), words))
        if self.least_tokens_per_second is not None:
            throughput = sum(job.tokens_per_step / o.seconds for job, o in pairs if o.seconds)
            least = self.least_tokens_per_second
            words = f"it reaches {format_count(throughput)} tokens/s, at least {format_count(least)} are asked for"
            found.append((self._over(least, max(throughput, 1e-12)), words))
        return found

    def _over(self, value: float, most: float) -> float:
        over = value / (most * (1 - self.slack)) - 1
        return over if over > _CLOSE else 0.0

    def describe(self, score: Score) -> str:
        """A score in words."""
        if score.waiting:
            return "not every job has a place yet"
        if score.broken:
            return "not every limit is kept yet"
        if self.cheapest:
            return f"{format_money(score.goal)} to finish"
        if self.most_dollars_per_second is not None:
            return f"{score.goal:,.4g} s a step (weighted)"
        return f"{format_money(score.goal * _HOUR)} an hour" if self.needs_money else f"{score.goal:,.4g} s (weighted)"


def _spending(pairs: Sequence[tuple[Job, Outcome]]) -> float:
    """Dollars a second of the jobs that run."""
    return sum(outcome.dollars / outcome.seconds for _, outcome in pairs if outcome.seconds)


def time_cost(job: Job, seconds: float) -> float:
    """What a job's step of so many seconds adds to the default objective: weight × seconds to finish."""
    return job.weight * seconds * (job.steps or 1.0)


def job_cost(job: Job, seconds: float | None) -> float:
    """A job's part of the default objective: what its time adds, and what it counts if it waits or ends too late."""
    if seconds is None:
        return WAITING * job.weight
    return time_cost(job, seconds) + WAITING * job.weight * _late_part(seconds, job.longest_step)
