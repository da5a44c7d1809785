"""Deals joined from groups of others: never dearer, always possible, and at the times the price gives."""

from __future__ import annotations

import numpy as np
import pytest

from hulk.gnn.generator import Scale, scattered
from hulk.io.profiles import bundled_compute
from hulk.search.assignment.archive import empty_archive, remember
from hulk.search.assignment.race import GroupSearch
from hulk.search.deals import Deal
from hulk.search.results import LACKS, RUNS
from hulk.search.spaces import spaces_of


def search_of(seed: int, least: int = 12, most: int = 60, jobs: int = 6) -> GroupSearch:
    cluster, drawn = scattered(seed, Scale(least, most, jobs))
    return GroupSearch(spaces_of(cluster, drawn, bundled_compute()), np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(40, 60))
def test_a_combined_deal_is_possible_and_priced_right(seed: int) -> None:
    search = search_of(seed)
    deals = [search.drawn() for _ in range(12)]
    for deal in deals:
        before = deal.copy()
        search.combined(deal)
        assert search.cost(deal) <= search.cost(before)
        held = deal.owner >= 0
        assert search.packed.allowed[deal.owner[held], np.flatnonzero(held)].all()
        runs = deal.status == RUNS
        assert runs[before.status == RUNS].all()
        for job in np.flatnonzero(runs):
            skeleton = search.state(deal).skeletons[job]
            assert skeleton is not None
            assert skeleton.machines <= set(np.flatnonzero(deal.owner == job).tolist())
            assert search.spaces[job].result(skeleton).seconds == pytest.approx(deal.value[job], rel=1e-9)


def test_the_best_groups_of_two_deals_meet() -> None:
    """Of two deals with groups in the same places, each with one slow job, the join has both fast."""
    searches = map(search_of, range(100))
    search, (one, two) = next((search, found) for search in searches if (found := _halves(search)))
    fast = search.combined(one.copy())
    assert search.cost(fast) < min(search.cost(one), search.cost(two))


def _halves(search: GroupSearch) -> tuple[Deal, Deal] | None:
    """A good deal with each of two jobs made slower in turn by taking machines from it; None where there is none."""
    search.archive.size[:] = 0
    best = search.deals(moves=4_000, deadline=float("inf"))[0]
    halves = []
    for job in np.flatnonzero(best.status == RUNS)[:2]:
        mine = np.flatnonzero(best.owner == job)
        owner = best.owner.copy()
        owner[mine[len(mine) // 2 :]] = -1
        halves.append(search.regrouped(best, owner, best.recipes))
    if len(halves) < 2 or any(deal.waits.any() or search.cost(deal) <= search.cost(best) for deal in halves):
        return None
    search.archive.size[:] = 0
    for deal in halves:
        remember(search.packed, search.archive, deal)
    return halves[0], halves[1]


def test_of_two_groups_one_that_is_beaten_is_forgotten() -> None:
    search = search_of(7)
    deal = search.drawn()
    job = int(np.flatnonzero(deal.status == RUNS)[0])
    archive = empty_archive(search.packed)
    remember(search.packed, archive, deal)
    assert archive.size[job] == 1
    slower = deal.copy()
    slower.value[job] *= 2
    remember(search.packed, archive, slower)
    assert archive.size[job] == 1
    assert archive.value[job, 0] == deal.value[job]
    faster = deal.copy()
    faster.value[job] /= 2
    remember(search.packed, archive, faster)
    assert archive.size[job] == 1
    assert archive.value[job, 0] == faster.value[job]


def test_a_job_that_may_use_nothing_is_not_given_groups_again() -> None:
    search = search_of(5)
    deals = [search.drawn() for _ in range(8)]
    search.bar(np.array([0]))
    for deal in deals:
        deal.owner[deal.owner == 0] = -1
        deal.status[0] = LACKS
        search.combined(deal)
        assert not (deal.owner == 0).any()
        assert deal.waits[0]
