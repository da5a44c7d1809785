"""What a plan is judged by: the jobs' times to finish, throughput under a money limit, or money at a least
throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hulk.domain.job import Job

# Seconds to finish, a thousand years, that a job counts for while it waits: placing it is always better, and of two
# that cannot both run, the weightier one runs. Sums with more digits than this would lose the small jobs' times.
WAITING = 3e10


@dataclass(frozen=True, slots=True)
class Outcome:
    """One job by one plan: seconds a step (None: it waits) and dollars a step."""

    seconds: float | None
    dollars: float = 0.0


@dataclass(frozen=True, slots=True)
class Objective:
    """Lower is better. Without limits: the weighted sum of times to finish (of step times where there is no budget).

    most_dollars_per_second   the most throughput (weighted tokens/s) that costs no more than this
    least_tokens_per_second   the least dollars a second that still reach this throughput
    """

    most_dollars_per_second: float | None = None
    least_tokens_per_second: float | None = None

    @property
    def needs_money(self) -> bool:
        """Whether dollars matter at all."""
        return self.most_dollars_per_second is not None or self.least_tokens_per_second is not None

    def cost(self, jobs: Mapping[str, Job], outcomes: Mapping[str, Outcome]) -> float:
        """The number to make small."""
        if not self.needs_money:
            return sum(job_cost(jobs[name], outcome.seconds) for name, outcome in outcomes.items())
        tokens = sum(job.weight * job.tokens_per_step for job in jobs.values())
        throughput, spending, waiting = 0.0, 0.0, 0.0
        for name, outcome in outcomes.items():
            if outcome.seconds is None:
                waiting += jobs[name].weight
                continue
            throughput += jobs[name].weight * jobs[name].tokens_per_step / outcome.seconds
            spending += outcome.dollars / outcome.seconds
        if self.most_dollars_per_second is not None:
            over = max(0.0, spending / self.most_dollars_per_second - 1)
            return waiting * WAITING + over * 1e6 + tokens / max(throughput, 1e-12)
        assert self.least_tokens_per_second is not None
        short = max(0.0, self.least_tokens_per_second / max(throughput, 1e-12) - 1)
        return waiting * WAITING + short * 1e6 + spending

    def describe(self, cost: float, jobs: Sequence[Job]) -> str:
        """A cost in words."""
        if cost >= min(WAITING * job.weight for job in jobs):
            return "not every job has a place yet"
        if self.most_dollars_per_second is not None:
            return f"{sum(job.weight * job.tokens_per_step for job in jobs) / cost:,.4g} tokens/s (weighted sum)"
        return f"{cost * 3600:,.4g} $/h" if self.needs_money else f"{cost:,.4g} s (weighted sum)"


def job_cost(job: Job, seconds: float | None) -> float:
    """A job's part of the default objective: weight × seconds to finish."""
    if seconds is None:
        return WAITING * job.weight
    return job.weight * seconds * (job.steps or 1.0)
