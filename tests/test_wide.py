"""A job that no region holds: deals with any number of pipelines over many regions are looked at, and stay."""

from __future__ import annotations

import numpy as np

from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_compute
from hulk.search.assignment.race import GroupSearch
from hulk.search.heat import Heat
from hulk.search.objective import Objective
from hulk.search.recipes import price
from hulk.search.results import OVER, RUNS
from hulk.search.shape.polisher import Polisher
from hulk.search.spaces import spaces_of


def search_of(cluster: str, jobs: str) -> GroupSearch:
    return GroupSearch(spaces_of(load_cluster(cluster), load_jobs(jobs), bundled_compute()), np.random.default_rng(0))


def numbers(search: GroupSearch, job: int, deals: list) -> list[int]:
    """How many pipelines the job has in each deal."""
    skeletons = [search.state(deal).skeletons[job] for deal in deals]
    return [len(skeleton.chains) if skeleton else 0 for skeleton in skeletons]


def test_every_number_of_pipelines_is_drawn_once_and_runs() -> None:
    search = search_of("hulk47", "paper4")
    job = search.wide_job()
    assert job is not None
    assert search.spaces[job].job.name == "opt-175b"
    found = numbers(search, job, search.wide())
    assert len(found) >= 3
    assert len(set(found)) == len(found)
    assert 0 not in found


def test_answers_have_several_numbers_of_pipelines_and_any_is_allowed_again() -> None:
    search = search_of("hulk47", "paper4")
    job = search.wide_job()
    assert job is not None
    answers = search.deals(moves=3_000, deadline=float("inf"))
    assert [search.cost(deal) for deal in answers[:4]] == sorted(search.cost(deal) for deal in answers[:4])
    assert len(set(numbers(search, job, answers))) > 1
    assert not search.packed.pipelines.any()


def test_jobs_that_fit_a_region_have_none() -> None:
    search = search_of("datacenter", "paper4")
    small = GroupSearch(search.spaces[-1:], np.random.default_rng(0))
    assert small.wide_job() is None
    assert small.wide() == []


def test_slots_in_another_order_stay_with_their_jobs_and_no_job_gets_slower() -> None:
    search = search_of("hulk47", "paper4")
    polisher, before = Polisher(search, Objective()), search.state(search.wide()[0])
    after = polisher.run(before, moves=600, deadline=float("inf"), heat=Heat(0.1, 1e-3), in_order=True)
    assert polisher.score(after) < polisher.score(before)
    for old, new, took, takes in zip(before.skeletons, after.skeletons, before.seconds, after.seconds, strict=True):
        assert (old is None) == (new is None)
        if old and new and took and takes:
            assert takes <= took
            assert new.machines <= old.machines
            assert new.options == old.options
            assert search.spaces[before.skeletons.index(old)].result(new).seconds == takes


def test_a_limit_hides_no_plan_that_takes_less_where_both_ends_share_what_crosses_an_ocean() -> None:
    search = search_of("hulk47", "paper4")
    job = search.wide_job()
    assert job is not None
    for deal in search.wide():
        for share, status in ((1.0001, RUNS), (0.9, OVER)):
            search.work.memo.keys[:] = 0
            limit = share * float(deal.value[job])
            assert price(search.packed, search.work, job, deal.owner, deal.recipes[job], limit)[0] == status
