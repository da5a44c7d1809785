"""Small changes to one job's pipelines, compiled. They work on the pipelines that lie on the work: `machine`, `ranks`
and `starts`, with a recipe's options. Each returns False where it does not apply; the work is then worth nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, kernel
from hulk.search.recipes import change_options
from hulk.search.shape.slots import (
    any_slot,
    drop,
    is_as_long,
    put,
    region_around,
    run_around,
    turn_round,
)
from hulk.search.shape.widths import change_twins, make_alike, reslice, resplit, resplit_all, use_idle_gpus
from hulk.search.tables import SearchTables
from hulk.search.workspace import Workspace

Ints = NDArray[np.int64]


# What may change, and how likely one is drawn beside the others.
MOVES = {
    "options": 3,
    "move slot": 1,
    "move run": 4,
    "drop slot": 1,
    "use idle GPUs": 1,
    "swap slots": 1,
    "swap runs": 3,
    "turn": 1,
    "reverse": 3,
    "reslice": 3,
    "resplit": 2,
    "split": 1,
    "merge": 1,
    "drop pipeline": 1,
    "move region": 2,
    "reverse all": 1,
    "resplit all": 1,
    "twins": 1,
    "alike": 1,
}
(
    _OPTIONS, _MOVE_SLOT, _MOVE_RUN, _DROP_SLOT, _USE_IDLE, _SWAP_SLOTS, _SWAP_RUNS, _TURN, _REVERSE, _RESLICE,
    _RESPLIT, _SPLIT, _MERGE, _DROP_PIPELINE, _MOVE_REGION, _REVERSE_ALL, _RESPLIT_ALL, _TWINS, _ALIKE,
) = range(len(MOVES))  # fmt: skip
_TWO_OPTIONS = 1 / 6  # of the changes to options are to two of them
_DRAWN = np.repeat(np.arange(len(MOVES)), list(MOVES.values()))
# Those that change where slots stand and how wide they are, and nothing else.
_IN_ORDER = {"move slot", "move run", "swap slots", "swap runs", "reverse", "resplit", "move region"}
_DRAWN_IN_ORDER = _DRAWN[np.isin(np.array(list(MOVES))[_DRAWN], sorted(_IN_ORDER))]


@kernel
def reshape(packed: SearchTables, work: Workspace, job: int, recipe: Ints, in_order: bool) -> bool:
    """One change drawn at random; `recipe` has the job's options and is changed in place. `in_order`: only where slots
    stand and how wide they are."""
    drawn = _DRAWN_IN_ORDER if in_order else _DRAWN
    kind = drawn[np.random.randint(0, len(drawn))]
    if work.pipelines[0] == 1 and kind in (_MERGE, _DROP_PIPELINE):  # nothing to do
        kind = _MOVE_RUN
    if kind == _OPTIONS:
        # Some values only pay beside another of another option.
        is_changed = change_options(packed, job, recipe)
        return is_changed and (np.random.random() >= _TWO_OPTIONS or change_options(packed, job, recipe))
    if kind == _MOVE_SLOT:
        return _move_slot(work)
    if kind == _MOVE_RUN:
        return _move_run(work)
    if kind == _DROP_SLOT:
        return _drop_slot(work)
    if kind == _USE_IDLE:
        return use_idle_gpus(packed, work, job)
    if kind == _SWAP_SLOTS:
        return _swap_slots(work)
    if kind == _SWAP_RUNS:
        return _swap_runs(work)
    if kind == _TURN:
        return _turn(work)
    if kind == _REVERSE:
        return _reverse(work, False)
    if kind == _RESLICE:
        return reslice(packed, work, job)
    if kind == _RESPLIT:
        return resplit(packed, work, job)
    if kind == _SPLIT:
        return _split(work)
    if kind == _MERGE:
        return _merge(work)
    if kind == _DROP_PIPELINE:
        return _drop_pipeline(work)
    if kind == _MOVE_REGION:
        return _move_region(packed, work)
    if kind == _REVERSE_ALL:
        return _reverse(work, True)
    if kind == _RESPLIT_ALL:
        return resplit_all(packed, work, job)
    if kind == _ALIKE:
        return make_alike(packed, work, job)
    return change_twins(packed, work, job)


@inner
def _move_slot(work: Workspace) -> bool:
    """A slot to another position, in any pipeline or in one of its own."""
    p, at = any_slot(work)
    machine, ranks = work.machine[at], work.ranks[at]
    drop(work, p, at, at + 1)
    pipelines = work.pipelines[0]
    if pipelines == 0:
        return False
    target = np.random.randint(0, pipelines + 1)
    to = work.starts[target]
    if target < pipelines:
        to = np.random.randint(to, work.starts[target + 1] + 1)
    put(work, target, to, machine, ranks)
    return True


@inner
def _move_run(work: Workspace) -> bool:
    """All neighbouring slots of a machine to another place between machines: a long pipeline keeps its few long
    hops."""
    p, at = any_slot(work)
    begin, end = run_around(work, p, at)
    machine, count = work.machine[at], end - begin
    for i in range(count):
        work.slot_ranks[i] = work.ranks[begin + i]
    drop(work, p, begin, end)
    if work.pipelines[0] == 0:
        return False
    target, place = any_slot(work)
    before, after = run_around(work, target, place)
    to = before if place == work.starts[target] and np.random.random() < 0.5 else after
    for i in range(count):
        put(work, target, to + i, machine, work.slot_ranks[i])
    return True


@inner
def _drop_slot(work: Workspace) -> bool:
    """A slot stays idle."""
    p, at = any_slot(work)
    drop(work, p, at, at + 1)
    return bool(work.pipelines[0] > 0)


@inner
def _swap_slots(work: Workspace) -> bool:
    """Two slots change places."""
    total = work.starts[work.pipelines[0]]
    i, j = np.random.randint(0, total), np.random.randint(0, total)
    if work.machine[i] == work.machine[j] and work.ranks[i] == work.ranks[j]:
        return False
    work.machine[i], work.machine[j] = work.machine[j], work.machine[i]
    work.ranks[i], work.ranks[j] = work.ranks[j], work.ranks[i]
    return True


@inner
def _swap_runs(work: Workspace) -> bool:
    """Two machines' runs change places."""
    p, one = any_slot(work)
    q, two = any_slot(work)
    a, b = run_around(work, p, one)
    c, d = run_around(work, q, two)
    if a == c:
        return False
    if a > c:
        a, b, c, d = c, d, a, b
    written = 0
    for begin, end in ((c, d), (b, c), (a, b)):
        for i in range(begin, end):
            work.slot_machine[written], work.slot_ranks[written] = work.machine[i], work.ranks[i]
            written += 1
    for i in range(written):
        work.machine[a + i], work.ranks[a + i] = work.slot_machine[i], work.slot_ranks[i]
    shift = (d - c) - (b - a)
    for k in range(work.pipelines[0] + 1):
        if b <= work.starts[k] <= c:
            work.starts[k] += shift
    return True


@inner
def _turn(work: Workspace) -> bool:
    """One end of a pipeline becomes the other: both ends of a model that shares its embedding like to be on one
    machine."""
    p, _ = any_slot(work)
    begin, end = work.starts[p], work.starts[p + 1]
    if end - begin < 3:
        return False
    source, target = (begin, end - 1) if np.random.random() < 0.5 else (end - 1, begin)
    machine, ranks = work.machine[source], work.ranks[source]
    step = 1 if target > source else -1
    for i in range(source, target, step):
        work.machine[i], work.ranks[i] = work.machine[i + step], work.ranks[i + step]
    work.machine[target], work.ranks[target] = machine, ranks
    return True


@inner
def _reverse(work: Workspace, everywhere: bool) -> bool:
    """Part of a pipeline the other way round; or of all that are as long."""
    p, i = any_slot(work)
    j = np.random.randint(work.starts[p], work.starts[p + 1])
    if i == j:
        return False
    begin, end = min(i, j) - work.starts[p], max(i, j) + 1 - work.starts[p]
    for q in range(work.pipelines[0]):
        if q == p or (everywhere and is_as_long(work, p, q)):
            turn_round(work, work.starts[q] + begin, work.starts[q] + end)
    return True


@inner
def _move_region(packed: SearchTables, work: Workspace) -> bool:
    """A region's or a machine's slots to the edge of another region's, in all pipelines that are as long: those that go
    the same way go on doing so."""
    p, at = any_slot(work)
    begin, end = region_around(packed, work, p, at) if np.random.random() < 0.5 else run_around(work, p, at)
    other = np.random.randint(work.starts[p], work.starts[p + 1])
    before, after = region_around(packed, work, p, other)
    to = before if np.random.random() < 0.5 else after
    if begin <= to <= end:
        return False
    low, middle, high = (to, begin, end) if to < begin else (begin, end, to)
    for q in range(work.pipelines[0]):
        if q == p or is_as_long(work, p, q):
            shift = work.starts[q] - work.starts[p]
            # Two neighbouring parts change places: each is turned round, then both together.
            turn_round(work, low + shift, middle + shift)
            turn_round(work, middle + shift, high + shift)
            turn_round(work, low + shift, high + shift)
    return True


@inner
def _split(work: Workspace) -> bool:
    """A pipeline becomes two: cut somewhere, or every other slot."""
    p, at = any_slot(work)
    begin, end = work.starts[p], work.starts[p + 1]
    if end - begin < 2:
        return False
    where = max(begin + 1, at)
    if np.random.random() < 0.5:
        written = 0
        for first in (begin, begin + 1):
            for i in range(first, end, 2):
                work.slot_machine[written], work.slot_ranks[written] = work.machine[i], work.ranks[i]
                written += 1
        for i in range(written):
            work.machine[begin + i], work.ranks[begin + i] = work.slot_machine[i], work.slot_ranks[i]
        where = begin + (end - begin + 1) // 2
    for q in range(work.pipelines[0], p, -1):
        work.starts[q + 1] = work.starts[q]
    work.starts[p + 1] = where
    work.pipelines[0] += 1
    return True


@inner
def _merge(work: Workspace) -> bool:
    """Two pipelines become one."""
    pipelines = work.pipelines[0]
    if pipelines < 2:
        return False
    one, two = np.random.randint(0, pipelines), np.random.randint(0, pipelines)
    if one == two:
        return False
    begin, count = work.starts[two], work.starts[two + 1] - work.starts[two]
    for i in range(count):
        work.slot_machine[i], work.slot_ranks[i] = work.machine[begin + i], work.ranks[begin + i]
    drop(work, two, begin, begin + count)
    target = one - 1 if one > two else one
    for i in range(count):
        put(work, target, work.starts[target + 1], work.slot_machine[i], work.slot_ranks[i])
    return True


@inner
def _drop_pipeline(work: Workspace) -> bool:
    """A replica less."""
    if work.pipelines[0] < 2:
        return False
    p = np.random.randint(0, work.pipelines[0])
    drop(work, p, work.starts[p], work.starts[p + 1])
    return True
