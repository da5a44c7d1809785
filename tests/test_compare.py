"""`hulk compare` through the command line: who is best by what, what is shown of whom, what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import hulk.propose
from factories import job
from hulk.cli import main
from hulk.search.baselines import BASELINES, score
from hulk.search.objective import WAITING

CITIES = "regions: {beijing: {at: [39.9, 116.4]}, rome: {at: [41.9, 12.5]}}\n"
CLUSTERS = {
    "pair": "bj 1 beijing a100-40 2, rm 2 rome rtx-3090 1",
    "even": "bj 1 beijing rtx-3090 1, rm 2 rome rtx-3090 2",
    "many": "bj 14 beijing a100-40 2, rm 12 rome rtx-3090 2",
    "one": "rm 1 rome rtx-3090 2",
}
URGENT = "{name: urgent, model: gpt2, global_batch: 32, tokens: 3B, weight: 10}"
SHORT = "{name: short, model: gpt2, global_batch: 32, tokens: 1B}"
LONG = "{name: long, model: bert-large, sequence: 512, global_batch: 32, precision: fp16, tokens: 100M}"
OPEN = "{name: open, model: bert-large, sequence: 512, global_batch: 32, precision: fp16, weight: 2}"
HUGE = "{name: huge, model: opt-175b, global_batch: 16}"
QUICK = ("--evaluations", "500")
FEW = ("--baseline", "greedy", "--baseline", "alone")

Hulk = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hulk_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hulk:
    """Runs `hulk VERB CLUSTER JOBS …` in this process, in a folder with the clusters; jobs are given as text. Answers
    with exit code, stdout and stderr."""
    for name, text in CLUSTERS.items():
        machines = [
            "  - {{name: {}, count: {}, region: {}, gpu: {}, gpus: {}}}\n".format(*part.split())
            for part in text.split(", ")
        ]
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n{CITIES}machines:\n{''.join(machines)}")
    monkeypatch.chdir(tmp_path)

    def run(verb: str, cluster: str, jobs: tuple[str, ...], *options: str) -> tuple[int, str, str]:
        (tmp_path / "jobs.yaml").write_text(f"jobs: [{', '.join(jobs)}]\n")
        monkeypatch.setattr(sys, "argv", ["hulk", verb, f"{cluster}.yaml", "jobs.yaml", *options])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def compared(hulk_cli: Hulk, cluster: str, jobs: tuple[str, ...], *options: str, code: int = 0) -> dict[str, Any]:
    done, out, err = hulk_cli("compare", cluster, jobs, *options, "--json")
    assert done == code, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def slowest(system: dict[str, Any]) -> float:
    return max(job["step_s"] for job in system["jobs"].values())


@pytest.mark.parametrize(("cluster", "jobs"), [("pair", (URGENT, LONG)), ("even", (SHORT, LONG))])
def test_hulk_wins_by_what_it_makes_small_where_its_slowest_step_is_longer(hulk_cli, cluster, jobs):
    answer = compared(hulk_cli, cluster, jobs, "--evaluations", "20000", "--baseline", "greedy")
    ours, greedy = answer["systems"]["hulk"], answer["systems"]["greedy"]
    assert slowest(ours) > slowest(greedy)  # by this alone greedy would win
    assert ours["objective_s"] < greedy["objective_s"]
    assert answer["best"] == ["hulk"]
    assert (ours["rank"], greedy["rank"]) == (1, 2)
    assert greedy["ratio_to_hulk"] == pytest.approx(greedy["objective_s"] / ours["objective_s"])


@pytest.mark.parametrize("options", [(), ("--no-gnn",), ("--seed", "3", "--workers", "1", "--time-limit", "90")])
def test_hulks_row_is_what_hulk_plan_reports(hulk_cli, options):
    jobs = (URGENT, OPEN)
    code, out, err = hulk_cli("plan", "many", jobs, *QUICK, *options, "--json")
    assert code == 0, err
    planned = json.loads(out)
    row = compared(hulk_cli, "many", jobs, *QUICK, *options, "--baseline", "B")["systems"]["hulk"]
    assert row["ended_early"] is planned["ended_early"] is False
    for name, price in planned["price"]["jobs"].items():
        shown = row["jobs"][name]
        assert {key: shown[key] for key in ("step_s", "finish_s", "breakdown_s")} == {
            key: price[key] for key in ("step_s", "finish_s", "breakdown_s")
        }
    prices = planned["price"]["jobs"]
    assert row["objective_s"] == pytest.approx(10 * prices["urgent"]["finish_s"] + 2 * prices["open"]["step_s"])


def test_the_network_is_asked_and_no_gnn_keeps_it_away(hulk_cli, tmp_path, monkeypatch):
    monkeypatch.setattr(hulk.propose, "bundled_network", lambda: hulk.propose.load_network(tmp_path))
    options = (*QUICK, "--baseline", "B", "--json")
    code, _, err = hulk_cli("compare", "one", (SHORT,), *options)
    assert code == 0
    assert (
        [line for line in err.splitlines() if not line.startswith("compiling")]
        == [line for line in err.splitlines() if line.startswith("warning: no graph network")]
        != []
    )
    code, _, err = hulk_cli("compare", "one", (SHORT,), *options, "--no-gnn")
    assert (code, err) == (0, "")


def test_the_table_names_the_winner_the_ratio_and_both_times(hulk_cli):
    code, out, err = hulk_cli("compare", "pair", (URGENT, LONG), *QUICK, *FEW)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "weighted sum of times to finish, the least is the best"
    assert [line.split()[:2] for line in lines if "★" in line] == [["★", "hulk"]]
    assert next(line for line in lines if "greedy by region" in line).split()[3].startswith("×")
    assert any(line.startswith("hulk is best, ") and line.endswith("greedy.") for line in lines)
    for head in ("a step takes", "until its tokens are used up"):
        at = next(i for i, line in enumerate(lines) if line.startswith(head))
        assert lines[at].split()[-2:] == ["urgent", "long"]
        assert {line.split()[0] for line in lines[at + 1 : at + 4]} == {"hulk", "greedy", "alone"}
    assert "weights: urgent 10, long 1" in out


def test_jobs_in_turn_run_in_their_best_order_and_wait_for_each_other(hulk_cli):
    jobs = (URGENT, SHORT, LONG)
    row = compared(hulk_cli, "pair", jobs, *QUICK, "--baseline", "alone")["systems"]["alone"]
    tokens = {"urgent": 3e9 / (32 * 1024), "short": 1e9 / (32 * 1024), "long": 1e8 / (32 * 512)}
    own = {name: entry["step_s"] * tokens[name] for name, entry in row["jobs"].items()}
    weight = {name: entry["weight"] for name, entry in row["jobs"].items()}

    def finished(order: tuple[str, ...]) -> dict[str, float]:
        return {name: sum(own[before] for before in order[: i + 1]) for i, name in enumerate(order)}

    def cost(order: tuple[str, ...]) -> float:
        return sum(weight[name] * seconds for name, seconds in finished(order).items())

    best = min(permutations(own), key=cost)
    assert {name: entry["finish_s"] for name, entry in row["jobs"].items()} == pytest.approx(finished(best))
    assert row["objective_s"] == pytest.approx(cost(best))


def test_without_budgets_jobs_in_turn_count_the_sum_of_their_steps(hulk_cli):
    answer = compared(hulk_cli, "pair", (OPEN, OPEN.replace("open", "other").replace("2}", "1}")), *QUICK, *FEW)
    assert answer["objective"] == "weighted sum of step times"
    for system in answer["systems"].values():
        steps = {name: entry["step_s"] for name, entry in system["jobs"].items()}
        assert system["objective_s"] == pytest.approx(2 * steps["open"] + steps["other"])
        assert {entry["finish_s"] for entry in system["jobs"].values()} == {None}


def test_a_job_that_fits_nowhere_waits_and_the_others_are_compared(hulk_cli):
    code, out, _ = hulk_cli("compare", "pair", (SHORT, HUGE), *QUICK, *FEW)
    assert code == 3
    assert "huge waits: its weights and optimizer state take" in out
    assert "hulk is best" in out
    answer = compared(hulk_cli, "pair", (SHORT, HUGE), *QUICK, *FEW, code=3)
    for system in answer["systems"].values():
        assert system["objective_s"] is None
        assert set(system["waiting"]) == {"huge"}
        assert system["ratio_to_hulk"] >= 1
    assert "hulk" in answer["best"]
    assert "alone" not in answer["best"]


def test_one_machine_and_no_place_for_two(hulk_cli):
    """Hulk gives a machine to one job; systems that train in turn have a place for both, and are said to be better."""
    code, out, _ = hulk_cli("compare", "one", (SHORT, LONG), *QUICK, *FEW)
    assert code == 3
    assert "alone is best: it has a place for more than hulk." in out
    answer = compared(hulk_cli, "one", (SHORT, LONG), *QUICK, *FEW, code=3)
    assert answer["best"] == ["alone"]
    assert answer["systems"]["alone"]["ratio_to_hulk"] is None
    assert len(answer["systems"]["hulk"]["waiting"]) == 1


def test_nothing_fits_anywhere(hulk_cli):
    code, out, _ = hulk_cli("compare", "one", (HUGE,), *QUICK)
    assert code == 3
    assert "No system has a place for any job." in out
    assert "★" not in out
    assert compared(hulk_cli, "one", (HUGE,), *QUICK, *FEW, code=3)["best"] == []


OPTIONS = (
    ("--baseline", "greedy"),
    ("--time-limit", "20"),
    ("--evaluations", "300"),
    ("--seed", "5"),
    ("--workers", "1"),
    ("--no-gnn",),
    ("--json",),
)
# Of any two options, all four ways of giving or leaving them are among these eight: row r gives option o where r and
# o + 1 share an odd number of bits.
PAIRS = [[option for o, option in enumerate(OPTIONS, 1) if (row & o).bit_count() % 2] for row in range(8)]


@pytest.mark.parametrize("given", PAIRS, ids=lambda given: " ".join(option[0] for option in given) or "none")
def test_options_go_together(hulk_cli, given):
    code, out, err = hulk_cli("compare", "one", (SHORT,), *(word for option in given for word in option))
    assert code == 0, err
    expected = {"hulk", "greedy"} if OPTIONS[0] in given else {"hulk", *(entry.name for entry in BASELINES.entries())}
    if ("--json",) in given:
        answer = json.loads(out)
        assert set(answer["systems"]) | set(answer["left_out"]) == expected
        assert "hulk" in answer["best"]  # one machine, one job: the search misses nothing
    else:
        heads = {line.replace("★", " ").split()[0] for line in out.splitlines() if "side by side" in line}
        assert heads == expected & {"hulk", "greedy", "metis", "evolution", "random"}
        assert "hulk is best" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--baseline", "gredy"), "no baseline 'gredy' (did you mean 'greedy'?)"),
        (("--baseline", "greedy", "--baseline", ""), "no baseline ''"),
        (("--evaluations", "0"), "--evaluations"),
        (("--workers", "0"), "--workers"),
        (("--seed", "-1"), "--seed"),
        (("--time-limit", "0"), "--time-limit"),
    ],
)
def test_wrong_options_exit_2(hulk_cli, options, words):
    code, out, err = hulk_cli("compare", "one", (SHORT,), *options)
    assert (code, out) == (2, "")
    assert words in err


class TestScore:
    def test_side_by_side_every_job_starts_at_once(self):
        a = job(global_batch=10, tokens=500.0, weight=2.0)  # 10 × 10 tokens a step: 5 steps
        found = score([a], {"toy": 3.0}, concurrent=True)
        assert (found.finish, found.running, found.waiting) == ({"toy": 15.0}, 30.0, 0.0)

    def test_a_heavy_job_goes_first_though_it_is_longer(self):
        light = replace(job(global_batch=10, tokens=100.0), name="light")
        heavy = replace(job(global_batch=10, tokens=200.0, weight=4.0), name="heavy")
        found = score([light, heavy], {"light": 1.0, "heavy": 1.0}, concurrent=False)
        assert found.finish == {"heavy": 2.0, "light": 3.0}
        assert found.running == 4 * 2.0 + 3.0

    def test_a_job_without_a_budget_counts_its_step_and_delays_nobody(self):
        ending = replace(job(global_batch=10, tokens=100.0), name="ending")
        found = score([job(weight=3.0), ending], {"toy": 7.0, "ending": 2.0}, concurrent=False)
        assert found.finish == {"ending": 2.0}
        assert found.running == 3 * 7.0 + 2.0

    def test_a_job_without_a_step_time_waits_as_the_planner_counts_it(self):
        found = score([job(weight=3.0)], {}, concurrent=True)
        assert found.cost == 3 * WAITING
        assert found.finish == {}
