"""The network inside the planner: in every process of a search, and in the benchmark."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scenes import exported, exported_folder

from gnn import build_report
from gnn_scenes import Given, Kept, draw
from gnn_search import Race, Track
from hulk.gnn.generator import Scale, scattered
from hulk.io.profiles import bundled_compute
from hulk.planner import Policy, plan_in_parallel, plan_jobs
from hulk.propose.graph import Graph
from hulk.propose.network import Answer, Network
from hulk.search.budget import Effort
from hulk.search.request import Request

LIMITS = {"time_limit": 1.0, "evaluations": 300}


@dataclass(frozen=True)
class Logged:
    """A network that writes down which process has run it to the end."""

    network: Network
    log: Path

    def run(self, graph: Graph, known: np.ndarray) -> Answer:
        answer = self.network.run(graph, known)
        with self.log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return answer


def test_every_process_of_a_search_runs_the_network_it_was_given(tmp_path):
    cluster, jobs = scattered(3, Scale(32, 32, 3))
    network = Logged(exported(), tmp_path / "log")
    compute = bundled_compute()
    plan_in_parallel(Request(cluster, tuple(jobs), compute), Effort(workers=2, **LIMITS), network=network)
    assert len(set((tmp_path / "log").read_text().split())) == 2


def test_the_papers_policy_gives_a_plan_in_one_shot(tmp_path):
    cluster, jobs = scattered(3, Scale(32, 32, 3))
    network = Logged(exported(), tmp_path / "log")
    request = Request(cluster, tuple(jobs), bundled_compute())
    result = plan_jobs(request, Effort(**LIMITS), network=network, policy=Policy.PAPER)
    assert set(result.plan.jobs) | set(result.plan.waiting) == {job.name for job in jobs}
    assert len((tmp_path / "log").read_text().split()) == 1


def test_benchmark_scenes_are_spread_over_sizes_and_have_several_jobs():
    scenes = [draw(number, 0) for number in range(16)]
    assert len({scene.seed for scene in scenes}) == 16
    assert min(scene.seed for scene in scenes) >= 1_000_000
    assert all(len(scene.jobs) > 1 for scene in scenes)
    sizes = np.log(sorted(scene.machines for scene in scenes))
    assert np.diff(sizes) == pytest.approx(math.log(1000 / 32) / 16, rel=0.2)


def test_the_cheapest_plan_is_kept(tmp_path):
    scene = draw(0, 0)
    search = scene.search()
    path = tmp_path / "kept.json"
    Kept(path).offer(scene, search, 10.0, "a", searched_s=60)
    assert Kept(path).offer(scene, search, 11.0, "b").found_by == "a"
    best = Kept(path).offer(scene, search, 9.0, "c")
    assert (best.cost, best.found_by, best.searched_s) == (9.0, "c", 60)
    assert Kept(path).get(scene, search) == best
    assert Kept(path).get(scene, draw(1, 0).search()) is None  # priced differently


def test_a_race_is_timed_from_its_tracks():
    scene = draw(0, 0)
    slow, fast = Track(((1.0, 30.0), (6.0, 10.05), (9.0, 10.0))), Track(((0.5, 12.0), (2.0, 10.1)))
    race = Race(scene, (slow,), (fast,), best=10.0)
    assert (race.hits(race.without), race.hits(race.with_network)) == ([6.0], [2.0])
    assert race.speedup(cap=20.0) == 3.0
    assert (slow.at(0.5), slow.at(1.0), slow.at(8.0), slow.least) == (math.inf, 30.0, 10.05, 10.0)
    missed = Track(((1.0, 30.0),))
    assert Race(scene, (missed,), (fast,), best=10.0).speedup(cap=20.0) == 10.0
    assert Race(scene, (missed, slow), (fast, fast), best=10.0).speedup(cap=20.0) == 6.5  # means of both seeds
    assert not Race(scene, (slow,), (fast,), best=9.0).counts


def test_the_benchmark_races_a_scene_both_ways(tmp_path):
    given = Given(scenes=1, cap=1.5, first=0.5, workers=1, network=exported_folder(), repeats=2)
    kept = Kept(tmp_path / "kept.json")
    report = build_report(given, ["time"], kept)
    assert report.figures["scenes"] == 1
    assert report.figures["gap_percent_without_after_1_s"] >= 0
    best = kept.get(draw(0, 0), draw(0, 0).search())
    assert best is not None
    assert best.searched_s == 1.5


def test_the_benchmark_prices_proposals(tmp_path, monkeypatch):
    monkeypatch.setattr("gnn_proposal.BASELINE_LIMIT", 0.3)
    given = Given(scenes=1, cap=1.0, workers=1, network=exported_folder())
    kept, scene = Kept(tmp_path / "kept.json"), draw(0, 0)
    kept.offer(scene, scene.search(), 1e-3, "made up")
    report = build_report(given, ["proposal"], kept)
    assert report.figures["proposal_median_gap_percent"] > 0
    assert 0 <= report.figures["better_than_greedy_share"] <= 1
