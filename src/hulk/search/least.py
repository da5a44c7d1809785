"""The fewest blocks that a plan has to compute again, compiled. Where `recompute` says that blocks are, a stage needs
to do so with no more of them than its memory asks for: the earlier stages of a pipeline hold more microbatches than the
later ones. That is no search: fewer are always quicker, and memory says how few there can be."""

from __future__ import annotations

from typing import NamedTuple

from hulk.cost.arrays import FITS, Durations, Encoded, Floats, Ints, Tables, spared_seconds
from hulk.cost.compiled import constant, inlined, inner, lean
from hulk.cost.engine import Engine
from hulk.cost.orders import is_ordered, slots_of
from hulk.cost.sharding import shards_of, shards_of_all
from hulk.cost.step import memory_with_kept, stage_durations
from hulk.domain.options import Options

UNCOUNTED, EACH, ONE = (constant(number) for number in range(3))
"""How many blocks are computed again: all, as many as each stage needs, or one number for all stages."""


def counting(options: Options, engine: Engine) -> int:
    """Which of these an engine can do by a plan's options."""
    if options.recompute not in engine.counts:
        return UNCOUNTED
    return ONE if engine.one_count else EACH


@lean
def recompute_least(tables: Tables, plan: Encoded, out: Durations, blocks: Ints, way: int) -> None:
    """Fill in `kept` of a plan that is cut and shared, by EACH or ONE. `blocks` [L + 1]: how many of them are before
    each layer; `out` is room to work in. What does not fit in any case stays as it is without numbers."""
    replicas = plan.microbatches.shape[0]
    if way == EACH and not is_ordered(plan):
        of_all = shards_of_all(plan)
        for p in range(replicas):
            for n in range(plan.starts[p], plan.starts[p + 1]):
                shards = of_all if of_all > 0 else shards_of(tables, plan, p, n)
                sends = n + 1 < plan.starts[p + 1]
                plan.kept[n] = most_kept(tables, plan, n, plan.first[n], plan.last[n], sends, shards)
        return
    plan.kept[:] = 0
    for p in range(replicas):
        for s in range(slots_of(plan, p)):
            if way == EACH:
                _least_blocks(tables, plan, out, blocks, p, s)
    if way == ONE:
        _least_blocks(tables, plan, out, blocks, -1, -1)


@inlined
def is_counted(tables: Tables) -> bool:
    """Whether every stage may compute as few blocks again as it needs."""
    return bool(tables.kept.shape[0] > 0)


@lean
def most_kept(tables: Tables, plan: Encoded, n: int, a: int, b: int, sends: bool, shards: int) -> int:
    """Layers at the end of a..b, on stage n, that need not be computed again: its memory holds them. More of them take
    more; none where even that is too much."""
    t, ahead, room = plan.ranks[n], plan.warmup[n], tables.capacity[plan.place[n]]
    low, high = 0, b - a + 1
    trial = high  # most often all of them fit, or few
    while low < high:
        if memory_with_kept(tables, a, b, t, ahead, sends, shards, trial)[0] <= room:
            low = trial
        else:
            high = trial - 1
        trial = (low + high + 1) // 2
    return low


class Sums(NamedTuple):
    """Seconds of passes on one kind of stage, as prefix sums [L + 1]: of layers that are all computed again, and of
    layers of which none are. Apart from all other tables, since a call with these costs more than what it does."""

    forward: Floats
    backward: Floats
    kept_forward: Floats
    kept_backward: Floats


@inlined
def sums_on(tables: Tables, k: int) -> Sums:
    """Those of a kind, where there are layers that are not computed again."""
    kept, kinds = tables.kept, tables.update.shape[0]
    return Sums(tables.forward[k], tables.backward[k], kept[k], kept[kinds + k])


@lean
def pass_seconds(sums: Sums, a: int, b: int, kept: int) -> float:
    """Seconds of a microbatch's two passes through layers a..b, of which the last `kept` are not computed again."""
    seconds: float = sums.forward[b + 1] + sums.backward[b + 1] - sums.forward[a] - sums.backward[a]
    seconds -= spared_seconds(sums.forward, sums.kept_forward, a, b, b + 1 - kept)
    return seconds - spared_seconds(sums.backward, sums.kept_backward, a, b, b + 1 - kept)


@lean
def least_kept(sums: Sums, a: int, b: int, limit: float) -> int:
    """The fewest layers at the end of a..b that must not be computed again for both passes to take `limit` seconds at
    most; −1: they take longer in any case."""
    low, high = 0, b - a + 1
    if pass_seconds(sums, a, b, high) > limit:
        return -1
    while low < high:
        middle = (low + high) // 2
        if pass_seconds(sums, a, b, middle) <= limit:
            high = middle
        else:
            low = middle + 1
    return high


@inner
def _least_blocks(tables: Tables, plan: Encoded, out: Durations, blocks: Ints, p: int, slot: int) -> None:
    """The least number of blocks to compute again on every stage that a slot of pipeline p has, for which the whole
    plan fits; on all stages of all pipelines where p is −1. A stage with fewer blocks computes all of them again."""
    low, high = 0, 0
    for n in range(plan.starts[-1]):
        if _is_meant(plan, n, p, slot):
            high = max(high, blocks[plan.last[n] + 1] - blocks[plan.first[n]])
    while low < high:
        middle = (low + high) // 2
        _set_blocks(plan, blocks, p, slot, middle)
        if stage_durations(tables, plan, out)[0] == FITS:
            high = middle
        else:
            low = middle + 1
    _set_blocks(plan, blocks, p, slot, high)


@inner
def _is_meant(plan: Encoded, n: int, p: int, slot: int) -> bool:
    """Whether stage n is one of a slot of pipeline p, or p is −1."""
    if p < 0:
        return True
    at = n - plan.starts[p]
    return bool(0 <= at < plan.starts[p + 1] - plan.starts[p] and at % slots_of(plan, p) == slot)


@inner
def _set_blocks(plan: Encoded, blocks: Ints, p: int, slot: int, count: int) -> None:
    """Have so many blocks computed again on these stages."""
    for n in range(plan.starts[-1]):
        if _is_meant(plan, n, p, slot):
            a, end = plan.first[n], plan.first[n]
            while end <= plan.last[n] and blocks[end] - blocks[a] < count:
                end += 1
            plan.kept[n] = plan.last[n] + 1 - end
