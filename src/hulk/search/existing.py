"""Plans that exist already, for search: read back as skeletons, cut again, and kept on the GPUs they have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster, Machine
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, ScheduleKind, Stage
from hulk.errors import InputError
from hulk.search.evaluate import JobSpace, Places
from hulk.search.skeleton import Settings, Skeleton, Slot


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
            raise InputError(f"machine {machine.name!r} joins, but is in cluster {cluster.name!r} already")
    names = [cluster.machine(name).name for name in lost]
    grown = replace(cluster, machines=(*cluster.machines, *joined))
    return restrict(grown, {machine.name for machine in grown.machines}.difference(names))


def settings_of(plan: JobPlan) -> Settings:
    """The switches of a plan."""
    return Settings(
        plan.microbatch_size,
        extra=plan.schedule.extra,
        gpipe=plan.schedule.kind is ScheduleKind.GPIPE,
        recompute=plan.recompute,
        sync=plan.sync,
        shard_optimizer=plan.shard_optimizer,
    )


def skeleton_of(plan: JobPlan, cluster: Cluster) -> Skeleton:
    """What search would have changed to get this plan."""
    number = {machine.name: i for i, machine in enumerate(cluster.machines)}
    chains = tuple(
        tuple(Slot(number[stage.machine], stage.tensor_parallel) for stage in pipeline.stages)
        for pipeline in plan.pipelines
    )
    return Skeleton(chains, settings_of(plan))


def recut(
    job: Job, plan: JobPlan, cluster: Cluster, *, compute: ComputeModel, engine: Engine
) -> tuple[JobPlan, float] | None:
    """The same slots with the layers cut and the batch shared anew, and its seconds a step; None where nothing fits."""
    own = restrict(cluster, machines_of(plan))
    space = JobSpace(job, own, Places.of(own), compute=compute, engine=engine)
    skeleton = skeleton_of(plan, own)
    if any(slot.ranks not in space.degrees for chain in skeleton.chains for slot in chain):
        return None
    return space.plan(skeleton) if space.seconds(skeleton) >= 0 else None


def keep_gpus(
    plan: JobPlan, old: JobPlan | None, cluster: Cluster, taken: Mapping[str, Collection[int]]
) -> JobPlan | None:
    """The plan with GPU numbers chosen anew: a stage keeps the GPUs of the old stage there that it has most layers in
    common with, the others get free ones. None where a machine has too few beside those `taken` by other jobs."""
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    before: dict[tuple[str, int], list[Stage]] = {}
    for pipeline in old.pipelines if old else ():
        for stage in pipeline.stages:
            if not set(stage.gpus) & set(taken.get(stage.machine, ())):
                before.setdefault((stage.machine, stage.tensor_parallel), []).append(stage)
    chosen: dict[int, tuple[int, ...]] = {}
    used = {name: set(gpus) for name, gpus in taken.items()}
    for row, stage in enumerate(stages):
        candidates = before.get((stage.machine, stage.tensor_parallel))
        if candidates:
            best = max(
                candidates, key=lambda other: len(range(max(stage.first, other.first), min(stage.last, other.last) + 1))
            )
            candidates.remove(best)
            chosen[row] = best.gpus
            used.setdefault(stage.machine, set()).update(best.gpus)
    for row, stage in enumerate(stages):
        if row in chosen:
            continue
        busy = used.setdefault(stage.machine, set())
        free = [gpu for gpu in range(cluster.machine(stage.machine).gpus) if gpu not in busy]
        if len(free) < stage.tensor_parallel:
            return None
        chosen[row] = tuple(free[: stage.tensor_parallel])
        busy.update(chosen[row])
    rows = iter(range(len(stages)))
    pipelines = tuple(
        replace(pipeline, stages=tuple(replace(stage, gpus=chosen[next(rows)]) for stage in pipeline.stages))
        for pipeline in plan.pipelines
    )
    return replace(plan, pipelines=pipelines)
