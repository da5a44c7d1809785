"""Where the layers of a pipeline are cut, compiled: its slowest stage is made as fast as it can be, memory permitting.

For a given limit on a stage's time, filling the stages from the first to the last as far as limit and memory allow is
optimal; what was filled says which limit would be the next to make a difference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import SCHEDULE, Encoded, Tables
from hulk.cost.compiled import constant, inner, lean, maker
from hulk.cost.sharding import shards_of, shards_of_all
from hulk.cost.step import memory_with_kept, stage_memory
from hulk.domain.options import ALL_AHEAD
from hulk.search.least import is_counted, least_kept, most_kept, pass_seconds, sums_on

Ints = NDArray[np.int64]

TOO_SLOW = constant(-1)
_NEAR, _NARROW = 1.1, 1e-6  # of the limits: the first to try, over the least there is; how close to end


@lean
def fill(tables: Tables, plan: Encoded, p: int, limit: float, first: Ints, last: Ints) -> tuple[int, float, float]:
    """Fill pipeline p's stages up to `limit` seconds a microbatch. Returns how many layers found no room, the slowest
    stage's seconds, and the least limit that would fill them otherwise."""
    if is_counted(tables):
        return _fill_counted(tables, plan, p, limit, first, last)
    begin, end = plan.starts[p], plan.starts[p + 1]
    layers = tables.cut.shape[0]
    a, slowest, following, of_all = 0, 0.0, np.inf, shards_of_all(plan)
    for n in range(begin, end):
        k, t = plan.kind[n], plan.ranks[n]
        shards = of_all if of_all > 0 else shards_of(tables, plan, p, n)
        start = tables.forward[k, a] + tables.backward[k, a]
        # The largest b for which the stage fits in time, then in memory: both grow with b, so halve the range.
        low, high = a - 1, layers - 1 - (end - 1 - n)  # every later stage needs a layer
        most = high
        while low < high:
            b = (low + high + 1) // 2
            if tables.forward[k, b + 1] + tables.backward[k, b + 1] - start <= limit:
                low = b
            else:
                high = b - 1
        if low < most:
            following = min(following, tables.forward[k, low + 2] + tables.backward[k, low + 2] - start)
        room, sends, held = tables.capacity[plan.place[n]], n + 1 < end, plan.warmup[n]
        if low >= a and stage_memory(tables, a, low, t, held, sends, shards)[0] > room:
            low, high = a - 1, low - 1
            while low < high:
                b = (low + high + 1) // 2
                if stage_memory(tables, a, b, t, held, sends, shards)[0] <= room:
                    low = b
                else:
                    high = b - 1
        if low < a:
            return layers - a, slowest, following
        first[n], last[n] = a, low
        slowest = max(slowest, tables.forward[k, low + 1] + tables.backward[k, low + 1] - start)
        a = low + 1
    return layers - a, slowest, following


@inner
def _fill_counted(
    tables: Tables, plan: Encoded, p: int, limit: float, first: Ints, last: Ints
) -> tuple[int, float, float]:
    """`fill` where every stage computes as few blocks again as its memory asks for (`hulk.search.least`): one that
    would take too long keeps more of them, as long as there is room."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    layers = tables.cut.shape[0]
    a, slowest, following, of_all = 0, 0.0, np.inf, shards_of_all(plan)
    for n in range(begin, end):
        t, room, sends, held = plan.ranks[n], tables.capacity[plan.place[n]], n + 1 < end, plan.warmup[n]
        shards = of_all if of_all > 0 else shards_of(tables, plan, p, n)
        sums = sums_on(tables, plan.kind[n])
        low, high = a - 1, layers - 1 - (end - 1 - n)  # every later stage needs a layer
        most = high
        while low < high:  # what is quick enough takes more memory the more layers there are, so halve the range
            b = (low + high + 1) // 2
            kept = least_kept(sums, a, b, limit)
            if kept >= 0 and memory_with_kept(tables, a, b, t, held, sends, shards, kept)[0] <= room:
                low = b
            else:
                high = b - 1
        if low < most and stage_memory(tables, a, low + 1, t, held, sends, shards)[0] <= room:
            kept = most_kept(tables, plan, n, a, low + 1, sends, shards)
            following = min(following, pass_seconds(sums, a, low + 1, kept))
        if low < a:
            return layers - a, slowest, following
        first[n], last[n] = a, low
        plan.kept[n] = most_kept(tables, plan, n, a, low, sends, shards)
        slowest = max(slowest, pass_seconds(sums, a, low, plan.kept[n]))
        a = low + 1
    return layers - a, slowest, following


@lean
def least_whole(tables: Tables, k: int) -> float:
    """Seconds that a stage of a kind takes at least for a microbatch of the whole model, however much it holds."""
    layers = tables.cut.shape[0]
    if is_counted(tables):
        return pass_seconds(sums_on(tables, k), 0, layers - 1, layers)
    whole: float = tables.forward[k, layers] + tables.backward[k, layers]
    return whole


@lean
def cut(tables: Tables, plan: Encoded, p: int, longest: float) -> int:
    """Cut pipeline p so that its slowest stage is as fast as possible. Returns how many layers find no room at all, or
    TOO_SLOW where some find none as long as no stage takes more than `longest` seconds a microbatch."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    most, fastest = 0.0, 0.0
    layers = tables.cut.shape[0]
    for n in range(begin, end):
        k = plan.kind[n]
        most = max(most, tables.forward[k, layers] + tables.backward[k, layers])
        fastest += 1.0 / least_whole(tables, k)
    missing, high, _ = fill(tables, plan, p, min(most, longest), plan.first, plan.last)
    if missing > 0:
        return missing if most <= longest else TOO_SLOW
    low = 1.0 / fastest * 0.999  # no cut beats the work spread evenly over the stages' speeds
    middle, is_filled = _NEAR * low, True  # where the best cut is mostly found; after that, halve the range
    while high - low > _NARROW * high:
        missing, slowest, following = fill(tables, plan, p, middle, plan.first, plan.last)
        is_filled = missing == 0
        if is_filled:
            high = slowest
        else:
            low = following
        middle = min(_NEAR * low, 0.5 * (low + high))
    if not is_filled:
        missing, _, _ = fill(tables, plan, p, high, plan.first, plan.last)
        return missing
    return 0


@maker
def cut_by_rules(tables: Tables, plan: Encoded, p: int) -> int:
    """`cut` where not every place may hold every layer. A stage filled as far as it goes may leave the next one a layer
    that it must not hold, so all ways to cut are compared."""
    begin, end = plan.starts[p], plan.starts[p + 1]
    layers, stages = tables.cut.shape[0], end - begin
    slowest = np.full((stages + 1, layers + 1), np.inf)  # of so many stages that hold so many layers: seconds
    before = np.zeros((stages + 1, layers + 1), np.int64)  # layers before the last of these stages
    slowest[0, 0] = 0.0
    furthest = 0
    for s in range(stages):
        n = begin + s
        k, t, place, shards = plan.kind[n], plan.ranks[n], plan.place[n], shards_of(tables, plan, p, n)
        most = layers - stages + s  # every later stage needs a layer
        for a in range(s, most + 1):
            if slowest[s, a] == np.inf:
                continue
            start = tables.forward[k, a] + tables.backward[k, a]
            for b in range(a, min(most, tables.held_until[place, a]) + 1):
                seconds = max(slowest[s, a], tables.forward[k, b + 1] + tables.backward[k, b + 1] - start)
                if seconds >= slowest[s + 1, b + 1]:
                    continue
                if stage_memory(tables, a, b, t, plan.warmup[n], n + 1 < end, shards)[0] > tables.capacity[place]:
                    break
                slowest[s + 1, b + 1], before[s + 1, b + 1] = seconds, a
                furthest = max(furthest, b + 1)
    if furthest == layers:
        a = layers
        for s in range(stages, 0, -1):
            n = begin + s - 1
            plan.last[n] = a - 1
            a = before[s, a]
            plan.first[n] = a
            if is_counted(tables):
                plan.kept[n] = most_kept(tables, plan, n, a, plan.last[n], n + 1 < end, shards_of(tables, plan, p, n))
    return layers - furthest


@inner
def keeps_rules(tables: Tables, plan: Encoded) -> bool:
    """Whether every stage holds only layers that may be in its place, where there are rules for that."""
    for n in range(plan.starts[plan.microbatches.shape[0]]):
        if tables.held_until[plan.place[n], plan.first[n]] < plan.last[n]:
            return False
    return True


@lean
def same_pipeline(plan: Encoded, p: int, q: int) -> bool:
    """Whether two pipelines are made of the same kinds of slots in the same places, and so are cut alike."""
    a, b = plan.starts[p], plan.starts[q]
    if plan.starts[p + 1] - a != plan.starts[q + 1] - b:
        return False
    for i in range(plan.starts[p + 1] - a):
        if plan.kind[a + i] != plan.kind[b + i] or plan.place[a + i] != plan.place[b + i]:
            return False
        if plan.warmup[a + i] != plan.warmup[b + i]:
            return False
    return True


@lean
def set_warmup(plan: Encoded, p: int, microbatches: int) -> None:
    """Forwards before the first backward, as `hulk.domain.options.Schedule.warmup` says it."""
    begin, end, extra = plan.starts[p], plan.starts[p + 1], plan.options[SCHEDULE]
    for n in range(begin, end):
        plan.warmup[n] = microbatches if extra == ALL_AHEAD else min(microbatches, end - n + extra)
