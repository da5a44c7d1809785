"""Every chain that may be part of an optimal plan, compiled.

`list_chains` walks over all chains depth first, stage by stage, and leaves out those that cannot be part of a plan
faster than `seconds`. All durations come from `hulk.cost.step`; what is here is order, bounds and bookkeeping.

How many microbatches m a chain can do in a given time is bounded from above, for every stage s of the chain, by

    head + m × (forward + backward) + tail            ≤ time
    head + m × forward + what follows once + backward + tail ≤ time    (and with forward and backward exchanged)
    head of a link + m × its transfer + ... + tail of a link ≤ time

where head is the way of the first microbatch to the stage, tail the way of the last gradient from it to the first
stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Bools, Encoded, Floats, Ints, Tables, transfer_seconds
from hulk.cost.compiled import inner, kernel, maker
from hulk.cost.step import link_seconds, stage_memory
from hulk.search.exact.case import Case, Offer, Room, room_for
from hulk.search.exact.chains import Chains, empty_chains, rows_of, write_stage
from hulk.search.exact.mode import Mode
from hulk.search.exact.size import MOST_CHAINS, too_many_plans
from hulk.search.exact.sync_bounds import after_passes

_FIRST_ROOM = 4096


class Lister:
    """Lists the chains of a job with so many layers, in room that is kept from one time to the next."""

    def __init__(self, layers: int) -> None:
        self._chains = empty_chains(_FIRST_ROOM, layers)

    def chains(self, mode: Mode, case: Case, seconds: float, *, alone: bool, shards: int) -> Chains:
        """All chains that may be in a plan faster than `seconds`; good until it is asked again. InputError where there
        are too many."""
        while True:
            count = list_chains(case, self._chains, room_for(mode.options, 1, mode.layers), seconds, alone, shards)
            if count <= len(self._chains.stages):
                return rows_of(self._chains, slice(count))
            if count > MOST_CHAINS:
                raise too_many_plans(mode.space.job)
            self._chains = empty_chains(count + count // 4, mode.layers)


class _Walk(NamedTuple):
    """Where the walk stands: per stage, up to L of them, and per machine of the set, n of them."""

    choice: Ints  # [L + 1] what is tried: slot × L + last layer; −1: nothing yet
    taken: Bools  # [L + 1] whether the GPUs of the choice are in use
    usage: Ints  # [L + 1] GPUs of the stages before, as one number
    most: Ints  # [L] microbatches that the stages up to this one can do in time, at most
    budget: Floats  # [L] seconds there are for the passes
    head: Floats  # [L] seconds until the first microbatch is there
    tail: Floats  # [L] seconds from the end of the last backward until that of the first stage's
    forward: Floats  # [L] seconds
    backward: Floats  # [L]
    free: Ints  # [n] GPUs that are not in use
    users: Ints  # [n] stages on the machine


@maker
def _begin_walk(offer: Offer, layers: int) -> _Walk:
    return _Walk(
        np.full(layers + 1, -1),
        np.zeros(layers + 1, np.bool_),
        np.zeros(layers + 1, np.int64),
        np.zeros(layers, np.int64),
        np.zeros(layers),
        np.zeros(layers),
        np.zeros(layers),
        np.zeros(layers),
        np.zeros(layers),
        offer.gpus.copy(),
        np.zeros(offer.gpus.shape[0], np.int64),
    )


@inner
def _at_most(time: float, each: float, most: int) -> int:
    """How many of `each` seconds go into `time`, up to `most`; below 0 where time has run out."""
    if time < 0:
        return -1
    if time >= each * most:
        return most
    return int(time / each)


@inner
def _through_stage(rest: float, forward: float, backward: float, after: float, most: int) -> int:
    """How many microbatches, up to `most`, a stage does in `rest` seconds. `after`: seconds of one microbatch in the
    stages behind it, at least."""
    m = _at_most(rest, forward + backward, most)
    return min(m, _at_most(rest - backward - after, forward, m), _at_most(rest - forward - after, backward, m))


@inner
def _over_link(slack: float, forward: float, backward: float, most: int) -> int:
    """How many microbatches, up to `most`, a link that takes so long for one carries forward, and back, while `slack`
    seconds are left to those after the first."""
    return min(most, 1 + _at_most(slack, forward, most), 1 + _at_most(slack, backward, most))


@inner
def _may_take(offer: Offer, walk: _Walk, q: int, alone: bool) -> bool:
    """Whether slot q's GPUs are free. Of machines that are alike, the only replica takes the first ones first."""
    i = offer.local[q]
    if walk.free[i] < offer.ranks[q]:
        return False
    twin = offer.twin[i]
    return not alone or walk.users[i] > 0 or twin < 0 or walk.users[twin] > 0


@inner
def _tie_at_least(tables: Tables, plan: Encoded, d: int, head: float, alone: bool) -> float:
    """Seconds that a step takes longer, at least, because stage d shares parameters with the first."""
    shared = tables.tied[plan.last[d] + 1] - tables.tied[plan.first[d]]
    if shared <= 0 or (tables.rules.shares_once and not alone):
        return 0.0
    flows = min(plan.ranks[d], plan.ranks[0])
    wait, wire = transfer_seconds(tables, plan, d, 0, shared * tables.wire_bytes, flows)
    if not tables.rules.shares_once:
        return 2 * wait + wire
    if shared == tables.tied[-1]:  # two swap, and this one begins with the step when it first gets work
        return max(0.0, wait + wire - (head if tables.rules.rolls else 0.0))
    return 0.0


@inner
def _keep(chains: Chains, c: int, walk: _Walk, plan: Encoded, d: int) -> None:
    """Keep the stages up to d as chain c."""
    layers = chains.slot.shape[1]
    chains.stages[c] = d + 1
    for s in range(d + 1):
        chains.slot[c, s] = walk.choice[s] // layers
        chains.last[c, s] = plan.last[s]


@kernel
def list_chains(case: Case, chains: Chains, room: Room, seconds: float, alone: bool, shards: int) -> int:
    """Fill `chains` with those that can be in a plan of less than `seconds`. Returns how many there are, which may be
    more than found room.

    alone    whether the chain is to be the only replica; otherwise the machines' other GPUs must be able to do the
             microbatches that are left
    shards   replicas that share the optimizer's state, at most
    """
    return _walk_over(case, chains, room, _begin_walk(case.offer, case.tables.cut.shape[0]), seconds, alone, shards)


@inner
def _walk_over(case: Case, chains: Chains, room: Room, walk: _Walk, seconds: float, alone: bool, shards: int) -> int:
    """`list_chains`, with room for the walk: apart, so that no references are counted."""
    tables, offer, bounds, total = case.tables, case.offer, case.bounds, case.total
    plan, out = room.plan, room.out
    layers, options = tables.cut.shape[0], offer.machine.shape[0]
    rate_left = 0.0
    for i in range(offer.gpus.shape[0]):
        rate_left += offer.gpus[i] * bounds.rate[i]
    count, d = 0, 0
    while d >= 0:
        if walk.taken[d]:
            q = walk.choice[d] // layers
            i = offer.local[q]
            walk.free[i] += offer.ranks[q]
            walk.users[i] -= 1
            rate_left += offer.ranks[q] * bounds.rate[i]
            walk.taken[d] = False
        walk.choice[d] += 1
        if walk.choice[d] >= options * layers:
            walk.choice[d] = -1
            d -= 1
            continue
        a = plan.last[d - 1] + 1 if d > 0 else 0
        q, b = walk.choice[d] // layers, walk.choice[d] % layers
        if b < a:
            walk.choice[d] += a - b - 1
            continue
        if tables.held_until.shape[0] > 0 and tables.held_until[offer.place[q], a] < b:
            walk.choice[d] = q * layers + layers - 1  # not with more layers either
            continue
        write_stage(offer, q, plan, d, a, b)
        if not _may_take(offer, walk, q, alone) or (d > 0 and not link_seconds(tables, plan, d - 1, out)):
            walk.choice[d] = q * layers + layers - 1  # not with other layers either
            continue
        i, t, k = offer.local[q], offer.ranks[q], offer.kind[q]
        sends = b < layers - 1
        memory, params, _, _ = stage_memory(tables, a, b, t, 1, sends, shards)
        if memory > tables.capacity[offer.place[q]]:
            continue
        forward = tables.forward[k, b + 1] - tables.forward[k, a] + tables.rules.pass_overhead
        backward = tables.backward[k, b + 1] - tables.backward[k, a] + tables.rules.pass_overhead
        if d == 0:
            head, tail, m = 0.0, 0.0, total if alone else total - 1
            update = params / shards * tables.update[k]
            if not alone:
                update = after_passes(tables.rules, update, bounds.sync[0, 0, i], bounds.sync[1, 0, i] - backward)
            budget = seconds - update
        else:
            head = walk.head[d - 1] + walk.forward[d - 1] + out.send_forward[d - 1] + out.latency[d - 1]
            tail = walk.tail[d - 1] + walk.backward[d - 1] + out.send_backward[d - 1] + out.latency[d - 1]
            budget, m = walk.budget[d - 1] - _tie_at_least(tables, plan, d, head, alone), walk.most[d - 1]
        rest, after = budget - head - tail, bounds.work[b + 1]
        m = _through_stage(rest, forward, backward, after, m)
        if d > 0:
            m = _over_link(rest - forward - backward - after, out.send_forward[d - 1], out.send_backward[d - 1], m)
        if m < 1:
            continue
        left = rate_left - t * bounds.rate[i]
        if sends:
            if left <= 0:
                continue
            m = min(m, _at_most(rest - forward - backward, bounds.share[b + 1] / left, m))
        if m < (total if alone else 1) or (not alone and m + seconds * left < total):
            continue
        usage = walk.usage[d] + t * offer.radix[i]
        if not sends:
            if count < chains.stages.shape[0]:
                _keep(chains, count, walk, plan, d)
                chains.usage[count], chains.most[count] = usage, m
            count += 1
            continue
        walk.free[i] -= t
        walk.users[i] += 1
        rate_left = left
        walk.taken[d] = True
        walk.head[d], walk.tail[d], walk.forward[d], walk.backward[d] = head, tail, forward, backward
        walk.budget[d], walk.most[d], walk.usage[d + 1] = budget, m, usage
        d += 1
    return count
