"""What a step costs: the GPUs in use for as long as it takes, and the bytes that leave a region."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations

from hulk.cost.arrays import Tables
from hulk.cost.compiled import plain
from hulk.cost.report import Money
from hulk.cost.sums import Share
from hulk.cost.sync import sends_weights, set_bytes
from hulk.domain.cluster import Cluster
from hulk.domain.options import Sharding, Within
from hulk.domain.plan import JobPlan


def passes_over(tables: Tables, plan: JobPlan, share: Share) -> float:
    """How often the bytes of a share go around in a step: once, or where gradients or parameters are sharded, with
    every microbatch, of which the share is what is left after the last backward."""
    split = plan.options.sharding in (Sharding.GRADIENTS, Sharding.PARAMETERS)
    if not split or plan.options.shard_within is not Within.EVERYWHERE or share.layers is None:
        return 1.0  # what goes around within a region costs nothing
    first, last = share.layers
    gradients = float(plain(set_bytes)(tables, first, last, False)) / 2
    gathered = 0.0
    if plan.options.sharding is Sharding.PARAMETERS:  # forward and backward
        gathered = 2 * gradients * tables.weight_bytes / tables.wire_bytes
    return plan.pipelines[0].microbatches * (gradients + gathered) / share.size if share.size > 0 else 1.0


def step_money(plan: JobPlan, cluster: Cluster, tables: Tables, shares: Sequence[Share], total: float) -> Money:
    """Dollars of a step of `total` seconds, which adds up these shares."""
    gpus = 0.0
    egress = 0.0
    for stage in plan.slots:
        host = cluster.machine(stage.machine)
        gpus += host.price / host.gpus * stage.ranks * total
    for pipeline in plan.pipelines:
        for a, b in pairwise(pipeline.stages):
            there_and_back = cluster.egress(a.machine, b.machine) + cluster.egress(b.machine, a.machine)
            egress += float(tables.cut[a.last]) * pipeline.microbatches * there_and_back
    everywhere = plan.options.shard_within is Within.EVERYWHERE  # what stays within a region costs nothing
    sends = everywhere and plain(sends_weights)(tables, plan.options.has_owners, len(plan.pipelines))
    machines = [stage.machine for stage in plan.stages]
    for share in shares:
        times = 1.0 if share.layers is None else passes_over(tables, plan, share)
        egress += times * sum(size * cluster.egress(machines[a], machines[b]) for a, b, size in share.hops())
        if sends:  # an n-th each, to everyone
            ways = sum(cluster.egress(machines[a], machines[b]) for a, b in permutations(share.members, 2))
            egress += ways * share.size / len(share.members)
    return Money(gpus=gpus, egress=egress)
