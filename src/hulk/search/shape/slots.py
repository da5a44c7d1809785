"""A job's pipelines at hand, compiled: finding slots in them, taking some out, putting some in. All work on `machine`,
`ranks` and `starts` of a workspace."""

from __future__ import annotations

import numpy as np

from hulk.cost.compiled import inner, lean
from hulk.search.tables import SearchTables
from hulk.search.workspace import Workspace


@lean
def drop(work: Workspace, p: int, begin: int, end: int) -> None:
    """Slots `begin` to `end` of pipeline p go; a pipeline without slots goes too."""
    pipelines = work.pipelines[0]
    count = end - begin
    for i in range(end, work.starts[pipelines]):
        work.machine[i - count], work.ranks[i - count] = work.machine[i], work.ranks[i]
    for q in range(p + 1, pipelines + 1):
        work.starts[q] -= count
    if work.starts[p] == work.starts[p + 1]:
        for q in range(p + 1, pipelines):
            work.starts[q] = work.starts[q + 1]
        work.pipelines[0] -= 1


@lean
def put(work: Workspace, p: int, at: int, machine: int, ranks: int) -> None:
    """A slot goes into pipeline p at a place counted over all pipelines; p may be one more than there are."""
    pipelines = work.pipelines[0]
    if p == pipelines:
        work.starts[p + 1] = work.starts[p]
        pipelines += 1
        work.pipelines[0] = pipelines
    for i in range(work.starts[pipelines], at, -1):
        work.machine[i], work.ranks[i] = work.machine[i - 1], work.ranks[i - 1]
    work.machine[at], work.ranks[at] = machine, ranks
    for q in range(p + 1, pipelines + 1):
        work.starts[q] += 1


@lean
def fold_twins(work: Workspace, p: int) -> None:
    """Where other pipelines are made of the same slots as p, p stands for all of them: what is done to it is done to
    each. It is then the only one at hand; those that are not like it are aside."""
    pipelines = work.pipelines[0]
    twins = 0
    for q in range(pipelines):
        twins += is_twin(work, p, q)
    if twins == 1:
        return
    aside, written = 0, 0
    for q in range(pipelines):
        if is_twin(work, p, q):
            continue
        for i in range(work.starts[q], work.starts[q + 1]):
            work.aside_machine[written], work.aside_ranks[written] = work.machine[i], work.ranks[i]
            written += 1
        aside += 1
        work.aside_starts[aside] = written
    begin, length = work.starts[p], work.starts[p + 1] - work.starts[p]
    for i in range(length):
        work.machine[i], work.ranks[i] = work.machine[begin + i], work.ranks[begin + i]
    work.starts[1] = length
    work.twins[0], work.pipelines[0], work.aside[0] = twins, 1, aside


@lean
def unfold_twins(work: Workspace) -> None:
    """Every pipeline at hand as often as it stands for one, and those that were aside; all are at hand again."""
    pipelines, twins = work.pipelines[0], work.twins[0]
    slots = work.starts[pipelines]
    for copy in range(1, twins):
        for i in range(slots):
            work.machine[copy * slots + i], work.ranks[copy * slots + i] = work.machine[i], work.ranks[i]
        for p in range(pipelines):
            work.starts[copy * pipelines + p + 1] = copy * slots + work.starts[p + 1]
    pipelines, slots = twins * pipelines, twins * slots
    for q in range(work.aside[0]):
        for i in range(work.aside_starts[q], work.aside_starts[q + 1]):
            work.machine[slots + i], work.ranks[slots + i] = work.aside_machine[i], work.aside_ranks[i]
        work.starts[pipelines + q + 1] = slots + work.aside_starts[q + 1]
    work.pipelines[0], work.twins[0], work.aside[0] = pipelines + work.aside[0], 1, 0


@inner
def is_twin(work: Workspace, p: int, q: int) -> bool:
    """Whether two pipelines are made of the same slots."""
    if not is_as_long(work, p, q):
        return False
    shift = work.starts[q] - work.starts[p]
    for i in range(work.starts[p], work.starts[p + 1]):
        if work.machine[i] != work.machine[i + shift] or work.ranks[i] != work.ranks[i + shift]:
            return False
    return True


@lean
def own_gpus(packed: SearchTables, work: Workspace, machine: int, twins: int) -> int:
    """GPUs of a machine that the pipelines at hand may have, where each of them stands for so many: as many are left
    for every other, and those aside keep theirs."""
    gpus = packed.gpus[machine]
    for i in range(work.aside_starts[work.aside[0]]):
        if work.aside_machine[i] == machine:
            gpus -= work.aside_ranks[i]
    return int(gpus // twins)


@inner
def any_slot(work: Workspace) -> tuple[int, int]:
    """(pipeline, slot), every pipeline as likely as the others."""
    p = np.random.randint(0, work.pipelines[0])
    return p, np.random.randint(work.starts[p], work.starts[p + 1])


@inner
def run_around(work: Workspace, p: int, at: int) -> tuple[int, int]:
    """Neighbouring slots of one machine: begin and end of the run that a slot is in."""
    machine, begin, end = work.machine[at], at, at + 1
    while begin > work.starts[p] and work.machine[begin - 1] == machine:
        begin -= 1
    while end < work.starts[p + 1] and work.machine[end] == machine:
        end += 1
    return begin, end


@inner
def region_around(packed: SearchTables, work: Workspace, p: int, at: int) -> tuple[int, int]:
    """Neighbouring slots of one region: begin and end of those that a slot is among."""
    region, begin, end = packed.region_of_machine[work.machine[at]], at, at + 1
    while begin > work.starts[p] and packed.region_of_machine[work.machine[begin - 1]] == region:
        begin -= 1
    while end < work.starts[p + 1] and packed.region_of_machine[work.machine[end]] == region:
        end += 1
    return begin, end


@lean
def nearest_position(packed: SearchTables, work: Workspace, p: int, machine: int) -> int:
    """Where a machine fits into pipeline p: beside the slot that is nearest, on the side that is nearer."""
    begin, end = work.starts[p], work.starts[p + 1]
    nearest, least = begin, np.inf
    for i in range(begin, end):
        way = _way(packed, work, i, machine)
        if way < least:
            nearest, least = i, way
    before = _way(packed, work, nearest - 1, machine) if nearest > begin else np.inf
    after = _way(packed, work, nearest + 1, machine) if nearest + 1 < end else np.inf
    return int(nearest if before < after else nearest + 1)


@inner
def _way(packed: SearchTables, work: Workspace, slot: int, machine: int) -> float:
    if work.machine[slot] == machine:
        return 0.0
    way: float = packed.latency[packed.place[work.machine[slot]], packed.place[machine]]
    return way


@inner
def is_as_long(work: Workspace, p: int, q: int) -> bool:
    """Whether two pipelines have as many stages, so that what is done to one can be done to the other."""
    return bool(work.starts[p + 1] - work.starts[p] == work.starts[q + 1] - work.starts[q])


@inner
def turn_round(work: Workspace, begin: int, end: int) -> None:
    """Slots `begin` to `end` the other way round."""
    low, high = begin, end - 1
    while low < high:
        work.machine[low], work.machine[high] = work.machine[high], work.machine[low]
        work.ranks[low], work.ranks[high] = work.ranks[high], work.ranks[low]
        low, high = low + 1, high - 1


@inner
def take_slots(work: Workspace, pipelines: int, written: int) -> None:
    """The pipelines are those that were laid out in `slot_machine` and `slot_ranks`."""
    work.pipelines[0] = pipelines
    for i in range(written):
        work.machine[i], work.ranks[i] = work.slot_machine[i], work.slot_ranks[i]
