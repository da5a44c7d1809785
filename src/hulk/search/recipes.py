"""From a group to priced pipelines, compiled, by a recipe: a few numbers that make pipelines of any group.

A recipe that served a job on one group can be tried on the next, which makes a change of groups as cheap as a price.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Durations, Encoded
from hulk.cost.compiled import inlined, inner, kernel, lean, maker
from hulk.cost.tables import empty_durations
from hulk.search.fit import fit
from hulk.search.memo import Memo, empty_memo, key_of, note, recall
from hulk.search.packed import Packed, tables_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A recipe's columns. LENGTH: stages of a pipeline, aimed at; VARIANT: 2 × which microbatch size + recomputation.
# SLOW_DEGREE: tensor parallel on machines whose GPUs are slower than the group's fastest. REVERSED: pipelines run from
# the end of the tour to its begin. START: how many places are stronger than the one where the tour begins.
# MIX: how places at the same distance, those of one region mostly, follow each other. TOUR: which distance is meant, or
# PATH: the one way through all places.
COLUMNS = 14
DEGREE, LENGTH, WAY, FOLDED, VARIANT, EXTRA, GPIPE, BY_REGION, SHARD, SLOW_DEGREE, REVERSED = range(11)
START, MIX, TOUR = range(11, COLUMNS)
TOURS, PATH = 4, 3
# WAY: neighbours along a tour in one pipeline; in different ones at the same stage; blocks that end with a region; all
# machines in all pipelines alike.
WAYS = 4
BLOCKS, STRIPES, REGIONS, TWINS = range(WAYS)
LENGTHS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
PIPELINES = np.array([1, 2, 3, 4, 6, 8])
EXTRAS = np.array([0, 1, 2, 4, 8, 12, 16, 24, 32])
BUCKETS = 48
NOTHING = -1e12  # seconds of a step of a job that has no machines: further from running than any that has some
SAMPLES, FEW_SAMPLES = 24, 6
_SHARED = 3.0  # times as many replicas as hold all their state themselves may fit where they share the optimizer's
_MOST_TWINS = 8
_TIGHT = 6.0  # replicas of its state that a group's memory would hold: with fewer, memory decides what fits


class Bench(NamedTuple):
    """Arrays to work in. N: GPUs of the cluster."""

    slot_machine: Ints
    slot_ranks: Ints
    order: Ints  # places along a tour
    power: Floats  # [P]
    starts: Ints
    machine: Ints
    place: Ints
    kind: Ints
    ranks: Ints
    first: Ints
    last: Ints
    microbatches: Ints
    warmup: Ints
    scratch: Floats
    out: Durations
    pipelines: Ints  # [1] how many the last skeleton has
    memo: Memo


class Learned(NamedTuple):
    """What a search has seen so far and goes by. Sums along rows, to draw from; all zero where nothing is known yet."""

    served: Ints  # [J, BUCKETS, COLUMNS] the recipe that served a job last on groups of about a size
    takers: Floats  # [P, J + 1] sums over who has a place's machines in good deals; the last is nobody
    homes: Floats  # [J, P] sums over where a job's machines are in good deals


def nothing_learned(packed: Packed) -> Learned:
    """As a search begins."""
    jobs, places = len(packed.need), packed.latency.shape[0]
    served = np.zeros((jobs, BUCKETS, COLUMNS), np.int64)
    return Learned(served, np.zeros((places, jobs + 1)), np.zeros((jobs, places)))


def make_bench(packed: Packed) -> Bench:
    """Room for the largest group there can be."""
    slots = int(packed.gpus.sum())

    def ints(n: int = slots) -> Ints:
        return np.zeros(n, np.int64)

    places = packed.latency.shape[0]
    return Bench(
        slot_machine=ints(),
        slot_ranks=ints(),
        order=ints(places),
        power=np.zeros(places),
        starts=ints(slots + 2),
        machine=ints(),
        place=ints(),
        kind=ints(),
        ranks=ints(),
        first=ints(),
        last=ints(),
        microbatches=ints(),
        warmup=ints(),
        scratch=np.zeros(2 * slots),
        out=empty_durations(slots),
        pipelines=ints(1),
        memo=empty_memo(len(packed.gpus)),
    )


@inner
def _go_along(packed: Packed, bench: Bench, count: int) -> None:
    """The places in the order of the path."""
    order = bench.order
    for i in range(1, count):
        place, k = order[i], i
        while k > 0 and packed.path[order[k - 1]] > packed.path[place]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = place


@inner
def _go_near(packed: Packed, bench: Bench, count: int, recipe: Ints) -> None:
    """The places from a strong one always on to the nearest."""
    for i in range(recipe[START] % count + 1):  # the strongest, the next strongest, … to the front
        strongest = i
        for k in range(i + 1, count):
            if bench.power[bench.order[k]] > bench.power[bench.order[strongest]]:
                strongest = k
        bench.order[i], bench.order[strongest] = bench.order[strongest], bench.order[i]
    first = recipe[START] % count
    bench.order[0], bench.order[first] = bench.order[first], bench.order[0]
    distance = packed.tours[recipe[TOUR]]
    for i in range(1, count - 1):
        nearest, least, rank = i, np.inf, 0
        for k in range(i, count):
            way = distance[bench.order[i - 1], bench.order[k]]
            mixed = (bench.order[k] + 1) * (2 * recipe[MIX] + 1) * 40503 % 65536
            if way < least or (way == least and mixed < rank):
                nearest, least, rank = k, way, mixed
        bench.order[i], bench.order[nearest] = bench.order[nearest], bench.order[i]


@inner
def _lay_slots(packed: Packed, bench: Bench, job: int, owner: Ints, recipe: Ints) -> int:
    """The job's GPUs as slots along a tour. Returns how many."""
    places, count = packed.latency.shape[0], 0
    fastest = 0.0
    for p in range(places):
        power = 0.0
        for i in range(packed.first_member[p], packed.first_member[p + 1]):
            m = packed.members[i]
            if owner[m] == job:
                power += packed.rate[job, m]
                fastest = max(fastest, packed.rate[job, m] / packed.gpus[m])
        bench.power[p] = power
        if power > 0:
            bench.order[count] = p
            count += 1
    if count == 0:
        return 0
    if recipe[TOUR] == PATH:
        _go_along(packed, bench, count)
    else:
        _go_near(packed, bench, count, recipe)
    slots = 0
    for i in range(count):
        p = bench.order[i]
        for k in range(packed.first_member[p], packed.first_member[p + 1]):
            m = packed.members[k]
            if owner[m] == job:
                slow = packed.rate[job, m] / packed.gpus[m] < 0.8 * fastest
                ranks = packed.degree[job, min(recipe[SLOW_DEGREE if slow else DEGREE], packed.gpus[m])]
                for _ in range(packed.gpus[m] // ranks):
                    bench.slot_machine[slots] = m
                    bench.slot_ranks[slots] = ranks
                    slots += 1
    return slots


@inner
def _fold(bench: Bench, begin: int, end: int) -> None:
    """Both ends of a pipeline on one machine, where one has two slots in it."""
    if end - begin < 3:
        return
    for i in range(begin, end):
        machine, last = bench.machine[i], -1
        for k in range(end - 1, i, -1):
            if bench.machine[k] == machine:
                last = k
                break
        if last < 0:
            continue
        ranks, other = bench.ranks[i], bench.ranks[last]
        for k in range(last, end - 1):
            bench.machine[k], bench.ranks[k] = bench.machine[k + 1], bench.ranks[k + 1]
        bench.machine[end - 1], bench.ranks[end - 1] = machine, other
        for k in range(i, begin, -1):
            bench.machine[k], bench.ranks[k] = bench.machine[k - 1], bench.ranks[k - 1]
        bench.machine[begin], bench.ranks[begin] = machine, ranks
        return


@maker
def _end_pipeline(bench: Bench, p: int, written: int, recipe: Ints) -> None:
    """The pipeline just written the way the recipe wants its ends."""
    begin = bench.starts[p]
    if recipe[FOLDED] == 1:
        _fold(bench, begin, written)
    if recipe[REVERSED] == 1:
        bench.machine[begin:written] = bench.machine[begin:written][::-1].copy()
        bench.ranks[begin:written] = bench.ranks[begin:written][::-1].copy()


@inner
def _serves_twins(packed: Packed, job: int, machine: int, count: int, power: float) -> bool:
    """Whether a machine's part is of use to each of so many pipelines: it holds a layer, the optimizer's state shared
    by all of them, and is fast enough for a good part of one. `power`: FLOP/s of the whole group."""
    layers, gpus = packed.layers[job], packed.gpus[machine]
    state, optimizer = packed.scalars[job, 0], packed.scalars[job, 1]
    need = packed.need[job] / layers * (state + optimizer / count) / (state + optimizer)
    part = gpus // count if count <= gpus else gpus
    return bool(packed.room[machine] / gpus * part >= need and layers * packed.rate[job, machine] >= 0.5 * power)


@maker
def _shape_twins(packed: Packed, bench: Bench, job: int, slots: int, recipe: Ints) -> bool:
    """Pipelines that go the same way, each with its part of every machine that is of use; machines with fewer GPUs than
    there are pipelines are dealt out one by one. `slots` lie on the bench, those of a machine side by side."""
    written, pipelines = 0, 0
    power, gpus, last = 0.0, 0, -1
    for i in range(slots):
        if bench.slot_machine[i] != last:
            last = bench.slot_machine[i]
            power += packed.rate[job, last]
            gpus += packed.gpus[last]
    count = max(1, int(gpus / (recipe[LENGTH] * recipe[DEGREE]) + 0.5))
    for p in range(count):
        bench.starts[pipelines] = written
        single, i = 0, 0
        while i < slots:
            machine, ranks = bench.slot_machine[i], bench.slot_ranks[i]
            while i < slots and bench.slot_machine[i] == machine:
                i += 1
            if count > 1 and not _serves_twins(packed, job, machine, count, power):
                continue
            own = packed.gpus[machine] // count
            if own > 0:
                ranks = packed.degree[job, min(ranks, own)]
                repeats = own // ranks
            else:
                repeats = packed.gpus[machine] // ranks if single % count == p else 0
                single += 1
            for _ in range(repeats):
                bench.machine[written], bench.ranks[written] = machine, ranks
                written += 1
        if written > bench.starts[pipelines]:
            _end_pipeline(bench, pipelines, written, recipe)
            pipelines += 1
    bench.starts[pipelines] = written
    bench.pipelines[0] = pipelines
    return written > 0


@kernel
def shape(packed: Packed, bench: Bench, job: int, owner: Ints, recipe: Ints) -> bool:
    """Make the job's pipelines: `machine`, `ranks` and `starts` of the bench. False where it has no machines."""
    slots = _lay_slots(packed, bench, job, owner, recipe)
    layers, length = packed.layers[job], recipe[LENGTH]
    if recipe[WAY] == TWINS:
        return _shape_twins(packed, bench, job, slots, recipe)
    pipelines, written, begin = 0, 0, 0
    while begin < slots:
        end = slots
        if recipe[WAY] == REGIONS:
            end = begin + 1
            while end < slots:
                same = packed.region_of_machine[bench.slot_machine[end]]
                if packed.region_of_machine[bench.slot_machine[end - 1]] != same and 2 * (end - begin) > length:
                    break
                end += 1
        size = end - begin
        count = max(1, -(-size // layers), int(size / length + 0.5))
        for i in range(count):
            bench.starts[pipelines] = written
            if recipe[WAY] == STRIPES:
                for k in range(begin + i, end, count):
                    bench.machine[written], bench.ranks[written] = bench.slot_machine[k], bench.slot_ranks[k]
                    written += 1
            else:
                for k in range(begin + i * size // count, begin + (i + 1) * size // count):
                    bench.machine[written], bench.ranks[written] = bench.slot_machine[k], bench.slot_ranks[k]
                    written += 1
            _end_pipeline(bench, pipelines, written, recipe)
            pipelines += 1
        begin = end
    bench.starts[pipelines] = written
    bench.pipelines[0] = pipelines
    return written > 0


# Inlined, so that the price is compiled once and not again for every function on the way to it.
@inlined
def price(packed: Packed, bench: Bench, job: int, owner: Ints, recipe: Ints, limit: float) -> float:
    """Seconds of a step of a job by a recipe, infinite where they are known to be `limit` or more; below zero where it
    does not fit."""
    return priced(packed, bench, job, recipe, limit) if shape(packed, bench, job, owner, recipe) else -1e9


@inlined
def priced(packed: Packed, bench: Bench, job: int, recipe: Ints, limit: float) -> float:
    """Seconds of a step by the pipelines that lie on the bench, with a recipe's switches, infinite where they are known
    to be `limit` or more; below zero where that does not fit."""
    variant = recipe[VARIANT]
    total = packed.batch[job] // packed.sizes[job, variant // 2]
    pipelines = bench.pipelines[0]
    stages = bench.starts[pipelines]
    if total < pipelines:
        return -1e8
    for n in range(stages):
        place = packed.place[bench.machine[n]]
        bench.place[n] = place
        bench.kind[n] = packed.kind[job, place, bench.ranks[n]]
    encoded = Encoded(
        bench.starts[: pipelines + 1],
        bench.machine[:stages],
        bench.place[:stages],
        bench.kind[:stages],
        bench.ranks[:stages],
        bench.first[:stages],
        bench.last[:stages],
        bench.microbatches[:pipelines],
        bench.warmup[:stages],
        recipe[BY_REGION] == 1,
        recipe[SHARD] == 1,
    )
    switches = 64 * (64 * variant + recipe[EXTRA]) + 4 * recipe[GPIPE] + 2 * recipe[BY_REGION] + recipe[SHARD]
    key = key_of(bench.memo, encoded, job, switches)
    known = recall(bench.memo, key, limit)
    if not np.isnan(known):
        return known
    scratch = bench.scratch[: 2 * stages].reshape((2, stages))
    tables = tables_of(packed, job, variant)
    seconds: float = fit(tables, encoded, bench.out, scratch, total, recipe[EXTRA], recipe[GPIPE] == 1, limit)
    note(bench.memo, key, seconds, limit)
    return seconds


@lean
def size_of(packed: Packed, job: int, owner: Ints) -> tuple[int, float]:
    """A job's GPUs, and how many replicas of its state their memory would hold."""
    gpus, room = 0, 0.0
    for m in range(owner.shape[0]):
        if owner[m] == job:
            gpus += packed.gpus[m]
            room += packed.room[m]
    return gpus, room / packed.need[job]


@inner
def _draw_length(slots: int, replicas: float) -> int:
    """Stages of a pipeline: few, or so many that there are few pipelines, or about as many pipelines as memory can
    hold; never more pipelines than could be held with all that replicas share spread over them."""
    draw = np.random.random()
    most = max(1, int(_SHARED * replicas))
    length = -(-slots // most)
    if draw < 0.4:
        return int(max(length, min(slots, LENGTHS[np.random.randint(0, len(LENGTHS))])))
    pipelines = PIPELINES[np.random.randint(0, len(PIPELINES))]
    if draw < 0.7:
        pipelines = min(slots, max(1, int(replicas / np.random.uniform(1, 3))))
    return int(max(length, -(-slots // pipelines)))


@lean
def draw_recipe(packed: Packed, job: int, gpus: int, replicas: float, recipe: Ints) -> None:
    """Any recipe, its microbatch such that each pipeline has enough to do, half of the time. Where memory holds few
    replicas, mostly one that takes little of it."""
    is_tight = replicas < _TIGHT and np.random.random() < 0.8
    if is_tight and np.random.random() < 0.5:
        frugal_recipe(packed, job, gpus, 1 + np.random.randint(0, _MOST_TWINS), recipe)
        return
    most = packed.degree.shape[1] - 1
    degree = packed.degree[job, min(most, 1 << np.random.randint(0, 4))]
    slow = degree if np.random.random() < 0.75 else packed.degree[job, min(most, 1 << np.random.randint(0, 4))]
    recipe[SLOW_DEGREE], recipe[REVERSED] = slow, np.random.randint(0, 2)
    recipe[START] = 0 if np.random.random() < 0.5 else np.random.randint(0, 8)
    recipe[MIX] = np.random.randint(0, 1 << 15)
    recipe[TOUR] = np.random.randint(0, TOURS)
    slots = max(1, gpus // degree)
    length = min(_draw_length(slots, replicas), packed.layers[job])
    recipe[DEGREE], recipe[LENGTH] = degree, length
    recipe[WAY] = np.random.randint(0, WAYS)
    recipe[FOLDED] = 1 if packed.tied[job] and np.random.random() < 0.6 else 0
    sizes = 1
    while sizes < packed.sizes.shape[1] and packed.sizes[job, sizes] > 0:
        sizes += 1
    size = 0 if is_tight else np.random.randint(0, sizes)
    if not is_tight and np.random.random() < 0.5:
        wanted = slots if length == 1 else 4 * slots
        size = 0
        while size + 1 < sizes and packed.batch[job] // packed.sizes[job, size + 1] >= wanted:
            size += 1
    recipe[VARIANT] = 2 * size + (1 if np.random.random() < (0.9 if is_tight else 0.3) else 0)
    recipe[EXTRA] = 0 if length == 1 else EXTRAS[np.random.randint(0, 4 if is_tight else len(EXTRAS))]
    recipe[GPIPE] = 0
    recipe[BY_REGION] = 1 if np.random.random() < 0.5 else 0
    recipe[SHARD] = 1 if np.random.random() < 0.8 else 0


@lean
def frugal_recipe(packed: Packed, job: int, gpus: int, pipelines: int, recipe: Ints) -> None:
    """A recipe for a job that needs much of what there is: pipelines that go the same way through all places, their
    slots as wide as they can be, and as little memory as there are ways to save it."""
    recipe[:] = 0
    degree = packed.degree[job, min(packed.degree.shape[1] - 1, 8)]
    recipe[DEGREE] = recipe[SLOW_DEGREE] = degree
    recipe[LENGTH] = max(1, int(gpus / (degree * pipelines) + 0.5))
    recipe[WAY], recipe[TOUR] = TWINS, PATH
    recipe[VARIANT], recipe[EXTRA] = 1, EXTRAS[np.random.randint(0, 3)]
    recipe[SHARD], recipe[REVERSED] = 1, np.random.randint(0, 2)
    recipe[BY_REGION] = 1 if np.random.random() < 0.8 else 0


@lean
def change_recipe(packed: Packed, job: int, gpus: int, replicas: float, recipe: Ints) -> None:
    """A recipe a little different, in place."""
    draw = np.random.random()
    if draw < 0.3:
        way = np.random.random()
        if way < 0.3:
            recipe[LENGTH] = max(1, recipe[LENGTH] + (1 if np.random.random() < 0.5 else -1))
        elif way < 0.6:
            recipe[LENGTH] = _draw_length(max(1, gpus // recipe[DEGREE]), replicas)
        else:
            at = np.searchsorted(LENGTHS, recipe[LENGTH]) + np.random.randint(-2, 3)
            recipe[LENGTH] = LENGTHS[min(max(at, 0), len(LENGTHS) - 1)]
    elif draw < 0.4:
        most = packed.degree.shape[1] - 1
        which = np.random.randint(0, 3)  # one of the two, or both
        degree = packed.degree[job, np.random.randint(1, most + 1)]
        if which != 1:
            recipe[DEGREE] = degree
        if which != 0:
            recipe[SLOW_DEGREE] = degree
    elif draw < 0.45:
        recipe[WAY] = np.random.randint(0, WAYS)
    elif draw < 0.48:
        recipe[REVERSED] = 1 - recipe[REVERSED]
    elif draw < 0.5:
        recipe[START] = np.random.randint(0, 8)
    elif draw < 0.515:
        recipe[TOUR] = np.random.randint(0, TOURS)
    elif draw < 0.55:
        recipe[MIX] = np.random.randint(0, 1 << 15)
    elif draw < 0.57:
        recipe[FOLDED] = 1 - recipe[FOLDED] if packed.tied[job] else 0
    elif draw < 0.7:
        size = recipe[VARIANT] // 2 + (1 if np.random.random() < 0.5 else -1)
        if 0 <= size < packed.sizes.shape[1] and packed.sizes[job, size] > 0:
            recipe[VARIANT] = 2 * size + recipe[VARIANT] % 2
    elif draw < 0.78:
        recipe[VARIANT] ^= 1
    elif draw < 0.9:
        recipe[EXTRA] = EXTRAS[np.random.randint(0, len(EXTRAS))]
        recipe[GPIPE] = 1 if np.random.random() < 0.1 else 0
    elif draw < 0.95:
        recipe[BY_REGION] = 1 - recipe[BY_REGION]
    else:
        recipe[SHARD] = 1 - recipe[SHARD]


@lean
def bucket_of(gpus: int) -> int:
    """Groups of about this size share what served them."""
    return min(BUCKETS - 1, int(2 * np.log2(gpus) + 0.5))


@inlined
def look(
    packed: Packed,
    bench: Bench,
    job: int,
    owner: Ints,
    recipe: Ints,
    served: Ints,
    samples: int,
    limit: float,
    chosen: Ints,
) -> float:
    """The job on the machines `owner` gives it: by its recipe, by one that served on such a size, by one a little
    different, and by `samples` drawn ones; by many drawn ones where there is none. The best goes to `chosen`;
    where nothing fits, the one that is nearest to it, with seconds below zero. Infinite where what fits takes `limit`
    seconds or more."""
    gpus, replicas = size_of(packed, job, owner)
    chosen[:] = recipe
    if gpus == 0:
        return NOTHING
    bucket = bucket_of(gpus)
    best, trial = NOTHING, np.empty(COLUMNS, np.int64)
    known = recipe[DEGREE] > 0 or served[job, bucket, DEGREE] > 0
    tries = 2 + max(samples, 0 if known else SAMPLES)
    for i in range(tries + 1):
        if i == 0:
            if recipe[DEGREE] == 0:
                continue
            trial[:] = recipe
        elif i == 1:
            trial[:] = served[job, bucket]
            if trial[DEGREE] == 0 or np.array_equal(trial, recipe):
                continue
        elif i < 2 + _MOST_TWINS and samples == SAMPLES and replicas < _TIGHT:
            frugal_recipe(packed, job, gpus, i - 1, trial)
        elif i < tries:
            draw_recipe(packed, job, gpus, replicas, trial)
        else:
            if chosen[DEGREE] == 0 or np.random.random() < 0.4:
                continue
            trial[:] = chosen
            change_recipe(packed, job, gpus, replicas, trial)
            while np.random.random() < 0.5:
                change_recipe(packed, job, gpus, replicas, trial)
        seconds = price(packed, bench, job, owner, trial, min(best, limit) if best >= 0 else limit)
        if (seconds >= 0 and seconds < best) or (best < 0 and seconds > best):
            best = seconds
            chosen[:] = trial
    if 0 <= best < np.inf:
        served[job, bucket] = chosen
    return best
