"""Plans that exist already, for search: read back as skeletons, cut again, and kept on the GPUs they have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.cost.price import step_of
from hulk.domain.cluster import Cluster, Machine
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Stage
from hulk.errors import InputError
from hulk.search.evaluate import JobSpace, Places
from hulk.search.matching import match
from hulk.search.skeleton import Skeleton, Slot


def machines_of(plan: JobPlan) -> dict[str, None]:
    """The machines a plan uses, each once, in the order of the plan."""
    return dict.fromkeys(stage.machine for pipeline in plan.pipelines for stage in pipeline.stages)


def restrict(cluster: Cluster, names: Collection[str]) -> Cluster:
    """The cluster with these machines only; regions and their links stay."""
    kept = set(names)
    return replace(
        cluster,
        machines=tuple(machine for machine in cluster.machines if machine.name in kept),
        machine_links={ends: link for ends, link in cluster.machine_links.items() if kept.issuperset(ends)},
    )


def change_cluster(cluster: Cluster, lost: Sequence[str], joined: Sequence[Machine]) -> Cluster:
    """The cluster without the lost machines and with the joined ones, which get the links of their region."""
    for machine in joined:
        cluster.region(machine.region)
        if cluster.has_machine(machine.name):
            raise InputError(
                f"machine {machine.name!r} joins, but is in cluster {cluster.name!r} already",
                hint="give the one that joins a name of its own",
            )
    names = [cluster.machine(name).name for name in lost]
    grown = replace(cluster, machines=(*cluster.machines, *joined))
    return restrict(grown, {machine.name for machine in grown.machines}.difference(names))


def skeleton_of(plan: JobPlan, cluster: Cluster) -> Skeleton:
    """What search would have changed to get this plan."""
    number = {machine.name: i for i, machine in enumerate(cluster.machines)}
    chains = tuple(
        tuple(Slot(number[stage.machine], stage.tensor_parallel) for stage in pipeline.stages)
        for pipeline in plan.pipelines
    )
    return Skeleton(chains, plan.options)


def recut(
    job: Job, plan: JobPlan, cluster: Cluster, *, compute: ComputeModel, engine: Engine
) -> tuple[JobPlan, float] | None:
    """The same slots with the layers cut and the batch shared anew, and its seconds a step; None where nothing fits."""
    own = restrict(cluster, machines_of(plan))
    space = JobSpace(job, own, Places.of(own), compute=compute, engine=engine)
    skeleton = skeleton_of(plan, own)
    if any(slot.ranks not in space.degrees for chain in skeleton.chains for slot in chain):
        return None
    if not space.result(skeleton).runs:
        return None
    again, _ = space.plan(skeleton)
    seconds = step_of(job, again, own, compute=compute, engine=engine)
    return None if seconds is None else (again, seconds)


def keep_gpus(
    plan: JobPlan, old: JobPlan | None, cluster: Cluster, taken: Mapping[str, Collection[int]]
) -> JobPlan | None:
    """The plan with GPU numbers chosen anew, so that many layers are on GPUs that hold them: stages as wide as old ones
    take their GPUs, the others the free ones with most of their layers. None where a machine has too few beside those
    `taken` by other jobs."""
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    rows: dict[str, list[int]] = {}
    for row, stage in enumerate(stages):
        rows.setdefault(stage.machine, []).append(row)
    before: dict[str, list[Stage]] = {}
    for stage in (stage for pipeline in (old.pipelines if old else ()) for stage in pipeline.stages):
        before.setdefault(stage.machine, []).append(stage)
    chosen: dict[int, tuple[int, ...]] = {}
    for name, own in rows.items():
        free = set(range(cluster.machine(name).gpus)).difference(taken.get(name, ()))
        found = _gpus_of([stages[row] for row in own], before.get(name, []), free)
        if found is None:
            return None
        chosen.update(zip(own, found, strict=True))
    row_numbers = iter(range(len(stages)))
    pipelines = tuple(
        replace(pipeline, stages=tuple(replace(stage, gpus=chosen[next(row_numbers)]) for stage in pipeline.stages))
        for pipeline in plan.pipelines
    )
    return replace(plan, pipelines=pipelines)


def _gpus_of(stages: Sequence[Stage], before: Sequence[Stage], free: set[int]) -> list[tuple[int, ...]] | None:
    """Each stage's GPUs on one machine, out of those that are free; None where they are too few."""
    chosen: dict[int, tuple[int, ...]] = {}
    for width in {stage.tensor_parallel for stage in stages}:
        rows = [row for row, stage in enumerate(stages) if stage.tensor_parallel == width]
        olds = [stage for stage in before if stage.tensor_parallel == width and free.issuperset(stage.gpus)]
        for row, other in _pairs([stages[row] for row in rows], olds):
            chosen[rows[row]] = olds[other].gpus
    left = free.difference(*chosen.values())
    for row, stage in enumerate(stages):
        if row not in chosen:
            held = {gpu: _common(stage, other) for other in before for gpu in other.gpus}
            best = sorted(left, key=lambda gpu: (-held.get(gpu, 0), gpu))[: stage.tensor_parallel]
            if len(best) < stage.tensor_parallel:
                return None
            chosen[row] = tuple(sorted(best))
            left.difference_update(best)
    return [chosen[row] for row in range(len(stages))]


def _pairs(stages: Sequence[Stage], before: Sequence[Stage]) -> list[tuple[int, int]]:
    """Stages with the old stages whose GPUs they take, by number: as many as can be, with most layers in common."""
    if not stages or not before:
        return []
    common = np.array([[float(_common(stage, other)) for other in before] for stage in stages])
    if len(stages) <= len(before):
        return list(enumerate(match(-common)))
    return [(row, column) for column, row in enumerate(match(-common.T))]


def _common(stage: Stage, other: Stage) -> int:
    """Layers that two stages have in common."""
    return len(range(max(stage.first, other.first), min(stage.last, other.last) + 1))
