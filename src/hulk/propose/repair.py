"""A table of counts made possible: groups whose machines reach each other and hold their model, and no job without
machines where there is a way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.propose.facts import Facts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MEMORY = 1.2
"""A group's GPUs must hold this many times a replica's state: activations need room, and cuts do not come out even."""

_TRIES = 6


def repaired(facts: Facts, table: Ints, shares: Floats) -> Ints:
    """A copy [P, J + 1] of a table with blocked machines given away, and memory for every job where it can be found:
    from idle machines, then from the jobs that have more than their share. A job that finds none waits."""
    table = table.copy()
    for job in range(facts.jobs):
        _drop_unreachable(facts, table, shares, job)
    # The largest first: a small job finds room later more easily.
    for job in np.argsort(-facts.need, kind="stable"):
        short = _short(facts, table, job)
        if short <= 0:
            continue
        filled = _fill(facts, table, job)
        if filled is not None:
            table = filled
        else:
            table[:, -1] += table[:, job]
            table[:, job] = 0
    return table


def _drop_unreachable(facts: Facts, table: Ints, shares: Floats, job: int) -> None:
    """Machines that cannot talk to the job's strongest class go to the likeliest job they can talk to, or are idle."""
    held = table[:, job] * facts.rate[job]
    if not held.any():
        return
    strongest = int(held.argmax())
    for p in np.flatnonzero((table[:, job] > 0) & ~np.isfinite(facts.latency[strongest])):
        if p == strongest:
            continue
        count = table[p, job]
        table[p, job] = 0
        reach = np.isfinite(facts.latency[p])
        reach[p] = True
        fits = np.array([not (table[:, j][~reach]).any() and table[:, j].any() for j in range(facts.jobs)])
        fits &= facts.usable[:, p] == 1.0
        fits[job] = False
        heir = int(np.where(fits, shares[p, :-1], -1.0).argmax()) if fits.any() else -1
        table[p, heir] += count


def _short(facts: Facts, table: Ints, job: int) -> float:
    """Bytes that the job's group lacks."""
    return float(MEMORY * facts.need[job] - (table[:, job] * facts.room).sum())


def _fill(facts: Facts, table: Ints, job: int) -> Ints | None:
    """A table in which the job has what it had, the nearest idle machines, and the nearest of those that others can
    spare, until its model fits; around one place, and all within reach of each other. None: it cannot be."""
    mine = table[:, job].copy()
    table = table.copy()
    table[:, -1] += mine
    table[:, job] = 0
    spare = _spare(facts, table, job)
    for offered in (table[:, -1], table[:, -1] + spare):
        for centre in _centres(facts, offered, mine, job):
            trial = table.copy()
            _take_around(facts, trial, job, centre, mine)
            if _short(facts, trial, job) <= 0:
                return trial
    return None


def _spare(facts: Facts, table: Ints, job: int) -> Ints:
    """[P] machines that other jobs could give without losing their own memory, at most half of each."""
    spare = np.zeros(facts.places, np.int64)
    for other in range(facts.jobs):
        if other != job and _short(facts, table, other) < 0:
            spare += _can_give(facts, table, other)
    return spare


def _can_give(facts: Facts, table: Ints, other: int) -> Ints:
    """[P] machines of a job that it can do without, all together: its memory and half of its machines stay."""
    excess = -_short(facts, table, other)
    most = table[:, other].sum() // 2
    can = np.zeros(facts.places, np.int64)
    held = table[:, other] * facts.rate[other]
    for p in np.argsort(facts.rate[other], kind="stable"):
        # Its strongest class stays, where it has others: what reaches that one may not reach the next strongest.
        if p == held.argmax() and (held > 0).sum() > 1:
            continue
        count = min(table[p, other], int(excess // facts.room[p]), most)
        can[p] = count
        excess -= count * facts.room[p]
        most -= count
    return can


def _centres(facts: Facts, offered: Ints, mine: Ints, job: int) -> list[int]:
    """Classes around which what is offered holds the model, the least latency first; of equals, where the job is
    already, then the fastest."""
    limit = np.rint(facts.usable[job] * facts.members)
    offered = np.minimum(offered, limit)
    need = MEMORY * facts.need[job]
    found: list[tuple[float, float, float, int]] = []
    for p in np.flatnonzero(offered):
        way = facts.latency[p].copy()
        way[p] = 0.0
        order = np.argsort(way, kind="stable")
        order = order[np.isfinite(way[order])]
        held = np.cumsum(offered[order] * facts.room[order])
        if held[-1] >= need:
            radius = float(way[order[int(np.searchsorted(held, need))]])
            speed = float(facts.rate[job, p] / facts.gpus[p])
            found.append((radius, -float(mine[p] * facts.rate[job, p]), -speed, int(p)))
    return [entry[-1] for entry in sorted(found)[:_TRIES]]


def _take_around(facts: Facts, table: Ints, job: int, centre: int, mine: Ints) -> None:
    """In place: what the job had, then idle machines, then others', always the nearest to the centre that reach all it
    has so far."""
    way = facts.latency[centre].copy()
    way[centre] = 0.0
    order = np.argsort(way, kind="stable")
    order = order[np.isfinite(way[order]) & (facts.usable[job, order] > 0)]
    limit = np.rint(facts.usable[job] * facts.members).astype(np.int64)
    reached = np.isfinite(way)
    givers = [j for j in np.argsort(-_wealth(facts, table), kind="stable").tolist() if j != job]
    for giver in ("own", -1, *givers):
        if giver == "own":
            can = np.minimum(mine, table[:, -1])
        elif giver == -1:
            can = table[:, -1].copy()
        elif _short(facts, table, giver) < 0:
            can = _can_give(facts, table, giver)
        else:
            continue
        column = -1 if giver == "own" else giver
        for p in order[(can[order] > 0) & reached[order]]:
            lacking = _short(facts, table, job)
            if lacking <= 0 and giver != "own":
                return
            most = can[p] if giver == "own" else min(int(can[p]), int(-(-lacking // facts.room[p])))
            count = int(min(most, limit[p] - table[p, job]))
            if count > 0 and reached[p]:
                table[p, job] += count
                table[p, column] -= count
                reach = np.isfinite(facts.latency[p])
                reach[p] = True
                reached &= reach


def _wealth(facts: Facts, table: Ints) -> Floats:
    """[J] power of each job's group over its fair share."""
    held = (table[:, :-1].T * facts.rate).sum(axis=1) / facts.power.sum(axis=1).clip(1.0)
    wealth: Floats = held / facts.fair
    return wealth
