"""What is asked of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.search.job_space import JobSpace, Places
from hulk.search.objective import Objective

Names = Mapping[str, frozenset[str]]
"""Machines by the name of a job."""


@dataclass(frozen=True)
class Request:
    """A plan for these jobs, all together, on this cluster.

    compute     how long layers take
    engine      what will run the plan
    objective   what is to be made small, and what must be kept
    keep_from   machines that a job must not use
    pins        machines that a job must use, and no other job may
    """

    cluster: Cluster
    jobs: tuple[Job, ...]
    compute: ComputeModel
    engine: Engine = HULK
    objective: Objective = field(default_factory=Objective)
    keep_from: Names = field(default_factory=dict)
    pins: Names = field(default_factory=dict)

    def spaces(self) -> list[JobSpace]:
        """What each job may use, with prices for any shape of it; all share the cluster's places."""
        places = Places.of(self.cluster, apart=frozenset().union(*self.pins.values()))
        return [
            JobSpace(
                job, self.cluster, places, compute=self.compute, engine=self.engine, without=self._without(job.name),
                pins=self.pins.get(job.name, frozenset()),
            )
            for job in self.jobs
        ]  # fmt: skip

    def _without(self, job: str) -> frozenset[str]:
        """The machines a job must not use: those it is kept from, and those other jobs must use."""
        others = (names for other, names in self.pins.items() if other != job)
        return self.keep_from.get(job, frozenset()).union(*others)
