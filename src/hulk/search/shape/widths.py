"""How many GPUs the slots of a job's pipelines have, and how many pipelines a machine serves, compiled. Each change
returns False where it does not apply; the work is then worth nothing."""

from __future__ import annotations

import numpy as np

from hulk.cost.compiled import inner
from hulk.search.shape.slots import any_slot, drop, nearest_position, own_gpus, put, take_slots
from hulk.search.tables import SearchTables
from hulk.search.workspace import Workspace


@inner
def use_idle_gpus(packed: SearchTables, work: Workspace, job: int) -> bool:
    """Idle GPUs of a machine in use get a slot, in a pipeline or as one."""
    _, at = any_slot(work)
    machine = work.machine[at]
    spare = own_gpus(packed, work, machine, work.twins[0])
    for i in range(work.starts[work.pipelines[0]]):
        if work.machine[i] == machine:
            spare -= work.ranks[i]
    if spare < 1 or packed.degree[job, spare] < 1:
        return False
    ranks = packed.degree[job, np.random.randint(1, spare + 1)]
    if ranks < 1:
        return False
    target = np.random.randint(0, work.pipelines[0] + 1)
    to = work.starts[target] if target == work.pipelines[0] else nearest_position(packed, work, target, machine)
    put(work, target, to, machine, ranks)
    return True


@inner
def reslice(packed: SearchTables, work: Workspace, job: int) -> bool:
    """A machine's slots get another tensor parallel degree; what it held goes on in the same places."""
    _, at = any_slot(work)
    machine = work.machine[at]
    spare = own_gpus(packed, work, machine, work.twins[0])
    ranks = packed.degree[job, np.random.randint(1, spare + 1)]
    one_for_one = np.random.random() < 0.5
    pipelines, kept, written, begin = work.pipelines[0], 0, 0, 0
    for p in range(pipelines):
        end = work.starts[p + 1]
        before = written
        for i in range(begin, end):
            if work.machine[i] != machine:
                work.slot_machine[written], work.slot_ranks[written] = work.machine[i], work.ranks[i]
                written += 1
                continue
            for _ in range(1 if one_for_one else max(1, work.ranks[i] // ranks)):
                if spare >= ranks:
                    work.slot_machine[written], work.slot_ranks[written] = machine, ranks
                    written += 1
                    spare -= ranks
        begin = end
        if written > before:
            kept += 1
            work.starts[kept] = written
    take_slots(work, kept, written)
    return True


@inner
def _is_degree(packed: SearchTables, job: int, ranks: int) -> bool:
    return bool(0 < ranks < packed.degree.shape[1] and packed.degree[job, ranks] == ranks)


@inner
def resplit(packed: SearchTables, work: Workspace, job: int) -> bool:
    """A slot becomes two neighbours, or two neighbours of one machine become one: a machine may be cut unevenly."""
    p, at = any_slot(work)
    return _resplit_at(packed, work, job, p, at, np.random.random())


@inner
def resplit_all(packed: SearchTables, work: Workspace, job: int) -> bool:
    """The same at the same stage of all pipelines that are as long."""
    p, at = any_slot(work)
    length, stage, draw = work.starts[p + 1] - work.starts[p], at - work.starts[p], np.random.random()
    for q in range(work.pipelines[0]):
        is_alike = work.starts[q + 1] - work.starts[q] == length
        if is_alike and not _resplit_at(packed, work, job, q, work.starts[q] + stage, draw):
            return False
    return True


@inner
def _resplit_at(packed: SearchTables, work: Workspace, job: int, p: int, at: int, draw: float) -> bool:
    """Slot `at` of pipeline p with the next one of its machine, or in two, where the number drawn says."""
    machine, ranks = work.machine[at], work.ranks[at]
    if at + 1 < work.starts[p + 1] and work.machine[at + 1] == machine:
        both = ranks + work.ranks[at + 1]
        if _is_degree(packed, job, both):
            drop(work, p, at, at + 1)
            work.ranks[at] = both
            return True
    if ranks < 2:
        return False
    part = packed.degree[job, 1 + int(draw * (ranks - 1))]
    if not (_is_degree(packed, job, part) and _is_degree(packed, job, ranks - part)):
        return False
    work.ranks[at] = ranks - part
    put(work, p, at, machine, part)
    return True


@inner
def change_twins(packed: SearchTables, work: Workspace, job: int) -> bool:
    """The pipeline at hand stands for one more or one fewer."""
    twins = work.twins[0] + (1 if np.random.random() < 0.5 else -1)
    if work.pipelines[0] != 1 or twins < 1:
        return False
    return _share_out(packed, work, job, twins)


@inner
def make_alike(packed: SearchTables, work: Workspace, job: int) -> bool:
    """All pipelines go the way of one of them: from then on they change together."""
    twins = work.twins[0] * work.pipelines[0] + work.aside[0]
    if work.pipelines[0] == 1 and work.aside[0] == 0:
        return False
    p, _ = any_slot(work)
    begin, slots = work.starts[p], work.starts[p + 1] - work.starts[p]
    for i in range(slots):
        work.machine[i], work.ranks[i] = work.machine[begin + i], work.ranks[begin + i]
    work.starts[1], work.pipelines[0], work.aside[0] = slots, 1, 0
    return _share_out(packed, work, job, twins)


@inner
def _share_out(packed: SearchTables, work: Workspace, job: int, twins: int) -> bool:
    """The one pipeline at hand stands for so many: its machines are shared out anew, every slot as wide as it can then
    be."""
    end, written = work.starts[1], 0
    for i in range(end):
        machine, before, slots = work.machine[i], 0, 0
        for k in range(end):
            if work.machine[k] == machine:
                slots += 1
                before += k < i
        gpus = own_gpus(packed, work, machine, twins)
        if before >= gpus:
            continue
        work.slot_machine[written] = machine
        work.slot_ranks[written] = packed.degree[job, gpus // min(slots, gpus)]
        written += 1
    if written == 0:
        return False
    work.starts[1], work.twins[0] = written, twins
    take_slots(work, 1, written)
    return True
