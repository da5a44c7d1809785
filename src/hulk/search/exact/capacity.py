"""How many microbatches chains can do in time, compiled: each by itself, and several together on given GPUs.

Usage of a set's GPUs is one number, whose digits are the machines' GPUs. Chains of one usage compete for the same ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Bools, Ints, Rules
from hulk.cost.compiled import inner, kernel
from hulk.cost.step import stage_memory
from hulk.search.exact.case import Case, Offer
from hulk.search.exact.chains import Chains
from hulk.search.exact.sync_bounds import after_passes
from hulk.search.exact.timing import ChainTimes


class Terms(NamedTuple):
    """What is fixed while chains are put side by side."""

    replicas: int
    shards: int  # of the optimizer's state
    extra: int  # forwards


class Capacity(NamedTuple):
    """How many microbatches C chains can do in time."""

    digits: Ints  # [usage, n] GPUs of each machine for every usage number
    most: Ints  # [C, 3] each by itself, at most: anyhow, beside replicas on other machines, in other regions
    together: Ints  # [p, usage] any p of them on GPUs within a usage, at most; −1: there is no room for p


@kernel
def digits_of(offer: Offer) -> Ints:
    """[usage, n] GPUs of each machine for every usage number."""
    n = offer.gpus.shape[0]
    size = 1
    for i in range(n):
        size *= offer.gpus[i] + 1
    digits = np.zeros((size, n), np.int64)
    for u in range(size):
        for i in range(n):
            digits[u, i] = u // offer.radix[i] % (offer.gpus[i] + 1)
    return digits


@inner
def is_within(digits: Ints, usage: int, room: int) -> bool:
    """Whether a usage is part of another one."""
    for i in range(digits.shape[1]):  # noqa: SIM110  compiled
        if digits[usage, i] > digits[room, i]:
            return False
    return True


@inner
def seconds_for_passes(
    rules: Rules, times: ChainTimes, c: int, shards: int, seconds: float, last: float, whole: float
) -> float:
    """Seconds that a chain's passes may take in a step of less than `seconds`. `last` and `whole`: the first layer's
    sync after the last backward pass, and all of it, at least."""
    after = after_passes(rules, times.update[c] / shards, last, whole - times.backward[c])
    return seconds - times.shared[c] - after


@inner
def most_within(times: ChainTimes, c: int, seconds: float, most: int) -> int:
    """How many microbatches, up to `most`, a chain does in less than `seconds`."""
    while most > 0 and not times.passes[c, most] < seconds:
        most -= 1
    return most


@kernel
def most_microbatches(case: Case, chains: Chains, times: ChainTimes, terms: Terms, seconds: float) -> Ints:
    """[C, 3] how many microbatches a chain can do as one of the replicas, by its times, its GPUs' memory, and each kind
    of sync (see `Bounds`); 0 where it can be none of them. `times` without columns: by what the chains say."""
    tables, offer, sync = case.tables, case.offer, case.bounds.sync
    most = np.empty((chains.stages.shape[0], 3), np.int64)
    for c in range(most.shape[0]):
        m = min(chains.most[c], case.total - terms.replicas + 1)
        a, stages = 0, chains.stages[c]
        for s in range(stages):
            q, b = chains.slot[c, s], chains.last[c, s]
            while m > 0:
                in_flight = min(m, stages - s + terms.extra)
                memory = stage_memory(tables, a, b, offer.ranks[q], in_flight, s + 1 < stages, terms.shards)[0]
                if memory <= tables.capacity[offer.place[q]]:
                    break
                m -= 1
            a = b + 1
        i = offer.local[chains.slot[c, 0]]
        for k in range(3):
            if times.passes.shape[1] > 0:
                spare = seconds_for_passes(tables.rules, times, c, terms.shards, seconds, sync[0, k, i], sync[1, k, i])
                m = most_within(times, c, spare, m)
            most[c, k] = m
    return most


@kernel
def capacities(digits: Ints, usage: Ints, most: Ints, replicas: int) -> Ints:
    """`Capacity.together` for up to so many replicas."""
    size = digits.shape[0]
    best = np.zeros(size, np.int64)
    for c in range(usage.shape[0]):
        best[usage[c]] = max(best[usage[c]], most[c, 0])
    groups: Ints = np.flatnonzero(best)
    together = np.full((replicas + 1, size), -1)
    together[0, :] = 0
    for p in range(1, replicas + 1):
        for room in range(size):
            for u in groups:
                if u <= room and is_within(digits, int(u), room) and together[p - 1, room - u] >= 0:
                    together[p, room] = max(together[p, room], best[u] + together[p - 1, room - u])
    return together


def with_others(capacity: Capacity, usage: Ints, total: int) -> Bools:
    """[C] whether the others, on the GPUs that a chain of this usage leaves, could do the rest of the batch."""
    most = capacity.most[:, 0]
    others = capacity.together[-2, len(capacity.digits) - 1 - usage]
    can: Bools = (most > 0) & (others >= 0) & (most + others >= total)
    return can
