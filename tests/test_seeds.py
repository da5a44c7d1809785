"""The benchmark of seeds, with searches of a few moves: how plans are held against the best one ever found."""

from __future__ import annotations

import json

import pytest

import seeds
from hulk.io.plan_file import load_plan
from hulk.search.budget import Effort

FEW = [Effort(evaluations=300, seed=seed, workers=1, time_limit=seeds.WITHOUT_END) for seed in (0, 1)]


@pytest.fixture(scope="module")
def found() -> list[seeds.Found]:
    return list(seeds.searches(FEW, ["paper4"], at_once=1))


@pytest.fixture
def kept(tmp_path) -> seeds.Kept:
    return seeds.Kept(tmp_path / "seeds.json")


def test_a_seed_gives_a_plan_and_its_objective(found):
    assert [one.effort.seed for one in found] == [0, 1]
    assert found[0].objective != found[1].objective
    for one in found:
        assert set(one.plan.jobs) == {"opt-175b", "t5-11b", "gpt2-xl", "bert-large"}
        assert one.step is not None
        assert 0 < one.step < one.objective


def test_without_a_kept_plan_a_run_is_held_against_its_own_best(found, kept, capsys):
    report = seeds.build_report(found, kept)
    least, most = sorted(one.objective for one in found)
    assert report.figures["paper4.best.objective_s"] == report.figures["paper4.best_known.objective_s"] == least
    assert report.figures["paper4.worst.objective_s"] == most
    assert report.figures["paper4.worst_above_best_percent"] == pytest.approx(100 * (most / least - 1))
    assert report.bounds["paper4.worst_above_best_percent"] == (None, 5)
    assert report.bounds["paper4.median_above_best_percent"] == (None, 2)
    assert not kept.path.exists(), "kept without being asked to"
    report.finish(json=False)
    assert "BETTER" in capsys.readouterr().out


def test_a_kept_plan_is_priced_anew_and_compared_with(found, kept, capsys):
    better, worse = sorted(found, key=lambda one: one.objective)
    seeds.build_report(found, kept, keep=True)
    entry = json.loads(kept.path.read_text())["best"]["paper4"]
    assert entry["objective_s"] == better.objective
    assert (entry["moves"], entry["seed"]) == (300, better.effort.seed)
    again = seeds.build_report([worse], seeds.Kept(kept.path))
    assert again.figures["paper4.best_known.objective_s"] == pytest.approx(better.objective, rel=1e-12)
    assert again.figures["paper4.median_above_best_percent"] > 0
    again.finish(json=False)
    assert "BETTER" not in capsys.readouterr().out


def test_what_is_no_better_is_not_kept(found, kept):
    better, worse = sorted(found, key=lambda one: one.objective)
    table = seeds.search_longer([worse, better, worse], kept)
    assert table.count("kept") == 2
    assert json.loads(kept.path.read_text())["best"]["paper4"]["seed"] == better.effort.seed


def test_a_kept_plan_that_cannot_be_read_is_none(found, kept):
    seeds.build_report(found, kept, keep=True)
    (kept.path.with_suffix("") / "paper4.plan.json").write_text("{}")
    report = seeds.build_report(found, seeds.Kept(kept.path))
    assert report.figures["paper4.best_known.objective_s"] == min(one.objective for one in found)


def test_plans_are_those_of_hulk_plan(found, tmp_path, capsys):
    from hulk.cli.app import app

    out = tmp_path / "plan.json"
    arguments = [
        "plan",
        "hulk47",
        "paper4",
        "--evaluations",
        "300",
        "--workers",
        "1",
        "--seed",
        "1",
        "--time-limit",
        str(seeds.WITHOUT_END),
        "--out",
        str(out),
        "--json",
    ]
    app(arguments, standalone_mode=False)
    capsys.readouterr()
    assert load_plan(out).jobs == found[1].plan.jobs
