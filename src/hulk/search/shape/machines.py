"""A machine leaves a job's pipelines, enters them, or takes the place of another, compiled. Each works on the pipelines
at hand, and returns False where it does not apply."""

from __future__ import annotations

import numpy as np

from hulk.cost.compiled import lean
from hulk.search.shape.slots import drop, nearest_position, own_gpus, put
from hulk.search.tables import SearchTables
from hulk.search.workspace import Workspace

INSERTIONS = 5
"""Ways to put a machine into pipelines as they are."""


@lean
def without(work: Workspace, machine: int, whole: bool) -> bool:
    """Without a machine's slots, or without the pipelines it is part of; false where nothing is left or it is the
    same."""
    changed = False
    p = work.pipelines[0] - 1
    while p >= 0:
        found = False
        for i in range(work.starts[p + 1] - 1, work.starts[p] - 1, -1):
            if work.machine[i] == machine:
                found = True
                if not whole:
                    pipelines = work.pipelines[0]
                    drop(work, p, i, i + 1)
                    if work.pipelines[0] < pipelines:
                        break
        if found and whole:
            drop(work, p, work.starts[p], work.starts[p + 1])
        changed = changed or found
        p -= 1
    return bool(changed and work.pipelines[0] > 0)


@lean
def substitute(packed: SearchTables, work: Workspace, job: int, old: int, new: int) -> bool:
    """Another machine takes a machine's slots, as far as its GPUs go."""
    spare = packed.gpus[new]
    p = work.pipelines[0] - 1
    while p >= 0:
        for i in range(work.starts[p + 1] - 1, work.starts[p] - 1, -1):
            if work.machine[i] != old:
                continue
            ranks = packed.degree[job, min(work.ranks[i], packed.gpus[new])]
            if spare >= ranks:
                work.machine[i], work.ranks[i] = new, ranks
                spare -= ranks
            else:
                pipelines = work.pipelines[0]
                drop(work, p, i, i + 1)
                if work.pipelines[0] < pipelines:
                    break
        p -= 1
    return bool(work.pipelines[0] > 0)


@lean
def insert(packed: SearchTables, work: Workspace, job: int, machine: int, way: int) -> bool:
    """A machine comes in: every slot a replica, one more replica, several as long as another, stages of one pipeline
    beside its nearest neighbours, or spread over several."""
    gpus = own_gpus(packed, work, machine, work.twins[0])
    if gpus < 1:
        return False
    pipelines = work.pipelines[0]
    total = work.starts[pipelines]
    degree = work.ranks[np.random.randint(0, total)]
    if np.random.random() < 0.3:
        degree = 1 << np.random.randint(0, 4)
    ranks = packed.degree[job, min(degree, gpus)]
    slots = gpus // ranks
    if way == 0:
        for i in range(slots):
            put(work, pipelines + i, total + i, machine, ranks)
        return True
    p = np.random.randint(0, pipelines)
    if way == 3:
        at = nearest_position(packed, work, p, machine)
        for _ in range(slots):
            put(work, p, at, machine, ranks)
        return True
    if slots < 2:
        return False
    if way == 1:
        for i in range(slots):
            put(work, pipelines, total + i, machine, ranks)
        return True
    if way == 2:
        length = work.starts[p + 1] - work.starts[p]
        if not 1 < length < slots:
            return False
        for i in range(slots - slots % length):
            put(work, pipelines + i // length, total + i, machine, ranks)
        return True
    if pipelines < 2:
        return False
    for i in range(min(slots, pipelines)):
        target = (p + i) % pipelines
        put(work, target, nearest_position(packed, work, target, machine), machine, ranks)
    return True
