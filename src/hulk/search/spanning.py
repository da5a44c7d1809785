"""Stages on several machines, for searches that know machines alone: the same job on a cluster in which alike machines
are joined, two and two, four and four, … (`hulk.domain.joined`). A plan made there is taken apart again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hulk.cost.collectives import ring
from hulk.domain.cluster import Machine
from hulk.domain.joined import join
from hulk.domain.regular import teams_of
from hulk.search.job_space import JobSpace, Places

# Machines whose GPUs can do a layer together at little cost: their network is at most so many times as slow as what
# GPUs have inside, and so many seconds away. A layer waits for both several times.
_SLOWER, _FAR = 8.0, 0.1e-3
_WIDTHS = (16, 8, 4, 2)  # machines


def joined_spaces(space: JobSpace, machines: Sequence[int]) -> Iterator[JobSpace]:
    """The job on these machines joined, all that may be first, then fewer and fewer, which leaves more to choose; none
    where their network is slow, or searches for the engine leave them out."""
    cluster = space.cluster
    hosts = [cluster.machines[machine] for machine in machines if machine in space.allowed]
    if not space.engine.spans or any(host.span for host in hosts):
        return
    for width in (width for width in _WIDTHS if width <= len(hosts)):
        teams = teams_of(hosts, width, cluster)
        joined = (join(cluster, [host.name for host in team]) for team in teams)
        near = tuple(machine for machine in joined if _is_near(machine))
        if near:
            own = replace(cluster, machines=near)
            yield JobSpace(
                space.job, own, Places.of(own), compute=space.compute, engine=space.engine, without=space.without
            )


def _is_near(machine: Machine) -> bool:
    span = machine.span
    assert span is not None  # it was joined
    gpus = machine.gpus // span.machines
    inside = ring(machine.gpu, gpus).bandwidth
    return span.latency <= _FAR and _SLOWER * min(gpus * span.flow, span.network) >= inside
