"""A job whose stages are on several machines after some of these were lost: small changes to its plan itself, since the
search's own changes know stages on one machine alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hulk.domain.cluster import Cluster, Machine
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, rounds_problem
from hulk.replan.naming import renamed


def plan_repairs(
    job: Job, plan: JobPlan, cluster: Cluster, lost: Collection[str], spare: Sequence[str]
) -> list[tuple[str, JobPlan]]:
    """Ways to go on without the machines `lost`, in words, machines as {number in the cluster}: spare machines that are
    alike take their place, or the replicas that they were in are dropped."""
    number = {machine.name: i for i, machine in enumerate(cluster.machines)}
    names: dict[str, str] = {}
    for name in (name for name in plan.machines if name in lost):
        wanted = _facts(cluster.machine(name))
        free = (other for other in spare if other not in names.values())
        other = next((other for other in free if _facts(cluster.machine(other)) == wanted), None)
        if other is not None:
            names[name] = other
    ways = []
    if names and names.keys() == {name for name in plan.machines if name in lost}:
        words = ", ".join(f"{{{number[b]}}} takes the place of {{{number[a]}}}" for a, b in names.items())
        ways.append((words, renamed(plan, names)))
    left = [p for p in plan.pipelines if not any(name in lost for stage in p.stages for name in stage.machines)]
    share, rest = divmod(job.global_batch, max(1, len(left)) * plan.options.microbatch_size)
    chunks = plan.options.chunks
    if left and not rest and not any(rounds_problem(len(p.slots(chunks)), chunks, share) for p in left):
        kept = tuple(replace(pipeline, microbatches=share) for pipeline in left)
        ways.append(("its other replicas go on", replace(plan, pipelines=kept)))
    return ways


def _facts(machine: Machine) -> tuple[object, ...]:
    return machine.region, machine.gpu.name, machine.gpus, machine.memory, machine.network, machine.cards
