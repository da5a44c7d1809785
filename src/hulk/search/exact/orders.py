"""The order of a job's replicas, compiled: over all orders that the gradient sync can tell apart, and both ways of
sync."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import BY_REGION, FITS, RING, SCHEDULE, SYNC, Bools, Encoded, Floats, Ints, Tables
from hulk.cost.compiled import inlined, inner, maker
from hulk.cost.step import ALL, durations, seconds_in, step_seconds
from hulk.cost.sync import is_apart, set_bytes, shared_holders
from hulk.search.cut import set_warmup
from hulk.search.exact.case import Case, Offer, Room
from hulk.search.exact.chains import Chains, write_chain
from hulk.search.exact.sync_bounds import sync_at_least


class Team(NamedTuple):
    """The best replicas so far, in their order; changed in place."""

    seconds: Floats  # [1] of a step, or what is to be beaten
    chains: Ints  # [P]
    shares: Ints  # [P] microbatches
    by_region: Bools  # [1] way of sync


@maker
def no_team(replicas: int, seconds: float) -> Team:
    """Room for that many replicas, which must be faster than `seconds`."""
    return Team(np.full(1, seconds), np.zeros(replicas, np.int64), np.zeros(replicas, np.int64), np.zeros(1, np.bool_))


@maker
def best_order(
    case: Case, wide_tables: Tables, chains: Chains, picked: Ints, shares: Ints, extra: int, room: Room, best: Team
) -> int:
    """Bring the picked chains into the best order and choose the way of sync; kept in `best` where that is faster.
    Returns how many plans were priced.

    wide_tables   with network cards and trunks without end: nobody waits for others on the way
    """
    tables, offer, plan = case.tables, case.offer, room.plan
    replicas = picked.shape[0]
    plan.options[SCHEDULE] = extra
    _write(offer, chains, picked, shares, plan)
    priced = 1
    apart = is_apart(tables, plan)  # then two stages of a pipeline are in one ring: it is another in another order
    if _optimistic(wide_tables, room) >= best.seconds[0]:
        return priced
    label = _classes(offer, chains, picked)
    order = np.sort(label)
    first = True
    mine, its = np.empty(replicas, np.int64), np.empty(replicas, np.int64)
    used = np.empty(replicas, np.bool_)
    while True:
        used[:] = False
        for p in range(replicas):
            for o in range(replicas):
                if not used[o] and label[o] == order[p]:
                    used[o] = True
                    mine[p], its[p] = picked[o], shares[o]
                    break
        _write(offer, chains, mine, its, plan)
        for by_region in (False, True):
            if not by_region and not first and ((replicas <= 3 and not apart) or order[0] > 0):
                continue  # a ring may start anywhere, and three have but one
            priced += 1
            plan.options[SYNC] = BY_REGION if by_region else RING
            trial = seconds_in(tables, plan, room.out, room.scratch)
            if 0 <= trial < best.seconds[0]:
                best.seconds[0], best.by_region[0] = trial, by_region
                best.chains[:] = mine
                best.shares[:] = its
        first = False
        if (replicas == 2 and not apart) or not _next_order(order):
            return priced


@inner
def _write(offer: Offer, chains: Chains, picked: Ints, shares: Ints, plan: Encoded) -> None:
    """Write the picked chains into a plan, in this order."""
    begin = 0
    for p in range(picked.shape[0]):
        plan.starts[p] = begin
        begin = write_chain(offer, chains, picked[p], plan, begin)
        plan.starts[p + 1] = begin
        plan.microbatches[p] = shares[p]
        set_warmup(plan, p, shares[p])


@inlined
def _optimistic(tables: Tables, room: Room) -> float:
    """Seconds of a step of the plan with every gradient set at its best order and the way to itself; inf where it
    cannot run."""
    plan, out = room.plan, room.out
    status, sets, _ = durations(tables, plan, out)
    if status != FITS:
        return np.inf
    replicas = plan.microbatches.shape[0]
    members = np.empty(replicas, np.int64)
    apart = is_apart(tables, plan)
    for i in range(sets):
        a, b = out.set_first[i], out.set_last[i]
        for p in range(replicas):
            n = plan.starts[p]
            while plan.last[n] < a:
                n += 1
            members[p] = n
        least = sync_at_least(tables, plan, members, set_bytes(tables, a, b, apart))
        out.set_seconds[i] = min(out.set_seconds[i], least)
        out.set_wait[i] = 0.0
    if apart:
        size = tables.shared * tables.wire_bytes
        out.tie_seconds[0] = min(out.tie_seconds[0], sync_at_least(tables, plan, shared_holders(tables, plan), size))
    return step_seconds(tables, plan, out, sets, room.scratch[0], room.scratch[1], ALL)


@maker
def _classes(offer: Offer, chains: Chains, picked: Ints) -> Ints:
    """Chains that have every layer on the same machine get the same number: their order does not matter."""
    count = picked.shape[0]
    label = np.zeros(count, np.int64)
    known = 0
    for p in range(count):
        label[p] = -1
        for o in range(p):
            if _same_machines(offer, chains, picked[p], picked[o]):
                label[p] = label[o]
                break
        if label[p] < 0:
            label[p] = known
            known += 1
    return label


@inner
def _same_machines(offer: Offer, chains: Chains, a: int, b: int) -> bool:
    """Whether two chains have every layer on the same machine."""
    s, r = 0, 0
    while s < chains.stages[a]:
        if offer.machine[chains.slot[a, s]] != offer.machine[chains.slot[b, r]]:
            return False
        ends_s, ends_r = chains.last[a, s], chains.last[b, r]
        s += ends_s <= ends_r
        r += ends_r <= ends_s
    return True


@maker
def _next_order(labels: Ints) -> bool:
    """The next order of the labels, as a dictionary would have it; False after the last."""
    i = labels.shape[0] - 2
    while i >= 0 and labels[i] >= labels[i + 1]:
        i -= 1
    if i < 0:
        return False
    j = labels.shape[0] - 1
    while labels[j] <= labels[i]:
        j -= 1
    labels[i], labels[j] = labels[j], labels[i]
    labels[i + 1 :] = labels[i + 1 :][::-1].copy()
    return True
