"""Compiled parts of the exact solver, first half: every pipeline that may be part of an optimal plan, and its times.

A chain is a pipeline with its cuts: slots in the order of the stages and the last layer of each. `list_chains` walks
over all of them depth first and leaves out those that cannot be part of a plan faster than `seconds`. All durations
come from `hulk.cost.step`; what is here is order, bounds and bookkeeping.

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
from numpy.typing import NDArray

from hulk.cost.arrays import SCHEDULE, Durations, Encoded, Tables, transfer_seconds
from hulk.cost.compiled import kernel, lean, maker
from hulk.cost.pipeline import Passes, run_pipeline
from hulk.cost.step import ALL, durations, link_seconds, stage_memory, step_seconds
from hulk.search.fit import set_warmup

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Slots(NamedTuple):
    """The Q different slots that a set of n machines offers."""

    machine: Ints  # [Q] number in the cluster
    local: Ints  # [Q] number in the set
    place: Ints  # [Q] row in the tables
    kind: Ints  # [Q]
    ranks: Ints  # [Q]
    gpus: Ints  # [n]
    radix: Ints  # [n] usage of GPUs as one number: the sum of GPUs × radix
    twin: Ints  # [n] an earlier machine of the set in the same place, or −1


class Bounds(NamedTuple):
    """What every plan needs at least, at one microbatch size."""

    work: Floats  # [L + 1] layers l.. at the fastest kind of each, seconds
    share: Floats  # [L + 1] the part of a microbatch's work in layers l.., by some weights that add up to 1
    rate: Floats  # [n] such parts that one GPU of a machine does in a second, at most
    sync: Floats  # [2, 3, n] seconds to add up the first layer's gradients, at least, after the last backward pass and
    # in all: with any other replica, where some replica starts on another machine, where some starts in another region


class Pool(NamedTuple):
    """Room for C chains."""

    stages: Ints  # [C]
    slot: Ints  # [C, L]
    last: Ints  # [C, L]
    usage: Ints  # [C]
    most: Ints  # [C] microbatches it can do in time, at most


def empty_pool(count: int, layers: int) -> Pool:
    """Room for `count` chains."""
    return Pool(
        np.zeros(count, np.int64),
        np.zeros((count, layers), np.int64),
        np.zeros((count, layers), np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )


@maker
def _at_most(time: float, each: float, most: int) -> int:
    """How many of `each` seconds go into `time`, up to `most`; below 0 where time has run out."""
    if time < 0:
        return -1
    if time >= each * most:
        return most
    return int(time / each)


@kernel
def list_chains(
    tables: Tables,
    slots: Slots,
    bounds: Bounds,
    plan: Encoded,
    out: Durations,
    seconds: float,
    total: int,
    alone: bool,
    shards: int,
    pool: Pool,
) -> int:
    """Fill the pool with the chains that can be in a plan of less than `seconds`. Returns how many there are, which may
    be more than found room.

    total    microbatches of the step
    alone    whether the chain is to be the only replica; otherwise the machines' other GPUs must be able to do the
             microbatches that are left
    shards   replicas that share the optimizer's state, at most
    """
    layers, count = tables.cut.shape[0], 0
    options = slots.machine.shape[0]
    free = slots.gpus.copy()
    users = np.zeros(free.shape[0], np.int64)
    rate_left = 0.0
    for i in range(free.shape[0]):
        rate_left += free[i] * bounds.rate[i]
    choice = np.full(layers + 1, -1)
    taken = np.zeros(layers + 1, np.bool_)
    head, tail = np.zeros(layers), np.zeros(layers)
    forward, backward = np.zeros(layers), np.zeros(layers)
    budget = np.zeros(layers)
    most = np.zeros(layers, np.int64)
    usage = np.zeros(layers + 1, np.int64)
    d = 0
    while d >= 0:
        if taken[d]:
            q = choice[d] // layers
            i = slots.local[q]
            free[i] += slots.ranks[q]
            users[i] -= 1
            rate_left += slots.ranks[q] * bounds.rate[i]
            taken[d] = False
        a = plan.last[d - 1] + 1 if d > 0 else 0
        choice[d] += 1
        if choice[d] >= options * layers:
            choice[d] = -1
            d -= 1
            continue
        q, b = choice[d] // layers, choice[d] % layers
        if b < a:
            choice[d] += a - b - 1
            continue
        i, t, k = slots.local[q], slots.ranks[q], slots.kind[q]
        possible = free[i] >= t
        if possible and alone and users[i] == 0:
            twin = slots.twin[i]
            possible = twin < 0 or users[twin] > 0
        plan.machine[d], plan.place[d], plan.kind[d], plan.ranks[d] = slots.machine[q], slots.place[q], k, t
        plan.first[d], plan.last[d] = a, b
        if possible and d > 0:
            possible = link_seconds(tables, plan, d - 1, out)
        if not possible:
            choice[d] = q * layers + layers - 1
            continue
        sends = b < layers - 1
        memory, params, _, _ = stage_memory(tables, a, b, t, 1, sends, shards)
        if memory > tables.capacity[plan.place[d]]:
            continue
        f = tables.forward[k, b + 1] - tables.forward[k, a] + tables.rules.pass_overhead
        w = tables.backward[k, b + 1] - tables.backward[k, a] + tables.rules.pass_overhead
        if d == 0:
            h, e, m = 0.0, 0.0, total if alone else total - 1
            update = params / shards * tables.update[k]
            if not alone:
                update = after_passes(tables, update, bounds.sync[0, 0, i], bounds.sync[1, 0, i] - w)
            time = seconds - update
        else:
            h = head[d - 1] + forward[d - 1] + out.send_forward[d - 1] + out.latency[d - 1]
            e = tail[d - 1] + backward[d - 1] + out.send_backward[d - 1] + out.latency[d - 1]
            time, m = budget[d - 1], most[d - 1]
            shared = tables.tied[b + 1] - tables.tied[a]
            if shared > 0 and (alone or not tables.rules.shares_once):
                flows = min(t, plan.ranks[0])
                wait, wire = transfer_seconds(tables, plan, d, 0, shared * tables.wire_bytes, flows)
                if not tables.rules.shares_once:
                    time -= 2 * wait + wire
                elif shared == tables.tied[-1]:  # two swap, and this one begins with the step when it first gets work
                    time -= max(0.0, wait + wire - (h if tables.rules.rolls else 0.0))
        rest = time - h - e
        after = bounds.work[b + 1]
        m = _at_most(rest, f + w, m)
        m = min(m, _at_most(rest - w - after, f, m), _at_most(rest - f - after, w, m))
        if d > 0:
            slack = rest - f - w - after
            m = min(
                m, 1 + _at_most(slack, out.send_forward[d - 1], m), 1 + _at_most(slack, out.send_backward[d - 1], m)
            )
        if m < 1:
            continue
        left = rate_left - t * bounds.rate[i]
        if sends:
            if left <= 0:
                continue
            m = min(m, _at_most(rest - f - w, bounds.share[b + 1] / left, m))
        if m < (total if alone else 1) or (not alone and m + seconds * left < total):
            continue
        used = usage[d] + t * slots.radix[i]
        if not sends:
            if count < pool.stages.shape[0]:
                pool.stages[count] = d + 1
                for n in range(d):
                    pool.slot[count, n] = choice[n] // layers
                    pool.last[count, n] = plan.last[n]
                pool.slot[count, d], pool.last[count, d] = q, b
                pool.usage[count], pool.most[count] = used, m
            count += 1
            continue
        free[i] -= t
        users[i] += 1
        rate_left = left
        taken[d] = True
        head[d], tail[d], forward[d], backward[d] = h, e, f, w
        budget[d], most[d], usage[d + 1] = time, m, used
        d += 1
    return count


@kernel
def write_chain(slots: Slots, pool: Pool, c: int, plan: Encoded, begin: int) -> int:
    """Write chain c into a plan as its stages from `begin`. Returns the stage after its last."""
    a = 0
    for s in range(pool.stages[c]):
        q, n = pool.slot[c, s], begin + s
        plan.machine[n], plan.place[n] = slots.machine[q], slots.place[q]
        plan.kind[n], plan.ranks[n] = slots.kind[q], slots.ranks[q]
        plan.first[n], plan.last[n] = a, pool.last[c, s]
        a = pool.last[c, s] + 1
    return begin + pool.stages[c]


@lean
def after_passes(tables: Tables, update: float, last: float, rest: float) -> float:
    """Seconds of a step, at least, after the last backward of a pipeline's first stage: until the first layer is synced
    and updated. `last`: the sync of the last bucket; `rest`: that of all, less that backward, beside which it may be
    under way. Of two that swap, the one that comes late need not wait for the other, which has to wait for it."""
    sync = max(last, rest)
    return max(update, sync) if tables.rules.swaps else update + sync


@kernel
def at_least(plan: Encoded, out: Durations, m: int) -> float:
    """Seconds of the plan's first pipeline for m microbatches, at least, from its durations and its warm-up.

    Seen from a stage, a microbatch is on its way for `around` seconds from the start of its forward to the end of its
    backward, and a forward waits for the backward of the microbatch `warmup` before it.
    """
    stages = plan.starts[1]
    whole = 0.0  # one microbatch alone, through all stages and back
    for s in range(stages):
        whole += out.forward[s] + out.backward[s]
        if s + 1 < stages:
            whole += 2 * out.latency[s] + out.send_forward[s] + out.send_backward[s]
    least, before = whole, 0.0  # before: the way to the stage and back from it
    for s in range(stages):
        work = out.forward[s] + out.backward[s]
        around = whole - before
        least = max(least, before + m * work, whole + (m - 1) // plan.warmup[s] * around)
        least = max(least, whole + (m - 1) * max(out.forward[s], out.backward[s]))
        before += work
        if s + 1 < stages:
            least = max(least, whole + (m - 1) * max(out.send_forward[s], out.send_backward[s]))
            before += 2 * out.latency[s] + out.send_forward[s] + out.send_backward[s]
    return least


@kernel
def best_alone(
    tables: Tables,
    open_tables: Tables,
    slots: Slots,
    pool: Pool,
    count: int,
    plan: Encoded,
    out: Durations,
    scratch: Floats,
    total: int,
    seconds: float,
) -> tuple[float, int, int]:
    """The fastest of the pool's chains as the only replica: (seconds, chain, extra forwards); chain −1 where none is
    faster than `seconds`."""
    best, its_extra = -1, 0
    plan.microbatches[0] = total
    for c in range(count):
        plan.starts[1] = write_chain(slots, pool, c, plan, 0)
        stages = pool.stages[c]
        _, sets, _ = durations(open_tables, plan, out)
        added = out.tie_seconds[1:stages].sum() + out.update[0]
        for extra in range(total if stages > 1 else 1):
            plan.options[SCHEDULE] = extra
            set_warmup(plan, 0, total)
            if not _fits(tables, plan):
                break  # more warm-up takes more memory
            if at_least(plan, out, total) + added >= seconds:
                continue
            trial = step_seconds(tables, plan, out, sets, scratch[0], scratch[1], ALL)
            if trial < seconds:
                seconds, best, its_extra = trial, c, extra
    return seconds, best, its_extra


@maker
def _fits(tables: Tables, plan: Encoded) -> bool:
    """Whether the only replica's stages fit into memory."""
    stages = plan.starts[1]
    for n in range(stages):
        needs = stage_memory(tables, plan.first[n], plan.last[n], plan.ranks[n], plan.warmup[n], n + 1 < stages, 1)[0]
        if needs > tables.capacity[plan.place[n]]:
            return False
    return True


@kernel
def time_chains(
    open_tables: Tables,
    slots: Slots,
    pool: Pool,
    count: int,
    plan: Encoded,
    out: Durations,
    total: int,
    extra: int,
    seconds: float,
    known: Floats,
    times: Floats,
    ends: Floats,
) -> None:
    """Seconds of each chain's pipeline for 1, 2, ... microbatches, inf from where no plan below `seconds` can have it.

    open_tables   with memory without end: memory is checked where the number of replicas is known
    known         [C, total + 1] the same with all the warm-up there can be; without columns: not known
    times         [C, total + 1]
    ends          [C, 3] seconds that a chain's shared parameters add, of its first stage's optimizer, not sharded, and
                  of its first stage's backward
    """
    passes = np.empty((pool.slot.shape[1], 2 * total))
    for c in range(count):
        stages = pool.stages[c]
        plan.starts[1] = write_chain(slots, pool, c, plan, 0)
        durations(open_tables, plan, out)
        fixed = out.tie_seconds[1:stages].sum()
        ends[c, 0], ends[c, 1], ends[c, 2] = fixed, out.update[0], out.backward[0]
        times[c, :] = np.inf
        for m in range(1, min(total - 1, pool.most[c]) + 1):
            if stages == 1:
                times[c, m] = m * (out.forward[0] + out.backward[0])
            elif extra >= m - 1 and known.shape[1] > 0:
                times[c, m] = known[c, m]
            else:
                plan.options[SCHEDULE] = extra
                set_warmup(plan, 0, m)
                if at_least(plan, out, m) + fixed >= seconds:
                    break
                own = Passes(
                    out.forward[:stages], out.backward[:stages], out.latency[:stages], out.send_forward[:stages],
                    out.send_backward[:stages], out.blocking[:stages], plan.warmup[:stages],
                )  # fmt: skip
                run_pipeline(own, m, passes)
                times[c, m] = passes[0, 2 * m - 1]
            if times[c, m] + fixed >= seconds:
                times[c, m] = np.inf
                break


@kernel
def most_microbatches(
    tables: Tables,
    slots: Slots,
    pool: Pool,
    count: int,
    sync: Floats,
    total: int,
    extra: int,
    seconds: float,
    replicas: int,
    shards: int,
    times: Floats,
    ends: Floats,
    most: Ints,
) -> None:
    """most[c, k]: how many microbatches a chain can do as one of that many replicas, with so many shards of the
    optimizer's state, by its times, its GPUs' memory, and the sync of kind k (see `Bounds`); 0 where it can be none of
    them. `times` without columns: by the pool's bound."""
    for c in range(count):
        m = min(pool.most[c], total - replicas + 1)
        a, stages = 0, pool.stages[c]
        for s in range(stages):
            q, b = pool.slot[c, s], pool.last[c, s]
            while m > 0:
                in_flight = min(m, stages - s + extra)
                memory = stage_memory(tables, a, b, slots.ranks[q], in_flight, s + 1 < stages, shards)[0]
                if memory <= tables.capacity[slots.place[q]]:
                    break
                m -= 1
            a = b + 1
        for k in range(3):
            if times.shape[1] > 0:
                i = slots.local[pool.slot[c, 0]]
                after = after_passes(tables, ends[c, 1] / shards, sync[0, k, i], sync[1, k, i] - ends[c, 2])
                spare = seconds - ends[c, 0] - after
                while m > 0 and not times[c, m] < spare:
                    m -= 1
            most[c, k] = m
