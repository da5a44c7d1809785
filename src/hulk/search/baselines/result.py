"""What a baseline answers: frozen values, no formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hulk.cost.report import Breakdown
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan, idle_machines
from hulk.search.baselines.score import Score, score


@dataclass(frozen=True, slots=True)
class Placement:
    """A job that trains. `plan` is None where a system cannot be written as one (tensor parallel over machines that
    are not alike)."""

    plan: JobPlan | None
    seconds: float
    breakdown: Breakdown

    @property
    def communication(self) -> float:
        """Seconds of a step in which data moves and nothing hides it."""
        return self.breakdown.transfer + self.breakdown.sync

    @property
    def computation(self) -> float:
        """The other seconds of a step: the slowest replica at work or waiting for its own stages, and the update."""
        return self.breakdown.compute + self.breakdown.bubble + self.breakdown.update


@dataclass(frozen=True)
class BaselineResult:
    """Every job is either `placed` or in `waiting` with the reason. `concurrent`: the jobs train side by side on
    disjoint machines; otherwise one after the other, each on all machines. `notes`: what a reader should know of a job.
    `hurried`: the time limit ended the search before all was tried.
    """

    name: str
    concurrent: bool
    placed: Mapping[str, Placement]
    waiting: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    hurried: bool = False

    @property
    def total(self) -> float | None:
        """Seconds until every job has done one step: the slowest job's where they train side by side, else the sum.
        None where a job waits."""
        if self.waiting or not self.placed:
            return None
        seconds = [placement.seconds for placement in self.placed.values()]
        return max(seconds) if self.concurrent else sum(seconds)

    def seconds(self, job: str) -> float | None:
        """Seconds of a job's step; None where it waits."""
        placement = self.placed.get(job)
        return None if placement is None else placement.seconds

    def score(self, jobs: Iterable[Job]) -> Score:
        """What it is worth by the planner's objective."""
        return score(jobs, {name: one.seconds for name, one in self.placed.items()}, concurrent=self.concurrent)

    def plans(self, cluster: Cluster) -> tuple[Plan, ...]:
        """One plan where the jobs train side by side, else one plan a job; without those that are no plan."""
        jobs = {name: placement.plan for name, placement in self.placed.items() if placement.plan is not None}
        if self.concurrent:
            return (_plan(jobs, cluster, self.waiting),)
        return tuple(_plan({name: plan}, cluster, {}) for name, plan in jobs.items())


def _plan(jobs: Mapping[str, JobPlan], cluster: Cluster, waiting: Mapping[str, str]) -> Plan:
    idle = idle_machines(jobs.values(), [machine.name for machine in cluster.machines])
    return Plan(jobs=dict(jobs), idle=idle, waiting=dict(waiting))
