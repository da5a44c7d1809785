"""Prices that are known already, compiled: most small changes to a recipe make the same pipelines again, and a search
comes back to the same groups. What counts is which kinds of slots stand where, not which of several alike machines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Encoded
from hulk.cost.compiled import inlined
from hulk.search.results import LACKS, OPEN, OVER

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ROOM = 1 << 15
_ODD = -7046029254386353131  # 2^64 over the golden ratio, as a signed number
# What is left of a number shifted right by 29 and by 31: with its sign, a number and its complement would be one key.
_LOW_35, _LOW_33 = (1 << 35) - 1, (1 << 33) - 1


class PriceCache(NamedTuple):
    """The last prices asked for, each at the place its key says, until another takes it."""

    keys: Ints  # [K]; 0: none
    status: Ints  # [K] as `fit` returns it
    value: Floats  # [K]
    is_whole: NDArray[np.bool_]  # [K] whether what a plan lacks was counted to the end, or for a limit only in part
    first: Ints  # [M] room to work in: the first slot of each machine, −1 between calls


def empty_cache(machines: int) -> PriceCache:
    """Nothing known."""
    none, first = np.zeros(_ROOM, np.int64), np.full(machines, -1, np.int64)
    return PriceCache(none, none.copy(), np.zeros(_ROOM), np.zeros(_ROOM, np.bool_), first)


@inlined
def key_of(memo: PriceCache, plan: Encoded, job: int) -> int:
    """A number that tells one plan of a job from another: by its options and slots."""
    key = (job + 1) * _ODD
    for column in range(plan.options.shape[0]):
        key = (key ^ (key >> 29 & _LOW_35) ^ plan.options[column]) * _ODD
    for p in range(plan.starts.shape[0] - 1):
        key = (key ^ (key >> 29 & _LOW_35) ^ -1 - p) * _ODD
        for n in range(plan.starts[p], plan.starts[p + 1]):
            machine = plan.machine[n]
            if memo.first[machine] < 0:
                memo.first[machine] = n
            slot = (memo.first[machine] << 32) ^ (plan.place[n] << 12) ^ plan.kind[n]
            key = (key ^ (key >> 29 & _LOW_35) ^ slot) * _ODD
    for n in range(plan.starts[-1]):
        memo.first[plan.machine[n]] = -1
    key ^= key >> 31 & _LOW_33
    return key if key != 0 else 1


@inlined
def recall(memo: PriceCache, key: int, limit: float) -> tuple[int, float]:
    """What is known of a plan: OVER where that is `limit` or more, OPEN where nothing helps."""
    at = key & (_ROOM - 1)
    status, value = memo.status[at], memo.value[at]
    if memo.keys[at] != key:
        status = OPEN
    elif status == LACKS:
        if not memo.is_whole[at] and limit == np.inf:
            status = OPEN
    elif value >= limit:
        status = OVER
    elif status == OVER:
        status = OPEN
    return status, value


@inlined
def note(memo: PriceCache, key: int, status: int, value: float, limit: float) -> None:
    """Take up a price that was asked for under a limit."""
    at = key & (_ROOM - 1)
    memo.keys[at] = key
    memo.status[at] = status
    memo.value[at] = value
    memo.is_whole[at] = limit == np.inf
