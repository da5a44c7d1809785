"""Prices as the search asks for them: stopped at a limit, remembered, with the best cuts there are."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest

from hulk.cost.step import memory_with_kept
from hulk.domain.options import COLUMN, Options, Recompute, places_of
from hulk.gnn.generator import Scale, scattered
from hulk.io.profiles import bundled_compute
from hulk.search.assignment.race import GroupSearch
from hulk.search.deals import COLUMNS, Deal
from hulk.search.fit import cut, set_warmup
from hulk.search.layouts import LAYOUT
from hulk.search.recipes import change_recipe, draw_recipe, price, size_of
from hulk.search.results import LACKS, OVER, RUNS, Result
from hulk.search.spaces import spaces_of
from hulk.search.tables import tables_of


def drawn(seed: int) -> tuple[GroupSearch, Deal]:
    """A scene and a deal of it."""
    cluster, jobs = scattered(seed, Scale(8, 60, 6))
    search = GroupSearch(spaces_of(cluster, jobs, bundled_compute()), np.random.default_rng(seed))
    return search, search.drawn()


def asked(search: GroupSearch, deal: Deal, job: int, recipe: np.ndarray, limit: float = np.inf) -> Result:
    """A price that nothing remembered helps with."""
    search.work.memo.keys[:] = 0
    return Result(*price(search.packed, search.work, job, deal.owner, recipe, limit))


def test_a_limit_hides_only_what_reaches_it() -> None:
    """A price of few stages is refined only where it is at most 1.3 times the limit before. Refining gains more than
    that for some 2 of 1,000, and these a limit hides too."""
    asked_for = hidden = 0
    for seed in range(60, 72):
        search, deal = drawn(seed)
        recipe = np.zeros(COLUMNS, np.int64)
        for job in np.flatnonzero(deal.status == RUNS):
            gpus, replicas = size_of(search.packed, job, deal.owner)
            for i in range(40):
                if i % 2:
                    draw_recipe(search.packed, job, gpus, replicas, recipe)
                else:
                    recipe[:] = deal.recipes[job]
                    change_recipe(search.packed, job, gpus, replicas, recipe)
                seconds = asked(search, deal, job, recipe).seconds
                if seconds is None:
                    assert not asked(search, deal, job, recipe, 1.0).runs
                    continue
                for share in (0.3, 0.9, 0.999):
                    assert asked(search, deal, job, recipe, share * seconds) >= (RUNS, share * seconds)
                for share in (1.001, 1.1):
                    answer = asked(search, deal, job, recipe, share * seconds)
                    assert answer in ((RUNS, seconds), (OVER, share * seconds))
                    hidden += answer != (RUNS, seconds)
                assert asked(search, deal, job, recipe, 3.0 * seconds) == (RUNS, seconds)
                asked_for += 2
    assert hidden <= asked_for / 200


def test_what_is_remembered_is_the_price() -> None:
    """Also of groups that differ only in which of several alike machines they have."""
    search, deal = next(found for found in map(drawn, range(60, 80)) if (_turned(*found) != found[1].owner).any())
    packed, swapped = search.packed, _turned(search, deal)
    for job in np.flatnonzero(deal.status == RUNS):
        recipe = deal.recipes[job]
        seconds = asked(search, deal, job, recipe).value
        known = search.work.memo.keys.copy()
        for owner in (deal.owner, swapped):
            assert price(packed, search.work, job, owner, recipe, np.inf) == (RUNS, seconds)
            assert price(packed, search.work, job, owner, recipe, 0.5 * seconds)[0] == OVER
        assert (search.work.memo.keys == known).all()
        asked(search, deal, job, recipe, 0.5 * seconds)  # all that is known now is that it takes as long
        assert price(packed, search.work, job, deal.owner, recipe, 0.4 * seconds)[0] == OVER
        assert price(packed, search.work, job, deal.owner, recipe, np.inf) == (RUNS, seconds)


def test_how_far_from_fitting_is_remembered_only_where_it_was_counted_to_the_end() -> None:
    cut_short = 0
    for seed in range(60, 80):
        search, deal = drawn(seed)
        for job in range(len(deal.status)):
            recipe, gpus_and_replicas = np.zeros(COLUMNS, np.int64), size_of(search.packed, job, deal.owner)
            for _ in range(20 if gpus_and_replicas[0] else 0):
                draw_recipe(search.packed, job, *gpus_and_replicas, recipe)
                whole = asked(search, deal, job, recipe)
                if whole.runs:
                    continue
                part = asked(search, deal, job, recipe, 1e9)
                cut_short += part < whole
                assert price(search.packed, search.work, job, deal.owner, recipe, np.inf) == whole
                assert price(search.packed, search.work, job, deal.owner, recipe, 1e9)[0] == LACKS
    assert cut_short > 0


def _turned(search: GroupSearch, deal: Deal) -> np.ndarray:
    """Owners, those of alike machines in reverse."""
    packed, owner = search.packed, deal.owner.copy()
    for place in range(len(packed.first_member) - 1):
        members = packed.members[packed.first_member[place] : packed.first_member[place + 1]]
        owner[members] = deal.owner[members[::-1]]
    return owner


@pytest.mark.parametrize("recompute", [0, 1])
@pytest.mark.parametrize("seed", range(60, 72))
def test_no_other_cut_has_a_faster_slowest_stage(seed: int, recompute: int) -> None:
    """Against all cuts there are, by dynamic programming in plain Python. With recomputation, every stage does so with
    as few layers as its memory asks for."""
    search, deal = drawn(seed)
    state = search.state(deal)
    for job, skeleton in enumerate(state.skeletons):
        if skeleton is None:
            continue
        space, recipe = search.spaces[job], deal.recipes[job]
        short = [chain for chain in skeleton.chains if 1 < len(chain) <= 8][:1]
        for chain in short:
            encoded = space.encode(type(skeleton)((chain,), Options(skeleton.options.microbatch_size)))
            plain = recipe[LAYOUT:].copy()
            plain[COLUMN["recompute"]] = recompute
            tables = tables_of(search.packed, job, plain)
            set_warmup(encoded, 0, 64)
            missing = cut(tables, encoded, 0, np.inf)
            least = _least(tables, encoded)
            assert (missing > 0) == np.isinf(least)
            if not missing:
                assert encoded.kept.any() <= recompute
                stages = zip(encoded.kind, encoded.first, encoded.last, encoded.kept, strict=True)
                assert max(_time(tables, *stage) for stage in stages) == pytest.approx(least, rel=1e-5)


def _time(tables, kind: int, a: int, b: int, kept: int) -> float:
    again, end = b + 1 - kept, b + 1
    seconds = sum(float(table[kind, again] - table[kind, a]) for table in (tables.forward, tables.backward))
    rows = (kind, len(tables.update) + kind) if kept else ()
    return seconds + sum(float(tables.kept[row, end] - tables.kept[row, again]) for row in rows)


def _memory(tables, plan, n: int, a: int, b: int, kept: int) -> float:
    needs = memory_with_kept(tables, a, b, plan.ranks[n], plan.warmup[n], n + 1 < len(plan.kind), 1, kept)
    return needs[0]


def _least(tables, plan) -> float:
    """The least slowest stage over all cuts that fit."""
    layers, stages = len(tables.cut), len(plan.kind)
    best = {0: 0.0}  # by the first layer that is left
    for n in range(stages):
        following: dict[int, float] = {}
        for a, slowest in best.items():
            for b in range(a, layers - (stages - 1 - n)):
                counts = range(b - a + 2) if len(tables.kept) else [0]
                fits = [
                    kept for kept in counts if _memory(tables, plan, n, a, b, kept) <= tables.capacity[plan.place[n]]
                ]
                if not fits:
                    break
                seconds = max(slowest, _time(tables, plan.kind[n], a, b, max(fits)))
                following[b + 1] = min(following.get(b + 1, np.inf), seconds)
        best = following
    return best.get(layers, np.inf)


def test_tables_made_for_a_price_are_of_the_type_that_a_search_has() -> None:
    """Of another type, say sums laid out column by column, the price would be compiled twice: for searches, and for
    whoever asks for one price."""
    search, _ = drawn(60)
    for job, space in enumerate(search.spaces):
        for recompute in (Recompute.NONE, Recompute.FULL):
            options = replace(space.plainest, recompute=recompute)
            found = tables_of(search.packed, job, np.array(places_of(options, space.scope)))
            assert numba.typeof(space.tables(options)) == numba.typeof(found)
