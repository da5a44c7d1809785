"""Compiled parts of the exact solver, second half: which chains stand side by side as the replicas of a job.

Chains are grouped by the GPUs they use. `capacities` says how many microbatches p chains can do together on given GPUs
at most; `combine` walks over all multisets of chains that can do the whole batch in time and do not share GPUs, over
all shares of the microbatches among them, and over all orders of the replicas where the order matters to the sync.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import BY_REGION, FITS, RING, SCHEDULE, SHARD, SYNC, Durations, Encoded, Tables, transfer_seconds
from hulk.cost.compiled import kernel, maker
from hulk.cost.step import ALL, durations, seconds_of, step_seconds
from hulk.cost.sync import is_apart, set_bytes, shared_holders
from hulk.search.exact.chains import Floats, Ints, Pool, Slots, after_passes, write_chain
from hulk.search.fit import set_warmup


class Found(NamedTuple):
    """The best combination so far: `chain`, `share` and `order` have room for every replica."""

    chain: Ints
    share: Ints
    by_region: Ints  # [1] 0 or 1


@kernel
def digits_of(slots: Slots) -> Ints:
    """[usage, n] GPUs of each machine for every usage number."""
    n = slots.gpus.shape[0]
    size = 1
    for i in range(n):
        size *= slots.gpus[i] + 1
    digits = np.zeros((size, n), np.int64)
    for u in range(size):
        for i in range(n):
            digits[u, i] = u // slots.radix[i] % (slots.gpus[i] + 1)
    return digits


@maker
def _within(digits: Ints, u: int, room: int) -> bool:
    for i in range(digits.shape[1]):  # noqa: SIM110  compiled
        if digits[u, i] > digits[room, i]:
            return False
    return True


@kernel
def capacities(digits: Ints, usage: Ints, most: Ints, replicas: int) -> Ints:
    """[p, usage] the most microbatches that p chains do together on GPUs within a usage; −1 where p do not find
    room."""
    size = digits.shape[0]
    best = np.zeros(size, np.int64)
    for c in range(usage.shape[0]):
        best[usage[c]] = max(best[usage[c]], most[c, 0])
    groups: Ints = np.flatnonzero(best)
    found = np.full((replicas + 1, size), -1)
    found[0, :] = 0
    for p in range(1, replicas + 1):
        for room in range(size):
            for u in groups:
                if u <= room and _within(digits, int(u), room) and found[p - 1, room - u] >= 0:
                    found[p, room] = max(found[p, room], best[u] + found[p - 1, room - u])
    return found


@maker
def _tree(tables: Tables, plan: Encoded, members: Ints, size: float) -> tuple[float, float]:
    """(seconds on the wire of the worst hop, latency of all hops together), each at least, of any walk that visits all
    members: the worst edge, and all edges, of the tree of shortest edges."""
    n = members.shape[0]
    wire_to, wait_to = np.full(n, np.inf), np.full(n, np.inf)
    worst_wire, all_waits = 0.0, 0.0
    for which in range(2):
        to = wire_to if which == 0 else wait_to
        done = np.zeros(n, np.bool_)
        at = 0
        for _ in range(n - 1):
            done[at] = True
            nearest = -1
            for j in range(n):
                if done[j]:
                    continue
                wait, wire = _hop(tables, plan, members[at], members[j], size)
                to[j] = min(to[j], wire if which == 0 else wait)
                if nearest < 0 or to[j] < to[nearest]:
                    nearest = j
            at = nearest
            if which == 0:
                worst_wire = max(worst_wire, to[at])
            else:
                all_waits += to[at]
    return worst_wire, all_waits


@maker
def _hop(tables: Tables, plan: Encoded, a: int, b: int, size: float) -> tuple[float, float]:
    flows = min(plan.ranks[a], plan.ranks[b])
    return transfer_seconds(tables, plan, a, b, size, flows)


@kernel
def first_bytes(tables: Tables, apart: bool) -> float:
    """Bytes that are added up with the first layer, at least."""
    return set_bytes(tables, 0, 0, apart)


@kernel
def last_bytes(tables: Tables, apart: bool) -> float:
    """Bytes of these that are added up after all backward passes, at least: all of them, or the last bucket."""
    size = set_bytes(tables, 0, 0, apart)
    return min(size, tables.rules.bucket / 2) if tables.rules.overlap_sync else size


@kernel
def sync_at_least(tables: Tables, plan: Encoded, members: Ints, size: float) -> float:
    """Seconds to add up `size` bytes among these stages, at least, in whatever order and by whichever way of sync."""
    n = members.shape[0]
    wire, wait = 0.0, 0.0
    if n <= 3:  # every two of them are neighbours in the ring
        for i in range(n):
            for j in range(i):
                between, on = _hop(tables, plan, members[i], members[j], size)
                wire = max(wire, on)
                wait += between if n == 3 or tables.rules.swaps else 2 * between
    else:
        wire, wait = _tree(tables, plan, members, size)
    ring = 2 * (n - 1) / n * (wire + wait)
    # Region by region: chains inside regions, then a ring of one member each, as near as any two of theirs are.
    regions = 0
    of = np.zeros(n, np.int64)
    for i in range(n):
        of[i] = -1
        for j in range(i):
            if tables.region[plan.place[members[j]]] == tables.region[plan.place[members[i]]]:
                of[i] = of[j]
                break
        if of[i] < 0:
            of[i] = regions
            regions += 1
    if regions == n:
        return ring  # the same thing
    inside = 0.0
    for r in range(regions):
        mine = members[of == r]
        if mine.shape[0] > 1:
            wire, wait = _tree(tables, plan, mine, size)
            inside = max(inside, wire + wait)
    across = 0.0
    if regions > 1:
        slowest, waits = 0.0, 0.0  # a region has two of the ring's hops, each of which two regions have
        for r in range(regions):
            wire, wait = np.inf, np.inf
            for i in range(n):
                for j in range(n):
                    if of[i] == r and of[j] != r:
                        between, on = _hop(tables, plan, members[i], members[j], size)
                        wire, wait = min(wire, on), min(wait, between)
            slowest = max(slowest, wire)
            waits += wait
        if regions == 2 and tables.rules.swaps:
            waits /= 2
        across = 2 * (regions - 1) / regions * (slowest + waits)
    return min(ring, 2 * inside + across)


@maker
def _write(slots: Slots, pool: Pool, chains: Ints, shares: Ints, extra: int, plan: Encoded) -> None:
    begin = 0
    for p in range(chains.shape[0]):
        plan.starts[p] = begin
        begin = write_chain(slots, pool, chains[p], plan, begin)
        plan.starts[p + 1] = begin
        plan.microbatches[p] = shares[p]
        plan.options[SCHEDULE] = extra
        set_warmup(plan, p, shares[p])


@maker
def _write_holders(tables: Tables, slots: Slots, pool: Pool, chains: Ints, plan: Encoded) -> int:
    """Write as the plan's first rows the chains' first stages, then the others that hold what layers share, where that
    has a sum of its own. Returns how many rows."""
    count = chains.shape[0]
    for o in range(count):
        q = pool.slot[chains[o], 0]
        plan.machine[o], plan.place[o], plan.ranks[o] = slots.machine[q], slots.place[q], slots.ranks[q]
    if not tables.rules.shares_once or tables.shared == 0.0:
        return count
    for o in range(chains.shape[0]):
        c = chains[o]
        for s in range(1, pool.stages[c]):
            if tables.tied[pool.last[c, s] + 1] > tables.tied[pool.last[c, s - 1] + 1]:
                q = pool.slot[c, s]
                plan.machine[count], plan.place[count] = slots.machine[q], slots.place[q]
                plan.ranks[count] = slots.ranks[q]
                count += 1
    return count


@maker
def _optimistic(tables: Tables, plan: Encoded, out: Durations, scratch: Floats) -> float:
    """Seconds of a step with every gradient set at its best order and the way to itself; inf where the plan cannot
    run."""
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
    return step_seconds(tables, plan, out, sets, scratch[0], scratch[1], ALL)


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


@maker
def _classes(slots: Slots, pool: Pool, chains: Ints) -> Ints:
    """Chains that have every layer on the same machine get the same number: their order does not matter."""
    count = chains.shape[0]
    label = np.zeros(count, np.int64)
    known = 0
    for p in range(count):
        label[p] = -1
        for o in range(p):
            a, b = chains[p], chains[o]
            s, r, same = 0, 0, True
            while same and s < pool.stages[a]:
                same = slots.machine[pool.slot[a, s]] == slots.machine[pool.slot[b, r]]
                ends_s, ends_r = pool.last[a, s], pool.last[b, r]
                s += ends_s <= ends_r
                r += ends_r <= ends_s
            if same:
                label[p] = label[o]
                break
        if label[p] < 0:
            label[p] = known
            known += 1
    return label


@maker
def _orders(
    tables: Tables,
    wide_tables: Tables,
    slots: Slots,
    pool: Pool,
    chains: Ints,
    shares: Ints,
    extra: int,
    plan: Encoded,
    out: Durations,
    scratch: Floats,
    seconds: float,
    found: Found,
) -> tuple[float, int]:
    """The best order of the replicas and way of sync: (seconds, plans priced). Fills `found` where it is below."""
    replicas = chains.shape[0]
    _write(slots, pool, chains, shares, extra, plan)
    priced = 1
    apart = is_apart(tables, plan)  # then two stages of a pipeline are in one ring: it is another in another order
    if _optimistic(wide_tables, plan, out, scratch) >= seconds:
        return seconds, priced
    label = _classes(slots, pool, chains)
    order = np.sort(label)
    first = True
    mine, its = np.empty(replicas, np.int64), np.empty(replicas, np.int64)
    while True:
        used = np.zeros(replicas, np.bool_)
        for p in range(replicas):
            for o in range(replicas):
                if not used[o] and label[o] == order[p]:
                    used[o] = True
                    mine[p], its[p] = chains[o], shares[o]
                    break
        _write(slots, pool, mine, its, extra, plan)
        for by_region in (False, True):
            if not by_region and not first and ((replicas <= 3 and not apart) or order[0] > 0):
                continue  # a ring may start anywhere, and three have but one
            priced += 1
            plan.options[SYNC] = BY_REGION if by_region else RING
            trial = seconds_of(tables, plan, out, scratch)
            if 0 <= trial < seconds:
                seconds = trial
                found.chain[:replicas] = mine
                found.share[:replicas] = its
                found.by_region[0] = by_region
        first = False
        if (replicas == 2 and not apart) or not _next_order(order):
            return seconds, priced


@kernel
def combine(
    tables: Tables,
    wide_tables: Tables,
    slots: Slots,
    pool: Pool,
    digits: Ints,
    most: Ints,
    can: Ints,
    times: Floats,
    ends: Floats,
    total: int,
    extra: int,
    plan: Encoded,
    out: Durations,
    scratch: Floats,
    seconds: float,
    found: Found,
    budget: int,
) -> tuple[float, int]:
    """The fastest plan of exactly as many replicas as `plan` has room for, of the pool's chains, which are sorted by
    usage and then by falling `most`: (seconds, steps of work done). Stops once `budget` steps are done.

    wide_tables  with network cards and trunks without end: nobody waits for others on the way
    most   [C, 3] microbatches a chain can do, at most: anyhow, beside replicas on other machines, in other regions
    can    what `capacities` says
    """
    replicas = plan.microbatches.shape[0]
    count = pool.usage.shape[0]
    room = np.zeros(replicas + 1, np.int64)
    room[0] = digits.shape[0] - 1
    done = np.zeros(replicas + 1, np.int64)
    spread = np.zeros(replicas + 1, np.int64)
    chains = np.full(replicas, -1)
    at = np.zeros(replicas, np.int64)
    limit, shares = np.zeros(replicas, np.int64), np.zeros(replicas, np.int64)
    rows = np.arange(plan.machine.shape[0])
    group_end = np.zeros(count, np.int64)
    for c in range(count - 1, -1, -1):
        same = c + 1 < count and pool.usage[c + 1] == pool.usage[c]
        group_end[c] = group_end[c + 1] if same else c + 1
    shards = replicas if plan.options[SHARD] == 1 else 1
    steps = 0
    p = 0
    while p >= 0:
        c = at[p]
        if c >= count:
            p -= 1
            continue
        steps += 1
        if steps > budget:
            break
        u = pool.usage[c]
        if not _within(digits, u, room[p]):
            at[p] = group_end[c]
            continue
        rest = can[replicas - p - 1, room[p] - u]
        if rest < 0 or done[p] + most[c, 0] + rest < total or most[c, 0] < 1:
            at[p] = group_end[c]  # the others of the group can do no more
            continue
        at[p] = c + 1
        chains[p] = c
        apart, long = 0, extra == 0
        q = pool.slot[c, 0]
        for o in range(p + 1):
            r = pool.slot[chains[o], 0]
            if tables.region[slots.place[r]] != tables.region[slots.place[q]]:
                apart = 2
            elif slots.local[r] != slots.local[q]:
                apart = max(apart, 1)
        apart = max(apart, spread[p])
        together = 0
        for o in range(p + 1):
            m = most[chains[o], apart]
            long |= m > extra and pool.stages[chains[o]] > 1
            together = together + m if m > 0 and together >= 0 else -1
        if together < 0 or together + rest < total:
            continue
        if p + 1 < replicas:
            room[p + 1] = room[p] - u
            done[p + 1] = together
            spread[p + 1] = apart
            at[p + 1] = c
            p += 1
            continue
        if not long:
            continue  # less warm-up comes to the same
        # All replicas are there: what the first layer's sync leaves of the time says how many microbatches each can do.
        holders = _write_holders(tables, slots, pool, chains, plan)
        split = holders > replicas
        last = sync_at_least(tables, plan, rows[:replicas], last_bytes(tables, split))
        whole = sync_at_least(tables, plan, rows[:replicas], first_bytes(tables, split))
        if split:
            on_top = sync_at_least(tables, plan, rows[:holders], tables.shared * tables.wire_bytes)
            last, whole = last + on_top, whole + on_top
        together = 0
        for o in range(replicas):
            x = chains[o]
            spare = seconds - ends[x, 0] - after_passes(tables, ends[x, 1] / shards, last, whole - ends[x, 2])
            m = most[x, apart]
            while m > 0 and not times[x, m] < spare:
                m -= 1
            limit[o] = m
            if m < 1:
                together = -1
                break
            together += m
        if together < total:
            continue
        # Every way to share: like an odometer, the last replica takes what is left.
        shares[:] = 1
        while True:
            left = total
            for o in range(replicas - 1):
                left -= shares[o]
            if 1 <= left <= limit[replicas - 1]:
                shares[replicas - 1] = left
                new = extra == 0
                for o in range(replicas):  # where no long pipeline has more, less warm-up comes to the same
                    new |= shares[o] > extra and pool.stages[chains[o]] > 1
                for o in range(replicas - 1):
                    new &= chains[o] != chains[o + 1] or shares[o] >= shares[o + 1]
                if new:
                    seconds, priced = _orders(
                        tables, wide_tables, slots, pool, chains, shares, extra, plan, out, scratch, seconds, found
                    )
                    steps += 20 * priced
            o = replicas - 2
            while o >= 0:
                shares[o] += 1
                if shares[o] <= limit[o]:
                    break
                shares[o] = 1
                o -= 1
            if o < 0:
                break
    return seconds, steps
