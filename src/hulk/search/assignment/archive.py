"""Groups of many deals put together anew, compiled.

Groups share nothing, and machines of one place are alike, so that a group found in one deal may stand beside groups of
others wherever there are machines enough, and its time is known already. What took several deals hundreds of moves is
joined without a single price.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, kernel, maker
from hulk.search.deals import COLUMNS, Deal, cost_of
from hulk.search.results import RUNS
from hulk.search.tables import SearchTables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ROOM = 128
_GAIN = 1e-9  # of the cost: what is less is rounding


class Archive(NamedTuple):
    """Groups seen, up to K for each job, none of which another beats with the same machines or fewer. One row more
    holds the groups of the deal that is being made better."""

    size: Ints  # [J]
    counts: Ints  # [J, K + 1, P] machines of each place
    recipes: Ints  # [J, K + 1, COLUMNS]
    status: Ints  # [J, K + 1]
    value: Floats  # [J, K + 1]


def empty_archive(packed: SearchTables) -> Archive:
    """Nothing seen yet."""
    jobs, places = len(packed.need), packed.latency.shape[0]
    return Archive(
        np.zeros(jobs, np.int64),
        np.zeros((jobs, _ROOM + 1, places), np.int64),
        np.zeros((jobs, _ROOM + 1, COLUMNS), np.int64),
        np.zeros((jobs, _ROOM + 1), np.int64),
        np.zeros((jobs, _ROOM + 1)),
    )


@maker
def _counted(packed: SearchTables, owner: Ints) -> Ints:
    """[J, P] machines of each place that a job has."""
    counts = np.zeros((packed.allowed.shape[0], packed.latency.shape[0]), np.int64)
    for m in range(owner.shape[0]):
        if owner[m] >= 0:
            counts[owner[m], packed.place[m]] += 1
    return counts


@inner
def _within(counts: Ints, free: Ints) -> bool:
    for p in range(free.shape[0]):  # noqa: SIM110 - numba has no all() of a generator
        if counts[p] > free[p]:
            return False
    return True


@kernel
def remember(packed: SearchTables, archive: Archive, deal: Deal) -> None:
    """Take up the groups of a deal whose jobs run. Where there is no room, any other goes."""
    counts = _counted(packed, deal.owner)
    for job in range(deal.status.shape[0]):
        if deal.status[job] == RUNS and not _is_beaten(archive, job, counts[job], deal.value[job]):
            size = _without_beaten(archive, job, counts[job], deal.value[job])
            at = size if size < _ROOM else np.random.randint(0, _ROOM)
            archive.size[job] = min(size + 1, _ROOM)
            archive.counts[job, at] = counts[job]
            archive.recipes[job, at] = deal.recipes[job]
            archive.status[job, at], archive.value[job, at] = RUNS, deal.value[job]


@inner
def _is_beaten(archive: Archive, job: int, counts: Ints, seconds: float) -> bool:
    """Whether a known group takes no longer, with no other machines."""
    for k in range(archive.size[job]):
        if archive.value[job, k] <= seconds and _within(archive.counts[job, k], counts):
            return True
    return False


@maker
def _without_beaten(archive: Archive, job: int, counts: Ints, seconds: float) -> int:
    """Forget groups that this one beats; how many are left."""
    left = 0
    for k in range(archive.size[job]):
        if archive.value[job, k] >= seconds and _within(counts, archive.counts[job, k]):
            continue
        if left < k:
            archive.counts[job, left] = archive.counts[job, k]
            archive.recipes[job, left] = archive.recipes[job, k]
            archive.status[job, left], archive.value[job, left] = RUNS, archive.value[job, k]
        left += 1
    return left


@kernel
def combine(packed: SearchTables, archive: Archive, deal: Deal, tries: int, seed: int) -> bool:
    """Make a deal better in place by groups of others. Whether it is."""
    np.random.seed(seed)
    counts = _counted(packed, deal.owner)
    archive.counts[:, _ROOM] = counts
    archive.recipes[:, _ROOM] = deal.recipes
    archive.status[:, _ROOM] = deal.status
    archive.value[:, _ROOM] = deal.value
    chosen = np.full(deal.status.shape[0], _ROOM)
    free = np.diff(packed.first_member) - counts.sum(axis=0)
    total, is_better = _cost(packed, archive, chosen), False
    trial, rest = chosen.copy(), free.copy()
    for _ in range(tries):
        trial[:] = chosen
        rest[:] = free
        if _changed(archive, trial, rest):
            cost = _cost(packed, archive, trial)
            if cost < total * (1 - _GAIN):
                chosen[:] = trial
                free[:] = rest
                total, is_better = cost, True
    owner = deal.owner.copy()
    if not is_better or not _hand_out(packed, archive, chosen, owner):
        return False
    deal.owner[:] = owner
    for job in range(chosen.shape[0]):
        deal.recipes[job] = archive.recipes[job, chosen[job]]
        deal.status[job], deal.value[job] = archive.status[job, chosen[job]], archive.value[job, chosen[job]]
    return True


@inner
def _cost(packed: SearchTables, archive: Archive, chosen: Ints) -> float:
    total = 0.0
    for job in range(chosen.shape[0]):
        total += cost_of(packed, job, archive.status[job, chosen[job]], archive.value[job, chosen[job]])
    return total


@maker
def _changed(archive: Archive, chosen: Ints, free: Ints) -> bool:
    """A job takes another group, those it takes machines from choose again, then everybody takes the best that is
    free; all in place. False where someone finds nothing."""
    job = np.random.randint(0, chosen.shape[0])
    if archive.size[job] == 0:
        return False
    free += archive.counts[job, chosen[job]]
    chosen[job] = np.random.randint(0, archive.size[job])
    free -= archive.counts[job, chosen[job]]
    order = np.random.permutation(chosen.shape[0])
    for other in order:
        if other != job and _is_short(archive.counts[other, chosen[other]], free):
            free += archive.counts[other, chosen[other]]
            chosen[other] = -1
    for other in order:
        if chosen[other] < 0:
            chosen[other] = _fastest(archive, other, free)
            if chosen[other] < 0:
                return False
            free -= archive.counts[other, chosen[other]]
    for other in order:
        free += archive.counts[other, chosen[other]]
        found = _fastest(archive, other, free)
        if found >= 0:  # a job that waits has none, and goes on waiting
            chosen[other] = found
        free -= archive.counts[other, chosen[other]]
    return True


@inner
def _is_short(counts: Ints, free: Ints) -> bool:
    """Whether a group has machines where more are given out than there are."""
    for p in range(free.shape[0]):  # noqa: SIM110
        if free[p] < 0 and counts[p] > 0:
            return True
    return False


@inner
def _fastest(archive: Archive, job: int, free: Ints) -> int:
    """The job's fastest group among free machines; −1: there is none."""
    best, least = -1, np.inf
    for k in range(archive.size[job]):
        if archive.value[job, k] < least and _within(archive.counts[job, k], free):
            best, least = k, archive.value[job, k]
    is_quicker = archive.status[job, _ROOM] == RUNS and archive.value[job, _ROOM] < least
    if is_quicker and _within(archive.counts[job, _ROOM], free):
        best = _ROOM
    return best


@maker
def _hand_out(packed: SearchTables, archive: Archive, chosen: Ints, owner: Ints) -> bool:
    """Owners of machines by chosen groups, in place; who has a machine keeps it where its group has such machines.
    False where some of them are not allowed to the job that needs them."""
    for p in range(packed.latency.shape[0]):
        members = packed.members[packed.first_member[p] : packed.first_member[p + 1]]
        lacking = np.zeros(chosen.shape[0], np.int64)
        for job in range(chosen.shape[0]):
            lacking[job] = archive.counts[job, chosen[job], p]
        for m in members:
            job = owner[m]
            if job >= 0 and lacking[job] > 0:
                lacking[job] -= 1
            else:
                owner[m] = -1
        for job in range(chosen.shape[0]):
            for m in members:
                if lacking[job] > 0 and owner[m] == -1 and packed.allowed[job, m]:
                    owner[m] = job
                    lacking[job] -= 1
            if lacking[job] > 0:
                return False
    return True
