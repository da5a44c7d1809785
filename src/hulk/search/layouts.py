"""How a group becomes pipelines, compiled: a layout is a few numbers that make pipelines of any group.

A layout that served a job on one group can be tried on the next, which makes a change of groups as cheap as a price.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, kernel, lean, maker
from hulk.search.order import order_slots
from hulk.search.tables import SearchTables
from hulk.search.workspace import Workspace

Ints = NDArray[np.int64]

# A layout's columns. LENGTH: stages of a pipeline, aimed at. SLOW_DEGREE: tensor parallel on machines whose GPUs are
# slower than the group's fastest. REVERSED: pipelines run from the end of the tour to its begin. START: how many places
# are stronger than the one where the tour begins. MIX: how places at the same distance, those of one region mostly,
# follow each other. TOUR: which distance is meant, or PATH: the one way through all places.
FIELDS = ("degree", "slow_degree", "length", "way", "folded", "reversed", "start", "mix", "tour")
LAYOUT = len(FIELDS)
DEGREE, SLOW_DEGREE, LENGTH, WAY, FOLDED, REVERSED, START, MIX, TOUR = range(LAYOUT)
TOURS, PATH = 4, 3
# WAY: neighbours along a tour in one pipeline; in different ones at the same stage; blocks that end with a region; all
# machines in all pipelines alike.
WAYS = 4
BLOCKS, STRIPES, REGIONS, TWINS = range(WAYS)
LENGTHS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
PIPELINES = np.array([1, 2, 3, 4, 6, 8])
MOST_START, MOST_MIX = 8, 1 << 15
_SHARED = 3.0  # times as many replicas as hold all their state themselves may fit where they share the optimizer's


@inner
def _go_along(packed: SearchTables, work: Workspace, count: int) -> None:
    """The places in the order of the path."""
    order = work.order
    for i in range(1, count):
        place, k = order[i], i
        while k > 0 and packed.path[order[k - 1]] > packed.path[place]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = place


@inner
def _go_near(packed: SearchTables, work: Workspace, count: int, layout: Ints) -> None:
    """The places from a strong one always on to the nearest."""
    for i in range(layout[START] % count + 1):  # the strongest, the next strongest, … to the front
        strongest = i
        for k in range(i + 1, count):
            if work.power[work.order[k]] > work.power[work.order[strongest]]:
                strongest = k
        work.order[i], work.order[strongest] = work.order[strongest], work.order[i]
    first = layout[START] % count
    work.order[0], work.order[first] = work.order[first], work.order[0]
    distance = packed.tours[layout[TOUR]]
    for i in range(1, count - 1):
        nearest, least, rank = i, np.inf, 0
        for k in range(i, count):
            way = distance[work.order[i - 1], work.order[k]]
            mixed = (work.order[k] + 1) * (2 * layout[MIX] + 1) * 40503 % 65536
            if way < least or (way == least and mixed < rank):
                nearest, least, rank = k, way, mixed
        work.order[i], work.order[nearest] = work.order[nearest], work.order[i]


@inner
def _lay_slots(packed: SearchTables, work: Workspace, job: int, owner: Ints, layout: Ints) -> int:
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
        work.power[p] = power
        if power > 0:
            work.order[count] = p
            count += 1
    if count == 0:
        return 0
    if layout[TOUR] == PATH:
        _go_along(packed, work, count)
    else:
        _go_near(packed, work, count, layout)
    slots = 0
    for i in range(count):
        p = work.order[i]
        for k in range(packed.first_member[p], packed.first_member[p + 1]):
            m = packed.members[k]
            if owner[m] == job:
                slow = packed.rate[job, m] / packed.gpus[m] < 0.8 * fastest
                ranks = packed.degree[job, min(layout[SLOW_DEGREE if slow else DEGREE], packed.gpus[m])]
                for _ in range(packed.gpus[m] // ranks):
                    work.slot_machine[slots] = m
                    work.slot_ranks[slots] = ranks
                    slots += 1
    return slots


@inner
def _fold(work: Workspace, begin: int, end: int) -> None:
    """Both ends of a pipeline on one machine, where one has two slots in it."""
    if end - begin < 3:
        return
    for i in range(begin, end):
        machine, last = work.machine[i], -1
        for k in range(end - 1, i, -1):
            if work.machine[k] == machine:
                last = k
                break
        if last < 0:
            continue
        ranks, other = work.ranks[i], work.ranks[last]
        for k in range(last, end - 1):
            work.machine[k], work.ranks[k] = work.machine[k + 1], work.ranks[k + 1]
        work.machine[end - 1], work.ranks[end - 1] = machine, other
        for k in range(i, begin, -1):
            work.machine[k], work.ranks[k] = work.machine[k - 1], work.ranks[k - 1]
        work.machine[begin], work.ranks[begin] = machine, ranks
        return


@inner
def _put_in_order(packed: SearchTables, work: Workspace, job: int, begin: int, end: int, middle: bool) -> bool:
    """`order_slots` for slots at hand of a job that has rules."""
    held = packed.held_until[packed.held_at[job] : packed.held_at[job + 1]]
    place, machine, ranks = work.place[begin:end], work.machine[begin:end], work.ranks[begin:end]
    for i in range(end - begin):
        place[i] = packed.place[machine[i]]
    return order_slots(held, packed.layers[job], place, machine, ranks, middle)


@inner
def mend_ends(packed: SearchTables, work: Workspace, job: int) -> None:
    """The pipelines at hand of a job that has rules, with slots at their ends that may be there, as far as there are
    such."""
    for p in range(work.pipelines[0]):
        _put_in_order(packed, work, job, work.starts[p], work.starts[p + 1], False)


@maker
def _end_pipeline(packed: SearchTables, work: Workspace, job: int, p: int, written: int, layout: Ints) -> int:
    """The pipeline just written the way the layout wants its ends, and in an order that the job's rules allow. Returns
    how many slots are written: without its own where rules let none of them be an end."""
    begin = work.starts[p]
    if layout[FOLDED] == 1:
        _fold(work, begin, written)
    if layout[REVERSED] == 1:
        work.machine[begin:written] = work.machine[begin:written][::-1].copy()
        work.ranks[begin:written] = work.ranks[begin:written][::-1].copy()
    if packed.held_at[job + 1] == packed.held_at[job] or _put_in_order(packed, work, job, begin, written, True):
        return written
    return int(begin)


@inner
def _serves_twins(packed: SearchTables, job: int, machine: int, count: int, power: float) -> bool:
    """Whether a machine's part is of use to each of so many pipelines: it holds a layer, the optimizer's state shared
    by all of them, and is fast enough for a good part of one. `power`: FLOP/s of the whole group."""
    layers, gpus = packed.layers[job], packed.gpus[machine]
    state, optimizer = packed.scalars[job, 0, 0], packed.scalars[job, 0, 1]
    need = packed.need[job] / layers * (state + optimizer / count) / (state + optimizer)
    part = gpus // count if count <= gpus else gpus
    return bool(packed.room[machine] / gpus * part >= need and layers * packed.rate[job, machine] >= 0.5 * power)


@maker
def _shape_twins(packed: SearchTables, work: Workspace, job: int, slots: int, layout: Ints) -> bool:
    """Pipelines that go the same way, each with its part of every machine that is of use; machines with fewer GPUs than
    there are pipelines are dealt out one by one. `slots` lie on the work, those of a machine side by side."""
    written, pipelines = 0, 0
    power, gpus, last = 0.0, 0, -1
    for i in range(slots):
        if work.slot_machine[i] != last:
            last = work.slot_machine[i]
            power += packed.rate[job, last]
            gpus += packed.gpus[last]
    count = max(1, int(gpus / (layout[LENGTH] * layout[DEGREE]) + 0.5))
    for p in range(count):
        work.starts[pipelines] = written
        single, i = 0, 0
        while i < slots:
            machine, ranks = work.slot_machine[i], work.slot_ranks[i]
            while i < slots and work.slot_machine[i] == machine:
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
                work.machine[written], work.ranks[written] = machine, ranks
                written += 1
        if written > work.starts[pipelines]:
            written = _end_pipeline(packed, work, job, pipelines, written, layout)
            pipelines += 1 if written > work.starts[pipelines] else 0
    work.starts[pipelines] = written
    work.pipelines[0] = pipelines
    return written > 0


@kernel
def shape(packed: SearchTables, work: Workspace, job: int, owner: Ints, layout: Ints) -> bool:
    """Make the job's pipelines: `machine`, `ranks` and `starts` of the work. False where it has no machines."""
    slots = _lay_slots(packed, work, job, owner, layout)
    layers, length = packed.layers[job], layout[LENGTH]
    if layout[WAY] == TWINS:
        return _shape_twins(packed, work, job, slots, layout)
    pipelines, written, begin = 0, 0, 0
    while begin < slots:
        end = slots
        if layout[WAY] == REGIONS:
            end = begin + 1
            while end < slots:
                same = packed.region_of_machine[work.slot_machine[end]]
                if packed.region_of_machine[work.slot_machine[end - 1]] != same and 2 * (end - begin) > length:
                    break
                end += 1
        size = end - begin
        count = max(1, -(-size // layers), int(size / length + 0.5))
        for i in range(count):
            work.starts[pipelines] = written
            if layout[WAY] == STRIPES:
                for k in range(begin + i, end, count):
                    work.machine[written], work.ranks[written] = work.slot_machine[k], work.slot_ranks[k]
                    written += 1
            else:
                for k in range(begin + i * size // count, begin + (i + 1) * size // count):
                    work.machine[written], work.ranks[written] = work.slot_machine[k], work.slot_ranks[k]
                    written += 1
            written = _end_pipeline(packed, work, job, pipelines, written, layout)
            pipelines += 1 if written > work.starts[pipelines] else 0
        begin = end
    work.starts[pipelines] = written
    work.pipelines[0] = pipelines
    return written > 0


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


@inner
def _draw_degree(packed: SearchTables, job: int) -> int:
    return int(packed.degree[job, min(packed.degree.shape[1] - 1, 1 << np.random.randint(0, 4))])


@lean
def draw_layout(packed: SearchTables, job: int, gpus: int, replicas: float, layout: Ints) -> None:
    """Any layout for a job on so many GPUs, whose memory would hold so many replicas of its state."""
    degree = _draw_degree(packed, job)
    layout[DEGREE] = degree
    layout[SLOW_DEGREE] = degree if np.random.random() < 0.75 else _draw_degree(packed, job)
    layout[LENGTH] = min(_draw_length(max(1, gpus // degree), replicas), packed.layers[job])
    layout[WAY] = np.random.randint(0, WAYS)
    layout[FOLDED] = 1 if packed.tied[job] and np.random.random() < 0.6 else 0
    layout[REVERSED] = np.random.randint(0, 2)
    layout[START] = 0 if np.random.random() < 0.5 else np.random.randint(0, MOST_START)
    layout[MIX] = np.random.randint(0, MOST_MIX)
    layout[TOUR] = np.random.randint(0, TOURS)


@lean
def twin_layout(packed: SearchTables, job: int, gpus: int, pipelines: int, layout: Ints) -> None:
    """A layout for a job that needs much of what there is: so many pipelines that go the same way through all places,
    their slots as wide as they can be."""
    degree = packed.degree[job, min(packed.degree.shape[1] - 1, 8)]
    layout[DEGREE] = layout[SLOW_DEGREE] = degree
    layout[LENGTH] = max(1, int(gpus / (degree * pipelines) + 0.5))
    layout[WAY], layout[TOUR] = TWINS, PATH
    layout[FOLDED] = layout[START] = layout[MIX] = 0
    layout[REVERSED] = np.random.randint(0, 2)


# What may change in a layout, and how likely one is drawn beside the others.
CHANGES = {"length": 30, "degrees": 10, "way": 5, "reversed": 3, "start": 2, "tour": 1.5, "mix": 3.5, "folded": 2}
_LENGTH, _DEGREES, _WAY, _REVERSED, _START, _TOUR, _MIX, _FOLDED = range(len(CHANGES))
_CHANCES = np.cumsum(list(CHANGES.values())) / sum(CHANGES.values())


@lean
def change_layout(packed: SearchTables, job: int, gpus: int, replicas: float, layout: Ints) -> None:
    """A layout a little different, in place."""
    what = np.searchsorted(_CHANCES, np.random.random(), side="right")
    if what == _LENGTH:
        _change_length(gpus, replicas, layout)
    elif what == _DEGREES:
        which = np.random.randint(0, 3)  # one of the two, or both
        degree = packed.degree[job, np.random.randint(1, packed.degree.shape[1])]
        if which != 1:
            layout[DEGREE] = degree
        if which != 0:
            layout[SLOW_DEGREE] = degree
    elif what == _WAY:
        layout[WAY] = np.random.randint(0, WAYS)
    elif what == _REVERSED:
        layout[REVERSED] = 1 - layout[REVERSED]
    elif what == _START:
        layout[START] = np.random.randint(0, MOST_START)
    elif what == _TOUR:
        layout[TOUR] = np.random.randint(0, TOURS)
    elif what == _MIX:
        layout[MIX] = np.random.randint(0, MOST_MIX)
    else:
        layout[FOLDED] = 1 - layout[FOLDED] if packed.tied[job] else 0


@inner
def _change_length(gpus: int, replicas: float, layout: Ints) -> None:
    """One stage more or fewer, any length, or one that is near among those tried first."""
    draw = np.random.random()
    if draw < 0.3:
        layout[LENGTH] = max(1, layout[LENGTH] + (1 if np.random.random() < 0.5 else -1))
    elif draw < 0.6:
        layout[LENGTH] = _draw_length(max(1, gpus // layout[DEGREE]), replicas)
    else:
        at = np.searchsorted(LENGTHS, layout[LENGTH]) + np.random.randint(-2, 3)
        layout[LENGTH] = LENGTHS[min(max(at, 0), len(LENGTHS) - 1)]
