"""Gradients or parameters that holders split among them, compiled: what passes wait for the other holders.

A pass of a layer gathers its weights while the layer before is computed (FSDP, ZeRO stage 3); backward spreads a
layer's gradient over the holders while the next layer is computed (stage 2 as well). So a pass takes as long as the
longer of the two, computing and moving, and the first layer's gather shows. What is left after the last backward is the
last layer's gradient.
"""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import PARAMETERS, SHARD, Durations, Encoded, Tables
from hulk.cost.compiled import lean, maker
from hulk.cost.sync import move_to

_HALF = 0.5
"""A gather, or a scatter, goes around a ring once; a sum twice."""


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


@maker
def stretch_passes(tables: Tables, plan: Encoded, out: Durations, sets: int) -> None:
    """Make every stage's passes as long as what it moves meanwhile, and leave of the gradient sets what is added up
    after the last backward."""
    gathers = plan.options[SHARD] >= PARAMETERS
    stages = plan.starts[-1]
    there, back, first = np.zeros((3, stages))
    holders = plan.starts[:-1].copy()
    for i in range(sets):
        move_to(plan, holders, out.set_first[i])
        layers = out.set_last[i] - out.set_first[i] + 1
        wire, wait = _HALF * (out.set_seconds[i] - out.set_wait[i]), _HALF * out.set_wait[i]
        gather = 0.0
        if gathers:
            gather = wire * tables.weight_bytes / tables.wire_bytes + layers * wait
        for p in range(holders.shape[0]):
            n = holders[p]
            there[n] += gather
            back[n] += gather + wire + layers * wait
            if out.set_first[i] == plan.first[n]:
                first[n] = gather / layers
        out.set_size[i] *= _HALF / layers
        out.set_seconds[i] = wire / layers + wait
        out.set_wait[i] = wait
    for n in range(stages):
        out.forward[n] = max(out.forward[n], there[n]) + first[n]
        out.backward[n] = max(out.backward[n], back[n])
