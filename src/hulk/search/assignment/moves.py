"""Changes to who has which machine, compiled: groups drawn at random, and moves from one deal to the next. A move works
on `owner` in place and notes which jobs it touches; it returns how many, 0 where nothing came of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, kernel, lean, maker
from hulk.search.deals import Deal, keep_pins
from hulk.search.learned import Learned
from hulk.search.results import OPEN
from hulk.search.tables import SearchTables

_BY_WHAT_IS_KNOWN = 0.5  # of the moves follow good deals
_TRIES = 20
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# What may change, and how likely one is drawn beside the others.
MOVES = {"recipe": 25, "exchange": 5, "relocate": 7, "shrink": 4, "swap": 19, "give": 40}
RECIPE, EXCHANGE, RELOCATE, SHRINK, SWAP, GIVE = range(len(MOVES))
_CHANCES = np.cumsum(list(MOVES.values())) / sum(MOVES.values())


@lean
def draw_kind() -> int:
    """Which of the moves comes next."""
    return int(np.searchsorted(_CHANCES, np.random.random(), side="right"))


@maker
def move_machines(packed: SearchTables, learned: Learned, kind: int, owner: Ints, touched: Ints) -> int:
    """One move of a kind other than RECIPE, which leaves the machines where they are."""
    if kind == EXCHANGE:
        return _exchange(packed, owner, touched)
    if kind == RELOCATE:
        return _relocate(packed, learned, owner, touched)
    if kind == SHRINK:
        return _shrink(packed, owner, touched)
    if kind == SWAP:
        return _swap(packed, learned, owner, touched)
    return _give(packed, learned, owner, touched)


@inner
def _around(packed: SearchTables, job: int, centre: int, power: float, owner: Ints, free_only: bool) -> bool:
    """Give a job the machines nearest to one until they have so many FLOP/s and hold the model; half of the time only
    those whose GPUs are about as fast or faster. False: not enough."""
    need = 1.2 * packed.need[job]
    row = packed.place[centre]
    least = 0.9 * packed.rate[job, centre] / packed.gpus[centre] if np.random.random() < 0.5 else 0.0
    for i in range(packed.near.shape[0]):
        place = packed.near[row, i]
        if place != row and packed.latency[row, place] == np.inf:
            break
        for k in range(packed.first_member[place], packed.first_member[place + 1]):
            if power <= 0 and need <= 0:
                return True
            m = packed.members[k]
            if packed.rate[job, m] / packed.gpus[m] < least:
                continue
            if packed.allowed[job, m] and (not free_only or owner[m] == -1):
                owner[m] = job
                power -= packed.rate[job, m]
                need -= packed.room[m]
    return bool(need <= 0)


@kernel
def deal_out(packed: SearchTables, deal: Deal, seed: int) -> None:
    """Groups drawn at random: job after job takes a share of the power around some place that is free. Jobs that have
    machines already keep them. Recipes and what is known of jobs are left open."""
    np.random.seed(seed)
    jobs, machines = packed.allowed.shape
    is_given = np.zeros(jobs, np.bool_)
    for m in range(machines):
        if deal.owner[m] >= 0:
            is_given[deal.owner[m]] = True
    keep_pins(packed, deal.owner)
    deal.recipes[:] = 0
    deal.status[:] = OPEN
    exponent = (0.5, 0.75, 1.0)[np.random.randint(0, 3)]
    parts = packed.work**exponent
    parts = parts / parts.sum() * np.exp(np.random.uniform(np.log(0.1), 0.0))
    order = np.argsort(-np.log(packed.need) + 0.5 * np.random.normal(0, 1, jobs))
    for job in order:
        if is_given[job]:
            continue
        total, usable = 0.0, 0.0
        for m in range(machines):
            if packed.allowed[job, m]:
                total += packed.rate[job, m]
                if deal.owner[m] == -1:
                    usable += packed.rate[job, m]
        left = np.random.random() * usable
        centre = -1
        for m in range(machines):
            if packed.allowed[job, m] and deal.owner[m] == -1:
                centre = m
                left -= packed.rate[job, m]
                if left <= 0:
                    break
        for m in range(machines):
            if deal.owner[m] == job:  # pinned
                centre = m
        if centre >= 0:
            before = deal.owner.copy()
            if not _around(packed, job, centre, parts[job] * total, deal.owner, True):
                deal.owner[:] = before


@inner
def _drawn(sums: Floats) -> int:
    """Which of some things, drawn by their weights, whose sums up to each are given; −1 where all are zero."""
    if sums[-1] == 0:
        return -1
    return int(min(np.searchsorted(sums, np.random.random() * sums[-1], side="right"), len(sums) - 1))


@inner
def _known_taker(packed: SearchTables, learned: Learned, machine: int) -> int:
    """Who has such machines in good deals, half of the time: a job, or −1 for nobody; −2 where that is not known."""
    taker = _drawn(learned.takers[packed.place[machine]]) if np.random.random() < _BY_WHAT_IS_KNOWN else -1
    return -2 if taker < 0 else -1 if taker == packed.allowed.shape[0] else taker


@lean
def taker_of(packed: SearchTables, learned: Learned, machine: int, giver: int, owner: Ints) -> int:
    """Who might take a machine: an owner in good deals; or mostly the owner of a machine near by, sometimes anybody,
    sometimes nobody."""
    jobs = packed.allowed.shape[0]
    taker = _known_taker(packed, learned, machine)
    if taker not in (-2, giver):
        return taker
    draw = np.random.random()
    if draw < 0.12:
        return -1
    if draw > 0.4:
        row = packed.place[machine]
        for i in range(min(packed.near.shape[0], 2 + np.random.randint(0, 6))):
            place = packed.near[row, i]
            begin, end = packed.first_member[place], packed.first_member[place + 1]
            other = owner[packed.members[np.random.randint(begin, end)]]
            if other not in (giver, -1):
                return int(other)
    return np.random.randint(0, jobs)


@inner
def _give(packed: SearchTables, learned: Learned, owner: Ints, touched: Ints) -> int:
    """Some machines of a place, or of a region, go from their holder to another job or stay idle."""
    machines = owner.shape[0]
    machine = np.random.randint(0, machines)
    giver = owner[machine]
    taker = taker_of(packed, learned, machine, giver, owner)
    if taker == giver:
        return 0
    wide = np.random.random() < 0.3
    members = 0
    for m in range(machines):
        if owner[m] == giver and _together(packed, machine, m, wide):
            members += 1
    draw = np.random.random()
    count = 1
    if draw > 0.8:
        count = members
    elif draw > 0.35:
        count = np.random.randint(1, members + 1)
    if taker >= 0 and not packed.allowed[taker, machine]:
        return 0
    owner[machine] = taker
    count -= 1
    for m in range(machines):
        if count == 0:
            break
        if owner[m] == giver and _together(packed, machine, m, wide) and (taker < 0 or packed.allowed[taker, m]):
            owner[m] = taker
            count -= 1
    return _touch(touched, giver, taker)


@inner
def _together(packed: SearchTables, one: int, two: int, wide: bool) -> bool:
    if wide:
        return bool(packed.region_of_machine[one] == packed.region_of_machine[two])
    return bool(packed.place[one] == packed.place[two])


@inner
def _touch(touched: Ints, one: int, two: int) -> int:
    count = 0
    for job in (one, two):
        if job >= 0:
            touched[count] = job
            count += 1
    return count


@inner
def _swap(packed: SearchTables, learned: Learned, owner: Ints, touched: Ints) -> int:
    """Machines of two places change hands: one for one, or all that two holders have there."""
    machines = owner.shape[0]
    one, two = np.random.randint(0, machines), np.random.randint(0, machines)
    wanted = _known_taker(packed, learned, one)
    for _ in range(_TRIES if wanted != -2 else 0):
        if owner[two] == wanted:
            break
        two = np.random.randint(0, machines)
    a, b = owner[one], owner[two]
    if a == b or packed.place[one] == packed.place[two]:
        return 0
    whole = np.random.random() < 0.4
    for m in range(machines):
        if m == one or (whole and owner[m] == a and packed.place[m] == packed.place[one]):
            if b >= 0 and not packed.allowed[b, m]:
                return 0
            owner[m] = b
        elif m == two or (whole and owner[m] == b and packed.place[m] == packed.place[two]):
            if a >= 0 and not packed.allowed[a, m]:
                return 0
            owner[m] = a
    return _touch(touched, a, b)


@inner
def _shrink(packed: SearchTables, owner: Ints, touched: Ints) -> int:
    """A job leaves what is unlike one of its machines: in another place, in another region, or with slower GPUs."""
    machines = owner.shape[0]
    like = np.random.randint(0, machines)
    job = owner[like]
    if job < 0:
        return 0
    way = np.random.randint(0, 3)
    least = 0.9 * packed.rate[job, like] / packed.gpus[like]
    changed = False
    for m in range(machines):
        if owner[m] != job:
            continue
        keeps = packed.rate[job, m] / packed.gpus[m] >= least if way == 2 else _together(packed, like, m, way == 1)
        if not keeps:
            owner[m] = -1
            changed = True
    touched[0] = job
    return 1 if changed else 0


@inner
def _exchange(packed: SearchTables, owner: Ints, touched: Ints) -> int:
    """Two jobs change groups."""
    jobs = packed.allowed.shape[0]
    if jobs < 2:
        return 0
    i, j = np.random.randint(0, jobs), np.random.randint(0, jobs)
    if i == j:
        return 0
    for m in range(owner.shape[0]):
        if owner[m] == i:
            owner[m] = j
        elif owner[m] == j:
            owner[m] = i
        else:
            continue
        if not packed.allowed[owner[m], m]:
            return 0
    return _touch(touched, i, j)


@maker
def _relocate(packed: SearchTables, learned: Learned, owner: Ints, touched: Ints) -> int:
    """A job goes elsewhere: to the machines around some place, as many as give it about the power it has, idle or not.
    One of those that lose machines by it may take what it leaves."""
    jobs, machines = packed.allowed.shape
    job = np.random.randint(0, jobs)
    before = owner.copy()
    power = 0.0
    for m in range(machines):
        if owner[m] == job:
            owner[m] = -1
            power += packed.rate[job, m]
    if power == 0:
        power = packed.rate[job].sum() / jobs
    power *= np.exp(0.7 * np.random.normal())
    centre = np.random.randint(0, machines)
    home = _drawn(learned.homes[job]) if np.random.random() < _BY_WHAT_IS_KNOWN else -1
    if home >= 0:
        centre = packed.members[np.random.randint(packed.first_member[home], packed.first_member[home + 1])]
    if not _around(packed, job, centre, power, owner, False):
        return 0
    count = 1
    touched[0] = job
    changed = False
    for m in range(machines):
        if before[m] == owner[m]:
            continue
        changed = True
        loser = before[m]
        if loser >= 0 and loser != job:
            known = False
            for k in range(count):
                known = known or touched[k] == loser
            if not known:
                touched[count] = loser
                count += 1
    if not changed:
        return 0
    if count > 1 and np.random.random() < 0.7:
        heir = touched[1 + np.random.randint(0, count - 1)]
        for m in range(machines):
            if before[m] == job and owner[m] == -1 and packed.allowed[heir, m]:
                owner[m] = heir
    return count
