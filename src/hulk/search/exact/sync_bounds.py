"""How long adding up gradients takes at least, compiled: in whatever order of the replicas and by whichever way of
sync."""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import Encoded, Ints, Rules, Tables, transfer_seconds
from hulk.cost.compiled import inner, kernel, maker
from hulk.cost.sync import set_bytes


@kernel
def first_bytes(tables: Tables, apart: bool) -> float:
    """Bytes that are added up with the first layer, at least."""
    return set_bytes(tables, 0, 0, apart)


@kernel
def last_bytes(tables: Tables, apart: bool) -> float:
    """Bytes of these that are added up after all backward passes, at least: all of them, or the last bucket."""
    size = set_bytes(tables, 0, 0, apart)
    return min(size, tables.rules.bucket / 2) if tables.rules.overlap_sync else size


@inner
def after_passes(rules: Rules, update: float, last: float, rest: float) -> float:
    """Seconds of a step, at least, after the last backward of a pipeline's first stage: until the first layer is synced
    and updated. `last`: the sync of the last bucket; `rest`: that of all, less that backward, beside which it may be
    under way. Of two that swap, the one that comes late need not wait for the other, which has to wait for it."""
    sync = max(last, rest)
    return max(update, sync) if rules.swaps else update + sync


@maker
def sync_at_least(tables: Tables, plan: Encoded, members: Ints, size: float) -> float:
    """Seconds to add up `size` bytes among these stages, at least."""
    ring = _ring_at_least(tables, plan, members, size)
    of = np.empty(members.shape[0], np.int64)
    regions = _number_regions(tables, plan, members, of)
    if regions == members.shape[0]:
        return ring  # region by region is the same thing
    # Region by region: chains inside regions, then a ring of one member each, as near as any two of theirs are.
    inside = 0.0
    for r in range(regions):
        mine = members[of == r]
        if mine.shape[0] > 1:
            wire, wait = _tree(tables, plan, mine, size)
            inside = max(inside, wire + wait)
    across = _across_at_least(tables, plan, members, of, size) if regions > 1 else 0.0
    return min(ring, 2 * inside + across)


@inner
def _hop(tables: Tables, plan: Encoded, a: int, b: int, size: float) -> tuple[float, float]:
    """(latency, seconds on the wire) between two stages."""
    flows = min(plan.ranks[a], plan.ranks[b])
    return transfer_seconds(tables, plan, a, b, size, flows)


@maker
def _ring_at_least(tables: Tables, plan: Encoded, members: Ints, size: float) -> float:
    """Seconds of a ring of these stages, at least."""
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
    return 2 * (n - 1) / n * (wire + wait)


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


@inner
def _number_regions(tables: Tables, plan: Encoded, members: Ints, of: Ints) -> int:
    """Number the stages' regions in the order they come, into `of`. Returns how many there are."""
    regions = 0
    for i in range(members.shape[0]):
        of[i] = -1
        for j in range(i):
            if tables.region[plan.place[members[j]]] == tables.region[plan.place[members[i]]]:
                of[i] = of[j]
                break
        if of[i] < 0:
            of[i] = regions
            regions += 1
    return regions


@inner
def _across_at_least(tables: Tables, plan: Encoded, members: Ints, of: Ints, size: float) -> float:
    """Seconds of a ring of one stage of each region, at least. `of`: the stages' regions, by number."""
    n = members.shape[0]
    regions = 0
    for i in range(n):
        regions = max(regions, of[i] + 1)
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
    return 2 * (regions - 1) / regions * (slowest + waits)
