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
from gnn_search import WORST, Race, Track
from hulk.gnn.generator import Scale, scattered
from hulk.io.profiles import bundled_compute
from hulk.planner import PlanResult, Policy, plan_in_parallel, plan_jobs
from hulk.propose import starts
from hulk.propose.graph import Graph
from hulk.propose.network import Answer, Network
from hulk.search.assignment.race import GroupSearch
from hulk.search.budget import Effort
from hulk.search.layouts import TOUR
from hulk.search.objective import Score
from hulk.search.request import Request
from hulk.search.spaces import spaces_of

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


@dataclass(frozen=True)
class Noted:
    """A network that notes how many plans it was asked to go on with."""

    network: Network
    events: list[object]

    def run(self, graph: Graph, known: np.ndarray) -> Answer:
        self.events.append(len(known))
        return self.network.run(graph, known)


def _followed(effort: Effort, stop_after: int | None = None) -> tuple[list[object], PlanResult]:
    """What happened in a search, in order: a number for each look of the network, a score for each report; it is
    stopped after so many reports."""
    cluster, jobs = scattered(3, Scale(40, 40, 3))
    events: list[object] = []
    result = plan_jobs(
        Request(cluster, tuple(jobs), bundled_compute()),
        effort,
        network=Noted(exported(), events),
        progress=lambda _seconds, score: events.append(score),
        stop=lambda: stop_after is not None and _reports(events) >= stop_after,
    )
    return events, result


def _reports(events: list[object]) -> int:
    return sum(isinstance(event, Score) for event in events)


def test_the_first_report_waits_for_nobody():
    events, _ = _followed(Effort(time_limit=60.0, evaluations=300))
    looks = [event for event in events if isinstance(event, int)]
    assert isinstance(events[0], Score)  # a deal of the search's own
    assert looks[0] == 1  # the likeliest alone
    assert max(looks) > 1
    assert _reports(events[: events.index(max(looks))]) >= 2  # the likeliest is judged before any other is drawn


def test_a_search_that_is_stopped_at_once_has_asked_for_the_likeliest_only():
    events, result = _followed(Effort(time_limit=60.0, evaluations=300), stop_after=1)
    assert {event for event in events if isinstance(event, int)} == {1}
    assert result.hurried
    assert result.score <= next(event for event in events if isinstance(event, Score))


def test_the_same_seed_gives_the_same_plan_with_the_network():
    effort = Effort(time_limit=60.0, evaluations=300, seed=5)
    (one, once), (two, again) = _followed(effort), _followed(effort)
    assert not once.hurried
    assert (once.plan, once.score) == (again.plan, again.score)
    assert one == two  # every report on the way, too


def test_groups_keep_their_price_when_the_network_orders_stages():
    """What a search has priced before the network is asked is still what its recipes say after that."""
    cluster, jobs = scattered(6, Scale(60, 60, 3))
    groups = GroupSearch(spaces_of(cluster, jobs, bundled_compute()), np.random.default_rng(0))
    last = len(groups.packed.tours) - 1
    own = next(deal for deal in (groups.drawn() for _ in range(50)) if (deal.recipes[:, TOUR] == last).any())
    before = groups.state(own).skeletons
    starts(groups, rng=np.random.default_rng(1), network=exported(), samples=1, own=own)
    assert groups.state(own).skeletons == before
    assert not (own.recipes[:, TOUR] == last).any()


def test_benchmark_scenes_are_spread_over_sizes_and_have_several_jobs():
    scenes = [draw(number) for number in range(16)]
    assert len({scene.seed for scene in scenes}) == 16
    assert draw(100).machines == scenes[0].machines
    assert draw(100).seed != scenes[0].seed
    assert min(scene.seed for scene in scenes) >= 1_000_000
    assert all(len(scene.jobs) > 1 for scene in scenes)
    sizes = np.log(sorted(scene.machines for scene in scenes))
    assert np.diff(sizes) == pytest.approx(math.log(1000 / 32) / 16, rel=0.2)


def test_the_cheapest_plan_is_kept(tmp_path):
    scene = draw(0)
    search = scene.search()
    path = tmp_path / "kept.json"
    Kept(path).offer(scene, search, 10.0, "a", searched_s=60)
    assert Kept(path).offer(scene, search, 11.0, "b").found_by == "a"
    best = Kept(path).offer(scene, search, 9.0, "c")
    assert (best.cost, best.found_by, best.searched_s) == (9.0, "c", 60)
    assert Kept(path).get(scene, search) == best
    assert Kept(path).get(scene, draw(1).search()) is None  # priced differently


def test_gaps_are_read_from_tracks():
    track = Track(((0.3, 3e10), (1.0, 30.0), (6.0, 10.5), (9.0, 10.1)))
    assert (track.at(0.2), track.at(1.0), track.at(8.0), track.least) == (math.inf, 30.0, 10.5, 10.1)
    race = Race(draw(0), (track, track), (Track(()),), best=10.0)
    assert race.gaps(race.without, 8.0) == pytest.approx([0.05, 0.05])
    # No plan yet, and a job that waits: as bad as can be, and a number.
    assert race.gaps(race.without, 0.2) == race.gaps(race.without, 0.3) == [WORST, WORST]
    assert race.gaps(race.with_network, 16.0) == [WORST]


def test_the_benchmark_follows_searches_both_ways(tmp_path, capsys):
    given = Given(scenes=1, limit=1.0, at_once=1, network=exported_folder(), repeats=2)
    kept = Kept(tmp_path / "kept.json")
    report = build_report(given, ["marks"], kept)
    assert (report.figures["scenes_small"], report.figures["scenes_large"]) == (1, 0)
    assert {name.rpartition("_at_")[2] for name in report.figures if "_at_" in name} == {"0.2_s", "0.5_s", "1_s"}
    for way in ("without", "with"):
        gaps = [report.figures[f"gap_percent_{way}_small_at_{mark}_s"] for mark in (0.2, 0.5, 1)]
        assert 100 * WORST >= gaps[0] >= gaps[1] >= gaps[2] >= 0
    assert report.bounds["gap_points_more_with_small_at_0.2_s"] == (None, 1.0)
    assert "1 of 1: 32 machines" in capsys.readouterr().err
    best = kept.get(draw(0), draw(0).search())
    assert best is not None
    assert best.searched_s == 1.0


def test_large_scenes_must_halve_their_gap_early(tmp_path, monkeypatch):
    """On made-up tracks: a third of the gap at half a second is enough, three quarters at one second is not."""
    without, with_network = Track(((0.1, 1.6), (0.7, 1.2), (1.5, 1.0))), Track(((0.1, 1.2), (0.7, 1.15), (3.0, 1.02)))
    monkeypatch.setattr("gnn_search.spread", lambda _work, _given: iter([(draw(3), [(without, with_network)])]))
    monkeypatch.setattr("gnn_search.runs", lambda _search, _cost: True)
    report = build_report(Given(scenes=1), ["marks"], Kept(tmp_path / "kept.json"))
    assert report.figures["gap_ratio_large_at_0.5_s"] == pytest.approx(1 / 3)
    assert report.holds("gap_ratio_large_at_0.5_s")
    assert report.figures["gap_ratio_large_at_1_s"] == pytest.approx(3 / 4)
    assert not report.holds("gap_ratio_large_at_1_s")
    assert report.figures["gap_points_more_with_large_at_2_s"] == pytest.approx(15.0)
    assert not report.holds("gap_points_more_with_large_at_2_s")
    assert not report.holds("gap_points_more_with_large_at_16_s")  # two points
    assert "gap_ratio_large_at_16_s" not in report.figures


def test_the_benchmark_prices_proposals(tmp_path, monkeypatch):
    for name, little in (("BASELINE_LIMIT", 0.3), ("LOOKS", 2), ("ARRANGED", 1), ("TIMES", 2)):
        monkeypatch.setattr(f"gnn_proposal.{name}", little)
    given = Given(scenes=1, at_once=1, network=exported_folder())
    kept, scene = Kept(tmp_path / "kept.json"), draw(0)
    kept.offer(scene, scene.search(), 1e-3, "made up")
    report = build_report(given, ["proposal"], kept)
    assert report.figures["proposal_median_gap_percent"] > 0
    assert 0 <= report.figures["better_than_greedy_share"] <= 1
