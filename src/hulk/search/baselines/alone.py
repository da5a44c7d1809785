"""Each job alone on all machines, cut as the planner cuts; jobs one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.search.baselines.result import BaselineResult, Placement
from hulk.search.baselines.scene import Scene, one_after_the_other
from hulk.search.job_space import JobSpace


def alone(
    cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine, seed: int, time_limit: float
) -> BaselineResult:
    """All machines that the job may use; where blocked links are in the way, also those that all reach each other;
    where nothing fits, without the smallest GPUs."""
    del seed  # nothing is drawn
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)

    def place(space: JobSpace, _: dict[str, str]) -> Placement | str:
        machines = sorted(space.allowed)
        answers = [scene.most_that_fit(space, group) for group in (machines, scene.reachable(space, machines))]
        found = min((answer for answer in answers if answer is not None), key=lambda answer: answer[1], default=None)
        if found is None:
            return "no shape over all machines fits memory and blocked links"
        return scene.placement(space, found[0])

    return one_after_the_other("alone", scene, place)
