"""Which chains stand side by side as the replicas of a job, compiled.

`best_team` walks over all multisets of chains that can do the whole batch in time and do not share GPUs, and over all
shares of the microbatches among them. Chains are sorted by the GPUs they use: those that use the same are a group, in
which the first can do the most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Encoded, Ints, Rules, Tables
from hulk.cost.compiled import inlined, inner, kernel, maker
from hulk.search.exact.capacity import Capacity, Terms, is_within, most_within, seconds_for_passes
from hulk.search.exact.case import Case, Offer, Room
from hulk.search.exact.chains import FOUND, GAVE_UP, NOTHING, Chains
from hulk.search.exact.orders import Team, best_order, no_team
from hulk.search.exact.sync_bounds import first_bytes, last_bytes, sync_at_least
from hulk.search.exact.timing import ChainTimes

_MOST_STEPS = 1_000_000_000  # of work for one job on one set of machines
_PRICING = 20  # steps that pricing a plan counts for


class _Picking(NamedTuple):
    """Where the walk stands, replica by replica: P of them, of up to N stages in all."""

    at: Ints  # [P] the chain to try next
    picked: Ints  # [P] the chain that is tried
    left: Ints  # [P] GPUs that the replicas before leave, as a usage
    done: Ints  # [P] microbatches that the replicas before can do together, at most
    apart: Ints  # [P] how far the replicas before are from each other: column of `Capacity.most`
    limit: Ints  # [P] microbatches of each, at most, once all are there
    shares: Ints  # [P] microbatches of each that are tried
    rows: Ints  # [N] 0, 1, 2 ...


@maker
def _begin_picking(replicas: int, stages: int, usages: int) -> _Picking:
    picking = _Picking(
        np.zeros(replicas, np.int64),
        np.full(replicas, -1),
        np.zeros(replicas, np.int64),
        np.zeros(replicas, np.int64),
        np.zeros(replicas, np.int64),
        np.zeros(replicas, np.int64),
        np.zeros(replicas, np.int64),
        np.arange(stages),
    )
    picking.left[0] = usages - 1
    return picking


@kernel
def best_team(
    case: Case,
    wide_tables: Tables,
    chains: Chains,
    times: ChainTimes,
    terms: Terms,
    capacity: Capacity,
    room: Room,
    seconds: float,
) -> tuple[int, Team]:
    """The fastest plan of exactly as many replicas as the terms say: FOUND, or NOTHING where none is faster than
    `seconds`, or GAVE_UP after too many steps.

    wide_tables   with network cards and trunks without end: nobody waits for others on the way
    chains        sorted by usage and then by falling `Capacity.most`
    """
    tables, offer, total, replicas = case.tables, case.offer, case.total, terms.replicas
    region, most, count = tables.region, capacity.most, chains.usage.shape[0]
    picking = _begin_picking(replicas, room.plan.machine.shape[0], capacity.digits.shape[0])
    group_end = _group_ends(chains.usage)
    best = no_team(replicas, seconds)
    steps, p = 0, 0
    while p >= 0 and steps <= _MOST_STEPS:
        c = picking.at[p]
        if c >= count:
            p -= 1
            continue
        steps += 1
        usage = chains.usage[c]
        if not is_within(capacity.digits, usage, picking.left[p]):
            picking.at[p] = group_end[c]
            continue
        rest = capacity.together[replicas - p - 1, picking.left[p] - usage]
        if rest < 0 or picking.done[p] + most[c, 0] + rest < total or most[c, 0] < 1:
            picking.at[p] = group_end[c]  # the others of the group can do no more
            continue
        picking.at[p] = c + 1
        picking.picked[p] = c
        apart = max(_distance(region, offer, chains, picking.picked, p), picking.apart[p])
        possible, done = _together(most, picking.picked, p, apart)
        if not possible or done + rest < total:
            continue
        if p + 1 < replicas:
            p += 1
            picking.left[p], picking.done[p], picking.apart[p] = picking.left[p - 1] - usage, done, apart
            picking.at[p] = c
            continue
        # All replicas are there: what the first layer's sync leaves of the time says how many microbatches each can do.
        for o in range(replicas):
            picking.limit[o] = most[picking.picked[o], apart]
        if not _is_long(chains, picking.picked, picking.limit, terms.extra):
            continue
        last, whole = _sync_of_first(tables, offer, chains, picking, room.plan)
        if _lower_limits(tables.rules, times, terms, picking, best.seconds[0], last, whole) >= total:
            steps += _PRICING * _share_out(case, wide_tables, chains, picking, terms.extra, room, best)
    if steps > _MOST_STEPS:
        return GAVE_UP, best
    return FOUND if best.seconds[0] < seconds else NOTHING, best


@maker
def _group_ends(usage: Ints) -> Ints:
    """[C] the chain after the last of each chain's group."""
    count = usage.shape[0]
    ends = np.zeros(count, np.int64)
    for c in range(count - 1, -1, -1):
        same = c + 1 < count and usage[c + 1] == usage[c]
        ends[c] = ends[c + 1] if same else c + 1
    return ends


@inner
def _distance(region: Ints, offer: Offer, chains: Chains, picked: Ints, p: int) -> int:
    """How far replica p's first stage is from those before, at most: 0 on the same machine, 1 in the same region, 2
    further."""
    far = 0
    q = chains.slot[picked[p], 0]
    for o in range(p):
        r = chains.slot[picked[o], 0]
        if region[offer.place[r]] != region[offer.place[q]]:
            return 2
        if offer.local[r] != offer.local[q]:
            far = 1
    return far


@inner
def _together(most: Ints, picked: Ints, p: int, apart: int) -> tuple[bool, int]:
    """(whether all replicas up to p can do some, how many microbatches they can do together), so far apart."""
    together = 0
    for o in range(p + 1):
        m = most[picked[o], apart]
        if m <= 0:
            return False, 0
        together += m
    return True, together


@inner
def _is_long(chains: Chains, picked: Ints, shares: Ints, extra: int) -> bool:
    """Whether some replica with so many microbatches does all extra forwards; otherwise less warm-up comes to the
    same."""
    if extra == 0:
        return True
    for o in range(picked.shape[0]):  # noqa: SIM110  compiled
        if shares[o] > extra and chains.stages[picked[o]] > 1:
            return True
    return False


@maker
def _sync_of_first(
    tables: Tables, offer: Offer, chains: Chains, picking: _Picking, plan: Encoded
) -> tuple[float, float]:
    """(seconds of the first layer's sync after the last backward pass, of all of it), each at least."""
    replicas = picking.picked.shape[0]
    holders = _write_holders(tables, offer, chains, picking.picked, plan)
    split = holders > replicas
    last = sync_at_least(tables, plan, picking.rows[:replicas], last_bytes(tables, split))
    whole = sync_at_least(tables, plan, picking.rows[:replicas], first_bytes(tables, split))
    if split:
        on_top = sync_at_least(tables, plan, picking.rows[:holders], tables.shared * tables.wire_bytes)
        last, whole = last + on_top, whole + on_top
    return last, whole


@inner
def _write_holders(tables: Tables, offer: Offer, chains: Chains, picked: Ints, plan: Encoded) -> int:
    """Write as the plan's first rows the chains' first stages, then the others that hold what layers share, where that
    has a sum of its own. Returns how many rows."""
    count = picked.shape[0]
    for o in range(count):
        q = chains.slot[picked[o], 0]
        plan.machine[o], plan.place[o], plan.ranks[o] = offer.machine[q], offer.place[q], offer.ranks[q]
    if not tables.rules.shares_once or tables.shared == 0.0:
        return count
    for c in picked:
        for s in range(1, chains.stages[c]):
            if tables.tied[chains.last[c, s] + 1] > tables.tied[chains.last[c, s - 1] + 1]:
                q = chains.slot[c, s]
                plan.machine[count], plan.place[count] = offer.machine[q], offer.place[q]
                plan.ranks[count] = offer.ranks[q]
                count += 1
    return count


@inner
def _lower_limits(
    rules: Rules, times: ChainTimes, terms: Terms, picking: _Picking, seconds: float, last: float, whole: float
) -> int:
    """Bring the limits down to what each replica can do in a step of less than `seconds`, with so much sync
    (`_sync_of_first`). Returns how many microbatches all can do together; 0 where one of them can do none."""
    together = 0
    for o in range(terms.replicas):
        c = picking.picked[o]
        spare = seconds_for_passes(rules, times, c, terms.shards, seconds, last, whole)
        picking.limit[o] = most_within(times, c, spare, picking.limit[o])
        if picking.limit[o] < 1:
            return 0
        together += picking.limit[o]
    return together


@inlined
def _share_out(
    case: Case, wide_tables: Tables, chains: Chains, picking: _Picking, extra: int, room: Room, best: Team
) -> int:
    """Every way to share the microbatches among the picked chains, in `best` where it is faster. Returns how many plans
    were priced."""
    replicas, shares, priced = picking.picked.shape[0], picking.shares, 0
    shares[:] = 1
    while True:
        left = case.total
        for o in range(replicas - 1):
            left -= shares[o]
        if 1 <= left <= picking.limit[replicas - 1]:
            shares[replicas - 1] = left
            if _is_sorted(picking.picked, shares) and _is_long(chains, picking.picked, shares, extra):
                priced += best_order(case, wide_tables, chains, picking.picked, shares, extra, room, best)
        if not _next_shares(shares, picking.limit):
            return priced


@inner
def _is_sorted(picked: Ints, shares: Ints) -> bool:
    """Whether of equal chains, which stand together, the first has the most: otherwise it is the same as another."""
    for o in range(picked.shape[0] - 1):  # noqa: SIM110  compiled
        if picked[o] == picked[o + 1] and shares[o] < shares[o + 1]:
            return False
    return True


@inner
def _next_shares(shares: Ints, limit: Ints) -> bool:
    """The next shares of all but the last replica, which takes what is left: like an odometer. False after the last."""
    for o in range(shares.shape[0] - 2, -1, -1):
        shares[o] += 1
        if shares[o] <= limit[o]:
            return True
        shares[o] = 1
    return False
