"""Small changes to one job's pipelines, compiled. They work on the pipelines that lie on the bench: `machine`, `ranks`
and `starts`, with a recipe's switches. Each returns False where it does not apply; the bench is then worth nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, kernel, lean
from hulk.search.packed import Packed
from hulk.search.recipes import BY_REGION, EXTRA, EXTRAS, GPIPE, SHARD, VARIANT, Bench

Ints = NDArray[np.int64]


# What may change, and how likely one is drawn beside the others.
MOVES = {
    "switch": 3,
    "move slot": 1,
    "move run": 2,
    "drop slot": 1,
    "use idle GPUs": 1,
    "swap slots": 1,
    "swap runs": 2,
    "turn": 1,
    "reverse": 1,
    "reslice": 2,
    "resplit": 2,
    "split": 1,
    "merge": 1,
    "drop pipeline": 1,
    "move region": 2,
    "reverse all": 1,
    "resplit all": 1,
}
(
    _SWITCH, _MOVE_SLOT, _MOVE_RUN, _DROP_SLOT, _USE_IDLE, _SWAP_SLOTS, _SWAP_RUNS, _TURN, _REVERSE, _RESLICE, _RESPLIT,
    _SPLIT, _MERGE, _DROP_PIPELINE, _MOVE_REGION, _REVERSE_ALL, _RESPLIT_ALL,
) = range(len(MOVES))  # fmt: skip
_DRAWN = np.repeat(np.arange(len(MOVES)), list(MOVES.values()))


@kernel
def reshape(packed: Packed, bench: Bench, job: int, recipe: Ints) -> bool:
    """One change drawn at random; `recipe` has the job's switches and is changed in place."""
    kind = _DRAWN[np.random.randint(0, len(_DRAWN))]
    if kind == _SWITCH:
        return _change_switches(packed, job, recipe)
    if kind == _MOVE_SLOT:
        return _move_slot(bench)
    if kind == _MOVE_RUN:
        return _move_run(bench)
    if kind == _DROP_SLOT:
        return _drop_slot(bench)
    if kind == _USE_IDLE:
        return _use_idle_gpus(packed, bench, job)
    if kind == _SWAP_SLOTS:
        return _swap_slots(bench)
    if kind == _SWAP_RUNS:
        return _swap_runs(bench)
    if kind == _TURN:
        return _turn(bench)
    if kind == _REVERSE:
        return _reverse(bench, False)
    if kind == _RESLICE:
        return _reslice(packed, bench, job)
    if kind == _RESPLIT:
        return _resplit(packed, bench, job)
    if kind == _SPLIT:
        return _split(bench)
    if kind == _MERGE:
        return _merge(bench)
    if kind == _DROP_PIPELINE:
        return _drop_pipeline(bench)
    if kind == _MOVE_REGION:
        return _move_region(packed, bench)
    if kind == _REVERSE_ALL:
        return _reverse(bench, True)
    return _resplit_all(packed, bench, job)


@lean
def drop(bench: Bench, p: int, begin: int, end: int) -> None:
    """Slots `begin` to `end` of pipeline p go; a pipeline without slots goes too."""
    pipelines = bench.pipelines[0]
    count = end - begin
    for i in range(end, bench.starts[pipelines]):
        bench.machine[i - count], bench.ranks[i - count] = bench.machine[i], bench.ranks[i]
    for q in range(p + 1, pipelines + 1):
        bench.starts[q] -= count
    if bench.starts[p] == bench.starts[p + 1]:
        for q in range(p + 1, pipelines):
            bench.starts[q] = bench.starts[q + 1]
        bench.pipelines[0] -= 1


@lean
def put(bench: Bench, p: int, at: int, machine: int, ranks: int) -> None:
    """A slot goes into pipeline p at a place counted over all pipelines; p may be one more than there are."""
    pipelines = bench.pipelines[0]
    if p == pipelines:
        bench.starts[p + 1] = bench.starts[p]
        pipelines += 1
        bench.pipelines[0] = pipelines
    for i in range(bench.starts[pipelines], at, -1):
        bench.machine[i], bench.ranks[i] = bench.machine[i - 1], bench.ranks[i - 1]
    bench.machine[at], bench.ranks[at] = machine, ranks
    for q in range(p + 1, pipelines + 1):
        bench.starts[q] += 1


@inner
def _any_slot(bench: Bench) -> tuple[int, int]:
    """(pipeline, slot), every pipeline as likely as the others."""
    p = np.random.randint(0, bench.pipelines[0])
    return p, np.random.randint(bench.starts[p], bench.starts[p + 1])


@inner
def _run_around(bench: Bench, p: int, at: int) -> tuple[int, int]:
    """Neighbouring slots of one machine: begin and end of the run that a slot is in."""
    machine, begin, end = bench.machine[at], at, at + 1
    while begin > bench.starts[p] and bench.machine[begin - 1] == machine:
        begin -= 1
    while end < bench.starts[p + 1] and bench.machine[end] == machine:
        end += 1
    return begin, end


@inner
def _move_slot(bench: Bench) -> bool:
    """A slot to another position, in any pipeline or in one of its own."""
    p, at = _any_slot(bench)
    machine, ranks = bench.machine[at], bench.ranks[at]
    drop(bench, p, at, at + 1)
    pipelines = bench.pipelines[0]
    if pipelines == 0:
        return False
    target = np.random.randint(0, pipelines + 1)
    to = bench.starts[target]
    if target < pipelines:
        to = np.random.randint(to, bench.starts[target + 1] + 1)
    put(bench, target, to, machine, ranks)
    return True


@inner
def _move_run(bench: Bench) -> bool:
    """All neighbouring slots of a machine to another place between machines: a long pipeline keeps its few long
    hops."""
    p, at = _any_slot(bench)
    begin, end = _run_around(bench, p, at)
    machine, count = bench.machine[at], end - begin
    for i in range(count):
        bench.slot_ranks[i] = bench.ranks[begin + i]
    drop(bench, p, begin, end)
    if bench.pipelines[0] == 0:
        return False
    target, place = _any_slot(bench)
    before, after = _run_around(bench, target, place)
    to = before if place == bench.starts[target] and np.random.random() < 0.5 else after
    for i in range(count):
        put(bench, target, to + i, machine, bench.slot_ranks[i])
    return True


@inner
def _drop_slot(bench: Bench) -> bool:
    """A slot stays idle."""
    p, at = _any_slot(bench)
    drop(bench, p, at, at + 1)
    return bool(bench.pipelines[0] > 0)


@inner
def _use_idle_gpus(packed: Packed, bench: Bench, job: int) -> bool:
    """Idle GPUs of a machine in use get a slot, in a pipeline or as one."""
    _, at = _any_slot(bench)
    machine = bench.machine[at]
    spare = packed.gpus[machine]
    for i in range(bench.starts[bench.pipelines[0]]):
        if bench.machine[i] == machine:
            spare -= bench.ranks[i]
    if spare < 1 or packed.degree[job, spare] < 1:
        return False
    ranks = packed.degree[job, np.random.randint(1, spare + 1)]
    if ranks < 1:
        return False
    target = np.random.randint(0, bench.pipelines[0] + 1)
    to = bench.starts[target] if target == bench.pipelines[0] else nearest_position(packed, bench, target, machine)
    put(bench, target, to, machine, ranks)
    return True


@lean
def nearest_position(packed: Packed, bench: Bench, p: int, machine: int) -> int:
    """Where a machine fits into pipeline p: beside the slot that is nearest, on the side that is nearer."""
    begin, end = bench.starts[p], bench.starts[p + 1]
    nearest, least = begin, np.inf
    for i in range(begin, end):
        way = _way(packed, bench, i, machine)
        if way < least:
            nearest, least = i, way
    before = _way(packed, bench, nearest - 1, machine) if nearest > begin else np.inf
    after = _way(packed, bench, nearest + 1, machine) if nearest + 1 < end else np.inf
    return int(nearest if before < after else nearest + 1)


@inner
def _way(packed: Packed, bench: Bench, slot: int, machine: int) -> float:
    if bench.machine[slot] == machine:
        return 0.0
    way: float = packed.latency[packed.place[bench.machine[slot]], packed.place[machine]]
    return way


@inner
def _swap_slots(bench: Bench) -> bool:
    """Two slots change places."""
    total = bench.starts[bench.pipelines[0]]
    i, j = np.random.randint(0, total), np.random.randint(0, total)
    if bench.machine[i] == bench.machine[j] and bench.ranks[i] == bench.ranks[j]:
        return False
    bench.machine[i], bench.machine[j] = bench.machine[j], bench.machine[i]
    bench.ranks[i], bench.ranks[j] = bench.ranks[j], bench.ranks[i]
    return True


@inner
def _swap_runs(bench: Bench) -> bool:
    """Two machines' runs change places."""
    p, one = _any_slot(bench)
    q, two = _any_slot(bench)
    a, b = _run_around(bench, p, one)
    c, d = _run_around(bench, q, two)
    if a == c:
        return False
    if a > c:
        a, b, c, d = c, d, a, b
    written = 0
    for begin, end in ((c, d), (b, c), (a, b)):
        for i in range(begin, end):
            bench.slot_machine[written], bench.slot_ranks[written] = bench.machine[i], bench.ranks[i]
            written += 1
    for i in range(written):
        bench.machine[a + i], bench.ranks[a + i] = bench.slot_machine[i], bench.slot_ranks[i]
    shift = (d - c) - (b - a)
    for k in range(bench.pipelines[0] + 1):
        if b <= bench.starts[k] <= c:
            bench.starts[k] += shift
    return True


@inner
def _turn(bench: Bench) -> bool:
    """One end of a pipeline becomes the other: both ends of a model that shares its embedding like to be on one
    machine."""
    p, _ = _any_slot(bench)
    begin, end = bench.starts[p], bench.starts[p + 1]
    if end - begin < 3:
        return False
    source, target = (begin, end - 1) if np.random.random() < 0.5 else (end - 1, begin)
    machine, ranks = bench.machine[source], bench.ranks[source]
    step = 1 if target > source else -1
    for i in range(source, target, step):
        bench.machine[i], bench.ranks[i] = bench.machine[i + step], bench.ranks[i + step]
    bench.machine[target], bench.ranks[target] = machine, ranks
    return True


@inner
def _is_as_long(bench: Bench, p: int, q: int) -> bool:
    """Whether two pipelines have as many stages, so that what is done to one can be done to the other."""
    return bool(bench.starts[p + 1] - bench.starts[p] == bench.starts[q + 1] - bench.starts[q])


@inner
def _turn_round(bench: Bench, begin: int, end: int) -> None:
    """Slots `begin` to `end` the other way round."""
    low, high = begin, end - 1
    while low < high:
        bench.machine[low], bench.machine[high] = bench.machine[high], bench.machine[low]
        bench.ranks[low], bench.ranks[high] = bench.ranks[high], bench.ranks[low]
        low, high = low + 1, high - 1


@inner
def _reverse(bench: Bench, everywhere: bool) -> bool:
    """Part of a pipeline the other way round; or of all that are as long."""
    p, i = _any_slot(bench)
    j = np.random.randint(bench.starts[p], bench.starts[p + 1])
    if i == j:
        return False
    begin, end = min(i, j) - bench.starts[p], max(i, j) + 1 - bench.starts[p]
    for q in range(bench.pipelines[0]):
        if q == p or (everywhere and _is_as_long(bench, p, q)):
            _turn_round(bench, bench.starts[q] + begin, bench.starts[q] + end)
    return True


@inner
def _region_around(packed: Packed, bench: Bench, p: int, at: int) -> tuple[int, int]:
    """Neighbouring slots of one region: begin and end of those that a slot is among."""
    region, begin, end = packed.region_of_machine[bench.machine[at]], at, at + 1
    while begin > bench.starts[p] and packed.region_of_machine[bench.machine[begin - 1]] == region:
        begin -= 1
    while end < bench.starts[p + 1] and packed.region_of_machine[bench.machine[end]] == region:
        end += 1
    return begin, end


@inner
def _move_region(packed: Packed, bench: Bench) -> bool:
    """A region's or a machine's slots to the edge of another region's, in all pipelines that are as long: those that go
    the same way go on doing so."""
    p, at = _any_slot(bench)
    begin, end = _region_around(packed, bench, p, at) if np.random.random() < 0.5 else _run_around(bench, p, at)
    other = np.random.randint(bench.starts[p], bench.starts[p + 1])
    before, after = _region_around(packed, bench, p, other)
    to = before if np.random.random() < 0.5 else after
    if begin <= to <= end:
        return False
    low, middle, high = (to, begin, end) if to < begin else (begin, end, to)
    for q in range(bench.pipelines[0]):
        if q == p or _is_as_long(bench, p, q):
            shift = bench.starts[q] - bench.starts[p]
            # Two neighbouring parts change places: each is turned round, then both together.
            _turn_round(bench, low + shift, middle + shift)
            _turn_round(bench, middle + shift, high + shift)
            _turn_round(bench, low + shift, high + shift)
    return True


@inner
def _reslice(packed: Packed, bench: Bench, job: int) -> bool:
    """A machine's slots get another tensor parallel degree; what it held goes on in the same places."""
    _, at = _any_slot(bench)
    machine = bench.machine[at]
    spare = packed.gpus[machine]
    ranks = packed.degree[job, np.random.randint(1, spare + 1)]
    one_for_one = np.random.random() < 0.5
    pipelines, kept, written, begin = bench.pipelines[0], 0, 0, 0
    for p in range(pipelines):
        end = bench.starts[p + 1]
        before = written
        for i in range(begin, end):
            if bench.machine[i] != machine:
                bench.slot_machine[written], bench.slot_ranks[written] = bench.machine[i], bench.ranks[i]
                written += 1
                continue
            for _ in range(1 if one_for_one else max(1, bench.ranks[i] // ranks)):
                if spare >= ranks:
                    bench.slot_machine[written], bench.slot_ranks[written] = machine, ranks
                    written += 1
                    spare -= ranks
        begin = end
        if written > before:
            kept += 1
            bench.starts[kept] = written
    _take_slots(bench, kept, written)
    return True


@inner
def _take_slots(bench: Bench, pipelines: int, written: int) -> None:
    """The pipelines are those that were laid out in `slot_machine` and `slot_ranks`."""
    bench.pipelines[0] = pipelines
    for i in range(written):
        bench.machine[i], bench.ranks[i] = bench.slot_machine[i], bench.slot_ranks[i]


@inner
def _is_degree(packed: Packed, job: int, ranks: int) -> bool:
    return bool(0 < ranks < packed.degree.shape[1] and packed.degree[job, ranks] == ranks)


@inner
def _resplit(packed: Packed, bench: Bench, job: int) -> bool:
    """A slot becomes two neighbours, or two neighbours of one machine become one: a machine may be cut unevenly."""
    p, at = _any_slot(bench)
    return _resplit_at(packed, bench, job, p, at, np.random.random())


@inner
def _resplit_all(packed: Packed, bench: Bench, job: int) -> bool:
    """The same at the same stage of all pipelines that are as long."""
    p, at = _any_slot(bench)
    length, stage, draw = bench.starts[p + 1] - bench.starts[p], at - bench.starts[p], np.random.random()
    for q in range(bench.pipelines[0]):
        is_alike = bench.starts[q + 1] - bench.starts[q] == length
        if is_alike and not _resplit_at(packed, bench, job, q, bench.starts[q] + stage, draw):
            return False
    return True


@inner
def _resplit_at(packed: Packed, bench: Bench, job: int, p: int, at: int, draw: float) -> bool:
    """Slot `at` of pipeline p with the next one of its machine, or in two, where the number drawn says."""
    machine, ranks = bench.machine[at], bench.ranks[at]
    if at + 1 < bench.starts[p + 1] and bench.machine[at + 1] == machine:
        both = ranks + bench.ranks[at + 1]
        if _is_degree(packed, job, both):
            drop(bench, p, at, at + 1)
            bench.ranks[at] = both
            return True
    if ranks < 2:
        return False
    part = packed.degree[job, 1 + int(draw * (ranks - 1))]
    if not (_is_degree(packed, job, part) and _is_degree(packed, job, ranks - part)):
        return False
    bench.ranks[at] = ranks - part
    put(bench, p, at, machine, part)
    return True


@inner
def _split(bench: Bench) -> bool:
    """A pipeline becomes two: cut somewhere, or every other slot."""
    p, at = _any_slot(bench)
    begin, end = bench.starts[p], bench.starts[p + 1]
    if end - begin < 2:
        return False
    where = max(begin + 1, at)
    if np.random.random() < 0.5:
        written = 0
        for first in (begin, begin + 1):
            for i in range(first, end, 2):
                bench.slot_machine[written], bench.slot_ranks[written] = bench.machine[i], bench.ranks[i]
                written += 1
        for i in range(written):
            bench.machine[begin + i], bench.ranks[begin + i] = bench.slot_machine[i], bench.slot_ranks[i]
        where = begin + (end - begin + 1) // 2
    for q in range(bench.pipelines[0], p, -1):
        bench.starts[q + 1] = bench.starts[q]
    bench.starts[p + 1] = where
    bench.pipelines[0] += 1
    return True


@inner
def _merge(bench: Bench) -> bool:
    """Two pipelines become one."""
    pipelines = bench.pipelines[0]
    if pipelines < 2:
        return False
    one, two = np.random.randint(0, pipelines), np.random.randint(0, pipelines)
    if one == two:
        return False
    begin, count = bench.starts[two], bench.starts[two + 1] - bench.starts[two]
    for i in range(count):
        bench.slot_machine[i], bench.slot_ranks[i] = bench.machine[begin + i], bench.ranks[begin + i]
    drop(bench, two, begin, begin + count)
    target = one - 1 if one > two else one
    for i in range(count):
        put(bench, target, bench.starts[target + 1], bench.slot_machine[i], bench.slot_ranks[i])
    return True


@inner
def _drop_pipeline(bench: Bench) -> bool:
    """A replica less."""
    if bench.pipelines[0] < 2:
        return False
    p = np.random.randint(0, bench.pipelines[0])
    drop(bench, p, bench.starts[p], bench.starts[p + 1])
    return True


@inner
def _change_switches(packed: Packed, job: int, recipe: Ints) -> bool:
    """One switch, or the microbatch with one."""
    which = np.random.randint(0, 6)
    if which in (0, 5):
        steps = (-2, -1, 1, 2)
        size = recipe[VARIANT] // 2 + steps[np.random.randint(0, 4)]
        if not 0 <= size < packed.sizes.shape[1] or packed.sizes[job, size] == 0:
            return False
        recipe[VARIANT] = 2 * size + recipe[VARIANT] % 2
    if which in (1, 5):
        recipe[VARIANT] ^= 1
    if which == 2:
        recipe[EXTRA] = EXTRAS[np.random.randint(0, len(EXTRAS))]
        recipe[GPIPE] = 1 if np.random.random() < 0.1 else 0
    if which == 3:
        recipe[BY_REGION] = 1 - recipe[BY_REGION]
    if which == 4:
        recipe[SHARD] = 1 - recipe[SHARD]
    return True
