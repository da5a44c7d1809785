"""Gradients or parameters that holders split among them, compiled: what passes wait for the other holders.

A pass of a layer gathers its weights while the layer before is computed (FSDP, ZeRO stage 3); backward spreads a
layer's gradient over the holders while the next layer is computed (stage 2 as well). So a pass takes as long as the
longer of the two, computing and moving, and the first layer's gather shows. What is left after the last backward is the
last layer's gradient. An engine that does not overlap takes the sum of the two.

Where each region or machine has all of it, passes wait for the holders there alone, and gradients are added up among
all holders after the last backward, as without sharding.
"""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import (
    EVERYWHERE,
    EXPERT,
    FITS,
    GRADIENTS,
    IN_REGION,
    PARAMETERS,
    SCATTERED,
    SHARD,
    UNLIKE,
    WITHIN,
    Durations,
    Encoded,
    Ints,
    Tables,
    transfer_seconds,
)
from hulk.cost.compiled import inner, lean, maker
from hulk.cost.sync import lanes, move_to, rails_of, set_bytes

_HALF = 0.5
"""A gather, or a scatter, goes around a ring once; a sum twice."""


@inner
def is_near(tables: Tables, plan: Encoded, n: int, m: int) -> bool:
    """Whether two stages split what is sharded."""
    if plan.options[WITHIN] == EVERYWHERE:
        return True
    if plan.options[WITHIN] == IN_REGION:
        return bool(tables.region[plan.place[n]] == tables.region[plan.place[m]])
    return bool(plan.machine[n] == plan.machine[m])


@inner
def shards_of_all(plan: Encoded) -> int:
    """In how many parts every stage's state is split, where that is the same for all; 0 where it is not. Compiled code
    that goes through many stages asks once: a call is handed all tables."""
    if plan.options[SHARD] == 0:
        return 1
    return plan.microbatches.shape[0] if plan.options[WITHIN] == EVERYWHERE else 0


@lean
def shards_of(tables: Tables, plan: Encoded, p: int, n: int) -> int:
    """In how many parts what stage n of pipeline p holds is split. Pipelines that split it are cut alike, so holders
    stand at the same place in each."""
    of_all = shards_of_all(plan)
    if of_all > 0:
        return of_all
    at, shards = n - plan.starts[p], 0
    for other in range(plan.microbatches.shape[0]):
        m = plan.starts[other] + at
        if m < plan.starts[other + 1] and is_near(tables, plan, n, m):
            shards += 1
    return shards


@lean
def first_unlike(plan: Encoded) -> int:
    """The first pipeline that is not cut like the first one, or has other ranks or another number of microbatches: the
    holders of a layer go through its passes together. 0: all are alike."""
    stages = plan.starts[1]
    for p in range(1, plan.microbatches.shape[0]):
        begin = plan.starts[p]
        if plan.starts[p + 1] - begin != stages or plan.microbatches[p] != plan.microbatches[0]:
            return p
        for s in range(stages):
            n = begin + s
            if plan.first[n] != plan.first[s] or plan.last[n] != plan.last[s] or plan.ranks[n] != plan.ranks[s]:
                return p
    return 0


@lean
def mismatch(tables: Tables, plan: Encoded) -> tuple[int, int]:
    """(UNLIKE, pipeline) or (SCATTERED, stage) of the first that does not go with what holders split; (FITS, 0) where
    all do."""
    replicas, splits = plan.microbatches.shape[0], plan.options[EXPERT] > 1
    in_passes = plan.options[SHARD] >= GRADIENTS and replicas > 1
    if splits or in_passes or (plan.options[SHARD] > 0 and plan.options[WITHIN] != EVERYWHERE):
        unlike = first_unlike(plan)
        if unlike > 0:
            return UNLIKE, unlike
    alone = _first_scattered(tables, plan) if splits else -1
    return (SCATTERED, alone) if alone >= 0 else (FITS, 0)


@lean
def _first_scattered(tables: Tables, plan: Encoded) -> int:
    """The first stage whose experts cannot be split over GPUs of its machine that hold the same layers, since there are
    not as many of them or not so many times as many; −1: there are everywhere. Pipelines are alike."""
    stages = plan.starts[1]
    for n in range(plan.starts[-1]):
        at, near = n % stages, 0
        for p in range(plan.microbatches.shape[0]):
            near += plan.machine[plan.starts[p] + at] == plan.machine[n]
        if int(near * tables.context) % plan.options[EXPERT] != 0:
            return n
    return -1


@maker
def _around(tables: Tables, plan: Encoded, holders: Ints, p: int, size: float) -> tuple[float, float]:
    """(Seconds on the wire, seconds of latency) of gathering or scattering `size` bytes among the holders near that of
    pipeline p, once around their ring."""
    near = np.empty(holders.shape[0], np.int64)
    count = 0
    for i in range(holders.shape[0]):
        if is_near(tables, plan, holders[p], holders[i]):
            near[count] = holders[i]
            count += 1
    near = near[:count]
    if count < 2:
        return 0.0, 0.0
    flows = rails_of(plan, near) if tables.rules.flow_per_rank else lanes(tables, plan.ranks[near[0]])
    slowest, around = 0.0, 0.0
    for i in range(count):
        wait, wire = transfer_seconds(tables, plan, near[i], near[(i + 1) % count], size / count, flows)
        slowest = max(slowest, wire)
        around += wait + tables.rules.hop_overhead
    return (count - 1) * slowest, (count - 1) / count * around


@maker
def stretch_passes(tables: Tables, plan: Encoded, out: Durations, sets: int) -> None:
    """Make every stage's passes as long as what it moves meanwhile. Among all holders, leave of the gradient sets what
    is added up after the last backward; where each region or machine has all of it, they stay as they are."""
    gathers, in_groups = plan.options[SHARD] >= PARAMETERS, plan.options[WITHIN] != EVERYWHERE
    overlap = tables.rules.overlap_shards
    stages = plan.starts[-1]
    there, back, first = np.zeros((3, stages))
    holders = plan.starts[:-1].copy()
    for i in range(sets):
        move_to(plan, holders, out.set_first[i])
        layers = out.set_last[i] - out.set_first[i] + 1
        size = set_bytes(tables, out.set_first[i], out.set_last[i], False)
        wire, wait = _HALF * (out.set_seconds[i] - out.set_wait[i]), _HALF * out.set_wait[i]
        for p in range(holders.shape[0]):
            if in_groups:
                wire, wait = _around(tables, plan, holders, p, size)
            n = holders[p]
            gather = wire * tables.weight_bytes / tables.wire_bytes + layers * wait if gathers else 0.0
            there[n] += gather
            back[n] += gather + wire + layers * wait
            if not overlap and not in_groups:  # the last layer's gradient comes after the last backward
                back[n] -= wire / layers + wait
            if out.set_first[i] == plan.first[n]:
                first[n] = gather / layers
        if not in_groups:
            out.set_size[i] *= _HALF / layers
            out.set_seconds[i] = wire / layers + wait
            out.set_wait[i] = wait
    for n in range(stages):
        if overlap:
            out.forward[n] = max(out.forward[n], there[n]) + first[n]
            out.backward[n] = max(out.backward[n], back[n])
        else:
            out.forward[n] += there[n]
            out.backward[n] += back[n]
