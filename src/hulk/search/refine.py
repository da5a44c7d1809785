"""Cuts and shares of a fitted plan improved by the true price, compiled: one layer and one microbatch at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Durations, Encoded, Ints, Tables
from hulk.cost.compiled import constant, inlined, inner, kernel, maker
from hulk.cost.step import seconds_in
from hulk.search.cut import keeps_rules, set_warmup
from hulk.search.least import UNCOUNTED, recompute_least

Floats = NDArray[np.float64]
Shift = tuple[int, int]
"""After which stage a cut is moved, and by how many layers."""


class Desk(NamedTuple):
    """What refining works with: room for durations and for ends of stages [2, N], and how many blocks a cut computes
    again (`hulk.search.least`)."""

    out: Durations
    scratch: Floats
    blocks: Ints  # [L + 1] how many of them are before each layer
    way: int


_STAY = constant(0)


@kernel
def refine(tables: Tables, plan: Encoded, desk: Desk, seconds: float, rounds: int) -> float:
    """Improve cuts and shares of a fitted plan by the true price: move one layer across one cut or across two, one
    microbatch between replicas, as long as it pays. Where the desk says so, every cut computes as few blocks again as
    it can, also the one that comes. Returns the seconds of the improved plan."""
    replicas = plan.microbatches.shape[0]
    if desk.way != UNCOUNTED:
        trial = _price(tables, plan, desk)
        seconds = trial if trial >= 0 else seconds
    for _ in range(rounds):
        before = seconds
        for p in range(replicas):
            begin, end = plan.starts[p], plan.starts[p + 1]
            if replicas > 1 and (p == 0 or not _cut_alike(plan, p, p - 1)):
                for n in range(begin, end - 1):
                    for way in (-1, 1):
                        seconds = _try_cut_of_all(tables, plan, desk, seconds, p, n - begin, way)
            for n in range(begin, end - 1):
                for way in (-1, 1):
                    seconds = _try_cuts(tables, plan, desk, seconds, (n, way), (n, _STAY))
                    for m in range(n + 1, end - 1):
                        for other in (-1, 1):
                            seconds = _try_cuts(tables, plan, desk, seconds, (n, way), (m, other))
        for p in range(replicas):
            for q in range(replicas):
                if p == q or plan.microbatches[p] < 2:
                    continue
                _give_microbatch(plan, p, q)
                trial = _price(tables, plan, desk)
                if 0 <= trial < seconds * (1 - 1e-9):
                    seconds = trial
                else:
                    _give_microbatch(plan, q, p)
        if seconds >= before * (1 - 1e-6):
            break
    if desk.way != UNCOUNTED:  # as the last that was tried left it
        recompute_least(tables, plan, desk.out, desk.blocks, desk.way)
    return seconds


# Written out where it is called, as the next one: on its own, with all of the price in it, it would take as long to
# compile as the price itself.
@inlined
def _try_cuts(tables: Tables, plan: Encoded, desk: Desk, seconds: float, one: Shift, two: Shift) -> float:
    """Move two cuts, each the one after a stage by so many layers; keep it if it pays."""
    (n, way), (m, other) = one, two
    _shift(plan, n, way)
    _shift(plan, m, other)
    whole = plan.first[n] <= plan.last[n] and plan.first[n + 1] <= plan.last[n + 1]
    whole = whole and plan.first[m] <= plan.last[m] and plan.first[m + 1] <= plan.last[m + 1]
    trial = _price(tables, plan, desk) if whole else -1.0
    if 0 <= trial < seconds * (1 - 1e-9):
        return trial
    _shift(plan, n, -way)
    _shift(plan, m, -other)
    return seconds


@inner
def _cut_alike(plan: Encoded, p: int, q: int) -> bool:
    """Whether two pipelines have the same number of stages and the same cuts."""
    a, b = plan.starts[p], plan.starts[q]
    if plan.starts[p + 1] - a != plan.starts[q + 1] - b:
        return False
    for i in range(plan.starts[p + 1] - a):  # noqa: SIM110 - numba has no all() of a generator
        if plan.last[a + i] != plan.last[b + i]:
            return False
    return True


@inlined
def _try_cut_of_all(tables: Tables, plan: Encoded, desk: Desk, seconds: float, p: int, stage: int, way: int) -> float:
    """Move a cut in pipeline p and in all that are cut like it; keep it if it pays."""
    replicas = plan.microbatches.shape[0]
    alike = np.zeros(replicas, np.bool_)
    whole = True
    for q in range(replicas):
        alike[q] = _cut_alike(plan, q, p)
    for q in range(replicas):
        if alike[q]:
            n = plan.starts[q] + stage
            _shift(plan, n, way)
            whole = whole and plan.first[n] <= plan.last[n] and plan.first[n + 1] <= plan.last[n + 1]
    trial = _price(tables, plan, desk) if whole else -1.0
    if 0 <= trial < seconds * (1 - 1e-9):
        return trial
    for q in range(replicas):
        if alike[q]:
            _shift(plan, plan.starts[q] + stage, -way)
    return seconds


@inner
def _shift(plan: Encoded, n: int, layers: int) -> None:
    plan.last[n] += layers
    plan.first[n + 1] += layers


@inner
def _give_microbatch(plan: Encoded, p: int, q: int) -> None:
    plan.microbatches[p] -= 1
    plan.microbatches[q] += 1
    set_warmup(plan, p, plan.microbatches[p])
    set_warmup(plan, q, plan.microbatches[q])


@maker
def _price(tables: Tables, plan: Encoded, desk: Desk) -> float:
    if tables.held_until.shape[0] > 0 and not keeps_rules(tables, plan):
        return -1.0
    if desk.way != UNCOUNTED:
        recompute_least(tables, plan, desk.out, desk.blocks, desk.way)
    return seconds_in(tables, plan, desk.out, desk.scratch)
