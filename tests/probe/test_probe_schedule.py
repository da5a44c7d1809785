"""Measurements that run at the same time do not disturb each other, and all that must be measured is."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hulk.domain.cluster import pair
from hulk.probe.schedule import Waiting, plan_tasks

machines = st.dictionaries(
    st.integers(0, 40).map(lambda n: f"m{n}"), st.sampled_from(["a", "b", "c", "d"]), min_size=2, max_size=12
)


@st.composite
def scenes(draw):
    regions = draw(machines)
    pairs = [pair(*ends) for ends in combinations(sorted(regions), 2)]
    opened = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    return regions, {ends: draw(st.floats(1e-4, 0.5)) for ends in opened}


def play(tasks, at_once):
    """Run all tasks, the oldest ends first; the sets that ran at the same time."""
    waiting, moments = Waiting(list(tasks)), []
    while waiting.tasks or waiting.running:
        while len(waiting.running) < at_once and waiting.take() is not None:
            pass
        assert waiting.running
        moments.append(list(waiting.running))
        waiting.done(waiting.running[0])
    return moments


@given(scenes(), st.integers(1, 4), st.booleans(), st.integers(1, 6))
def test_nothing_is_disturbed_and_nothing_forgotten(scene, samples, full, at_once):
    regions, trips = scene
    tasks = plan_tasks(regions, trips, samples=samples, full=full)
    for moment in play(tasks, at_once):
        for one, other in combinations(moment, 2):
            assert not one.machines & other.machines
            if one.regions[0] != one.regions[1] and other.regions[0] != other.regions[1]:
                assert not set(one.regions) & set(other.regions)
    measured = {pair(*ends) for task in tasks if not task.together for ends in task.pairs}
    assert measured <= trips.keys()
    wanted = {pair(regions[a], regions[b]) for a, b in trips}
    assert {task.regions for task in tasks} == wanted
    if full:
        assert measured == trips.keys()
    for between in wanted:
        here = [ends for ends in measured if pair(regions[ends[0]], regions[ends[1]]) == between]
        there = [ends for ends in trips if pair(regions[ends[0]], regions[ends[1]]) == between]
        assert len(here) >= min(samples, len(there))


@given(scenes(), st.integers(2, 4))
def test_what_runs_together_goes_one_way_between_two_regions(scene, samples):
    regions, trips = scene
    for task in plan_tasks(regions, trips, samples=samples):
        if task.together:
            assert len(task.pairs) > 1
            assert len(task.machines) == 2 * len(task.pairs)
            assert {(regions[a], regions[b]) for a, b in task.pairs} == {task.regions}


def test_every_two_regions_are_measured_before_any_are_measured_twice():
    regions = {f"{region}{n}": region for region in "abcd" for n in range(4)}
    trips = {pair(*ends): 0.01 for ends in combinations(sorted(regions), 2)}
    tasks = plan_tasks(regions, trips, samples=3)
    first = tasks[:10]  # six pairs of regions, and inside four
    assert len({task.regions for task in first}) == 10
    assert all(task.together for task in tasks[10:16])
    # 200 machines in 10 regions: minutes, at some seconds each and five at a time.
    many = {f"{region}{n}": region for region in "abcdefghij" for n in range(20)}
    trips = {pair(*ends): 0.01 for ends in combinations(sorted(many), 2)}
    assert len(play(plan_tasks(many, trips, samples=3), 8)) < 250


def test_a_pair_alone_is_measured_both_ways():
    tasks = plan_tasks({"m": "a", "n": "b"}, {("m", "n"): 0.01}, samples=3)
    assert [task.pairs for task in tasks] == [(("m", "n"),), (("n", "m"),)]
    assert [task.several for task in tasks] == [True, False]


def test_some_pairs_can_be_asked_for():
    regions = {f"a{n}": "a" for n in range(5)}
    trips = {pair(*ends): 0.01 for ends in combinations(sorted(regions), 2)}
    tasks = plan_tasks(regions, trips, samples=1, also={("a0", "a4"), ("a1", "a2")})
    assert {("a0", "a4"), ("a1", "a2")} <= {pair(*task.pairs[0]) for task in tasks}
