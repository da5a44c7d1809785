"""The way in: small cases solved, all others refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.errors import InputError
from hulk.search.exact.assignment import Assignment
from hulk.search.exact.size import refuse_large
from hulk.search.job_space import JobSpace, Places
from hulk.search.objective import Objective


def solve_exactly(
    cluster: Cluster,
    jobs: Sequence[Job],
    *,
    compute: ComputeModel,
    engine: Engine = HULK,
    objective: Objective = Objective(),  # noqa: B008  frozen
    keep_from: Mapping[str, frozenset[str]] | None = None,
) -> tuple[Plan, dict[str, float | None]]:
    """The optimal plan and every job's seconds a step (None: it waits, or no plan meets its deadline). `keep_from`
    names, for a job, machines it must not use. InputError where the case is too large or money counts."""
    if objective.needs_money:
        raise InputError("the exact solver knows the default objective only", hint="leave out the money limits")
    places = Places.of(cluster)
    without = keep_from or {}
    engine = replace(engine, counts=())  # all blocks are computed again, or none
    spaces = [
        JobSpace(job, cluster, places, compute=compute, engine=engine, without=without.get(job.name, frozenset()))
        for job in jobs
    ]
    refuse_large(cluster, spaces)
    return Assignment(cluster, spaces).solve()
