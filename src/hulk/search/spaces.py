"""The spaces of several jobs on one cluster."""

from __future__ import annotations

from collections.abc import Iterable

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.search.job_space import JobSpace, Places


def spaces_of(cluster: Cluster, jobs: Iterable[Job], compute: ComputeModel, *, engine: Engine = HULK) -> list[JobSpace]:
    """A space for each job, as an engine would run it; all share the cluster's places."""
    places = Places.of(cluster)
    return [JobSpace(job, cluster, places, compute=compute, engine=engine) for job in jobs]
