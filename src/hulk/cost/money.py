"""What a step costs: the GPUs in use for as long as it takes, and the bytes that leave a region."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations

from hulk.cost.arrays import Tables
from hulk.cost.report import Money
from hulk.cost.sums import Share
from hulk.domain.cluster import Cluster
from hulk.domain.plan import JobPlan, Sync


def step_money(plan: JobPlan, cluster: Cluster, tables: Tables, shares: Sequence[Share], total: float) -> Money:
    """Dollars of a step of `total` seconds, which adds up these shares."""
    gpus = 0.0
    egress = 0.0
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            host = cluster.machine(stage.machine)
            gpus += host.price / host.gpus * stage.tensor_parallel * total
        for a, b in pairwise(pipeline.stages):
            there_and_back = cluster.egress(a.machine, b.machine) + cluster.egress(b.machine, a.machine)
            egress += float(tables.cut[a.last]) * pipeline.microbatches * there_and_back
    sends = plan.shard_optimizer and tables.rules.sends_weights
    machines = [stage.machine for pipeline in plan.pipelines for stage in pipeline.stages]
    for share in shares:
        holders = [machines[n] for n in share.members]
        egress += _sum_egress(holders, share, plan.sync, cluster)
        if sends:  # an n-th each, to everyone
            egress += sum(cluster.egress(a, b) for a, b in permutations(holders, 2)) * share.size / len(holders)
    return Money(gpus=gpus, egress=egress)


def _sum_egress(holders: Sequence[str], share: Share, sync: Sync, cluster: Cluster) -> float:
    """Dollars for gradients that cross regions: each member of a ring sends 2 (n − 1) / n of a set to the next; region
    by region, only the regions' first members do."""
    ring = list(holders)
    if sync is Sync.BY_REGION:
        ring = list({cluster.machine(name).region: name for name in reversed(ring)}.values())[::-1]
    n = len(ring)
    if n < 2:
        return 0.0
    hops = zip(ring, [*ring[1:], ring[0]], strict=True)
    return sum(cluster.egress(a, b) for a, b in hops) * share.size * 2 * (n - 1) / n
