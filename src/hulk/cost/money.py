"""What a step costs: the GPUs in use for as long as it takes, and the bytes that leave a region."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hulk.cost.report import Money
from hulk.cost.step import Durations, Tables
from hulk.domain.cluster import Cluster
from hulk.domain.plan import JobPlan, Stage, Sync


def step_money(plan: JobPlan, cluster: Cluster, tables: Tables, durations: Durations, sets: int, total: float) -> Money:
    """Dollars of a step of `total` seconds, which syncs the first so many gradient sets of `durations`."""
    gpus = 0.0
    egress = 0.0
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            host = cluster.machine(stage.machine)
            gpus += host.price / host.gpus * stage.tensor_parallel * total
        for a, b in pairwise(pipeline.stages):
            there_and_back = cluster.egress(a.machine, b.machine) + cluster.egress(b.machine, a.machine)
            egress += float(tables.cut[a.last]) * pipeline.microbatches * there_and_back
    return Money(gpus=gpus, egress=egress + _sync_egress(plan, cluster, tables, durations, sets))


def _sync_egress(plan: JobPlan, cluster: Cluster, tables: Tables, durations: Durations, sets: int) -> float:
    """Dollars for gradients that cross regions: each member of a ring sends 2 (n − 1) / n of a set to the next;
    region by region, only the regions' first members do."""
    params = tables.split + tables.whole
    dollars = 0.0
    for first, last in zip(durations.set_first[:sets].tolist(), durations.set_last[:sets].tolist(), strict=True):
        size = float(params[last + 1] - params[first]) * tables.wire_bytes
        ring = [_holder(pipeline.stages, first).machine for pipeline in plan.pipelines]
        if plan.sync is Sync.BY_REGION:
            ring = list({cluster.machine(name).region: name for name in reversed(ring)}.values())[::-1]
        dollars += _ring_egress(ring, size, cluster)
    for pipeline in plan.pipelines:
        start = pipeline.stages[0]
        for stage in pipeline.stages[1:]:
            shared = float(tables.tied[stage.last + 1] - tables.tied[stage.first]) * tables.wire_bytes
            dollars += _ring_egress([start.machine, stage.machine], shared, cluster)
    return dollars


def _holder(stages: Sequence[Stage], layer: int) -> Stage:
    return next(stage for stage in stages if stage.first <= layer <= stage.last)


def _ring_egress(ring: Sequence[str], size: float, cluster: Cluster) -> float:
    n = len(ring)
    if n < 2 or size == 0:
        return 0.0
    hops = zip(ring, [*ring[1:], ring[0]], strict=True)
    return sum(cluster.egress(a, b) for a, b in hops if a != b) * size * 2 * (n - 1) / n
