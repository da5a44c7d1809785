"""Machines that hold stages together, as one: price and search go by a cluster in which the first stands for all.

It has the GPUs and the network cards of all of them, so whatever counts GPUs, memory, messages or dollars of a machine
is right for them too; what its GPUs say to each other goes between machines (`Machine.span`). Machines that hold a
stage together hold all their stages together (`hulk.domain.check`), so no card is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from hulk.domain.cluster import Cluster, Machine, Span
from hulk.domain.plan import JobPlan, Part, Stage


def join(cluster: Cluster, names: Sequence[str]) -> Machine:
    """Several machines as one, by the least that any of them has."""
    hosts = [cluster.machine(name) for name in names]
    links = [cluster.link(a, b) for a, b in combinations(names, 2)]
    count, gpus, network = len(hosts), min(host.gpus for host in hosts), min(host.network for host in hosts)
    trunks = [link.trunk / count for link in links if link.trunk]
    return replace(
        hosts[0],
        gpus=count * gpus,
        memory=min(host.memory for host in hosts),
        network=count * network,
        cards=count * min(host.cards for host in hosts),
        price=gpus * sum(host.price / host.gpus for host in hosts),
        beside=tuple(names[1:]),
        span=Span(
            machines=count,
            latency=max(link.latency for link in links),
            flow=min([link.bandwidth for link in links] + [host.card for host in hosts]),
            network=min([network, *trunks]),
        ),
    )


def with_joined(cluster: Cluster, teams: Iterable[Sequence[str]]) -> Cluster:
    """The cluster with one machine for each team; those that are one already stay so."""
    made = {team[0]: join(cluster, team) for team in teams if _is_apart(cluster, team)}
    if not made:
        return cluster
    gone = {name for machine in made.values() for name in machine.beside}
    left = (machine for machine in cluster.machines if machine.name not in gone)
    return replace(cluster, machines=tuple(made.get(machine.name, machine) for machine in left))


def _is_apart(cluster: Cluster, team: Sequence[str]) -> bool:
    return len(team) > 1 and cluster.machine(team[0]).span is None


def joined(cluster: Cluster, plans: Iterable[JobPlan]) -> Cluster:
    """The cluster with one machine in place of those that hold stages of these plans together."""
    return with_joined(cluster, {stage.machines for plan in plans for stage in plan.slots if stage.beside})


def taken_apart(plan: JobPlan, cluster: Cluster) -> JobPlan:
    """A plan made for a cluster with joined machines on the machines themselves. On one of these, stages of the same
    number of GPUs have been given theirs in order."""
    if not any(cluster.machine(name).span for name in plan.machines):
        return plan
    pipelines = (
        replace(pipeline, stages=tuple(_apart(stage, cluster) for stage in pipeline.stages))
        for pipeline in plan.pipelines
    )
    return replace(plan, pipelines=tuple(pipelines))


def _apart(stage: Stage, cluster: Cluster) -> Stage:
    names = (stage.machine, *cluster.machine(stage.machine).beside)
    each = stage.ranks // len(names)
    first = stage.gpus[0] // len(names)
    return stage.with_parts([Part(name, tuple(range(first, first + each))) for name in names])
