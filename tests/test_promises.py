"""Every promise of `hulk plan` over hundreds of drawn cases, and the checker that says so: it must see each kind of
broken promise, or its silence would mean nothing."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hulk.cli
import promises_models as models
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.models import build_named_model, model_names
from promises_case import Case, Job, Machine, Network, Options, Rule
from promises_check import Seen, check
from promises_draw import draw
from promises_run import run_hulk

DRAWS, SEED = 300, 7
BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "promises.py"


def test_every_promise_is_kept_or_the_exit_code_says_so():
    command = [sys.executable, str(BENCHMARK), "--json", "--draws", str(DRAWS), "--seed", str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert result["failures"] == []
    figures = result["figures"]
    assert figures["draws"] == DRAWS
    assert (figures["crashes"], figures["broken_promises"]) == (0, 0)
    # Not trivial: most are planned, and every limit is met in one draw and beyond reach in another.
    missed = {name for name, (least, most) in result["bounds"].items() if not _within(figures[name], least, most)}
    assert missed == set(), result["figures"]


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


# A case by hand, with a plan that keeps everything: x has two pipelines, one over two GPUs of `a`, one on both of `b`.

SHAPE = models.Shape(
    "tiny",
    (models.Piece(1000), models.Piece(5000, heads=2), models.Piece(5000, heads=2), models.Piece(1000, tied=1000)),
    sequence=16,
    longest=16,
)
GIB = 2.0**30
CASE = Case(
    machines=(
        Machine("a", "rome", 2, 24 * GIB, 2.0),
        Machine("b", "rome", 2, 24 * GIB, 4.0),
        Machine("c", "paris", 4, 24 * GIB, 8.0),
    ),
    network=Network(machines={frozenset("bc"): True}),
    jobs=(
        Job("x", SHAPE, 16, 4, "bf16", "adamw", 1.0, tokens=6400.0, deadline=200.0),
        Job("y", SHAPE, 16, 2, "fp32", "sgd", 1.0, allow=("paris",)),
    ),
    options=Options(pins=(("x", "a"),), avoids=(("y", "b"),), max_cost=9.0, min_throughput=60.0, out="plan.json"),
    files={"cluster.yaml": "", "jobs.yaml": ""},
    mode="by hand",
)
PLAN: dict[str, Any] = {
    "jobs": {
        "x": {
            "microbatch_size": 1,
            "sharding": "none",
            "pipelines": [
                {
                    "microbatches": 1,
                    "stages": [
                        {"machine": "a", "gpus": [0], "layers": [0, 1]},
                        {"machine": "a", "gpus": [1], "layers": [2, 3]},
                    ],
                },
                {"microbatches": 3, "stages": [{"machine": "b", "gpus": [0, 1], "layers": [0, 3]}]},
            ],
        },
        "y": {
            "microbatch_size": 2,
            "sharding": "none",
            "pipelines": [{"microbatches": 1, "stages": [{"machine": "c", "gpus": [0], "layers": [0, 3]}]}],
        },
    },
    "idle": [],
    "waiting": {},
}


def priced(plan: dict[str, Any]) -> dict[str, Any]:
    """What `hulk price` would say: a second a step, a tenth of a cent of egress."""
    hourly = {"a": 1.0, "b": 2.0, "c": 2.0}
    tokens = {"x": 64, "y": 32}
    jobs = {}
    for name, own in plan["jobs"].items():
        stages = [stage for pipeline in own["pipelines"] for stage in pipeline["stages"]]
        jobs[name] = {
            "feasible": True,
            "step_s": 1.0,
            "tokens_per_s": tokens[name],
            "money_per_step": {
                "gpus": sum(hourly.get(stage["machine"], 0) * len(stage["gpus"]) for stage in stages) / 3600,
                "egress": 1e-5,
            },
            "pipelines": [
                [
                    {"machine": stage["machine"], "memory": {"capacity": 24 * GIB}, "memory_used": GIB}
                    for stage in stages
                ]
            ],
        }
    return jobs


def promises_broken(
    plan: dict[str, Any] = PLAN,
    *,
    case: Case = CASE,
    code: int | None = 0,
    broken: tuple[str, ...] = (),
    written: bool | None = None,
    price: Callable[[dict[str, Any]], None] = lambda jobs: None,
    **changes: Any,
) -> set[str]:
    """The promises that the checker finds broken in an answer with this plan. `price` spoils what the price says."""
    prices = priced(plan)
    price(prices)
    document = {"plan": plan, "price": {"jobs": priced(plan)}, "broken": list(broken)}
    files = dict(case.files)
    if code in (0, 3) and (not broken if written is None else written):
        files["plan.json"] = json.dumps(plan)
    stderr = "error: something is wrong\n" if code == 2 else ""
    seen = Seen(code, f"exit code {code}", json.dumps(document), stderr, 1.0, files)
    after = Seen(0, "exit code 0", json.dumps({"jobs": prices}), "", 0.1, {})
    return {fault.promise for fault in check(case, replace(seen, **changes), after)}


def test_a_plan_that_keeps_everything_passes():
    assert promises_broken() == set()


def spoiled(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    plan = copy.deepcopy(PLAN)
    change(plan)
    return plan


def stage_of(plan: dict[str, Any], job: str, pipeline: int = 0, stage: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = plan["jobs"][job]["pipelines"][pipeline]["stages"][stage]
    return found


def shares(plan: dict[str, Any], *microbatches: int) -> None:
    for pipeline, share in zip(plan["jobs"]["x"]["pipelines"], microbatches, strict=True):
        pipeline["microbatches"] = share


def without_y(plan: dict[str, Any]) -> None:
    del plan["jobs"]["y"]
    plan["idle"] = ["c"]


def y_waits(plan: dict[str, Any]) -> None:
    without_y(plan)
    plan["waiting"] = {"y": "no room"}


@pytest.mark.parametrize(
    ("promise", "change"),
    [
        ("every job is answered", without_y),
        ("no job waits", y_waits),
        ("says why", lambda plan: (y_waits(plan), plan["waiting"].update(y=" "))),
        ("machines exist", lambda plan: stage_of(plan, "y").update(machine="d")),
        ("GPUs exist", lambda plan: stage_of(plan, "y").update(gpus=[4])),
        ("a GPU serves once", lambda plan: stage_of(plan, "x", 0, 1).update(gpus=[0])),
        ("every layer once and in order", lambda plan: stage_of(plan, "x", 0, 1).update(layers=[1, 3])),
        ("every layer once and in order", lambda plan: stage_of(plan, "x", 1, 0).update(layers=[0, 2])),
        ("batches add up", lambda plan: shares(plan, 1, 2)),
        ("batches add up", lambda plan: shares(plan, 0, 4)),
        ("tensor parallel divides the heads", lambda plan: stage_of(plan, "y").update(gpus=[0, 1, 2])),
        ("allow and deny hold", lambda plan: stage_of(plan, "y").update(machine="b")),
        ("avoided machines stay unused", lambda plan: stage_of(plan, "y").update(machine="b")),
        ("pins hold", lambda plan: stage_of(plan, "y").update(machine="a")),
        ("nothing over a blocked link", lambda plan: stage_of(plan, "x", 0, 1).update(machine="c")),
        ("idle is what is unused", lambda plan: plan.update(idle=["c"])),
        ("chunks go round the same GPUs", lambda plan: plan["jobs"]["x"].update(chunks=2)),
    ],
)  # fmt: skip
def test_the_checker_sees_a_plan_that_breaks(promise, change):
    assert promise in promises_broken(spoiled(change))


def test_the_checker_sees_a_pinned_machine_left_idle():
    def moved(plan):
        del plan["jobs"]["x"]["pipelines"][0]
        plan["jobs"]["x"]["pipelines"][0]["microbatches"] = 4
        plan["idle"] = ["a"]

    assert promises_broken(spoiled(moved)) == {"keeps pin", "says what is broken"}
    assert promises_broken(spoiled(moved), code=3) == {"says what is broken", "says why"}
    assert promises_broken(spoiled(moved), code=3, broken=("x does not use a",)) == set()


TIED, KEPT_OUT = Rule(frozenset({0}), ("rome",), False), Rule(frozenset({0}), ("pa*",), True)


@pytest.mark.parametrize(
    ("promise", "changed"),
    [
        ("keeps max-cost", {"options": replace(CASE.options, max_cost=8.0)}),
        ("keeps min-throughput", {"options": replace(CASE.options, min_throughput=97.0)}),
        ("uniform pipelines are alike", {"options": replace(CASE.options, uniform=True)}),
        ("headroom is left", {"options": replace(CASE.options, headroom=0.96)}),
        ("keeps deadline", {"jobs": (replace(CASE.jobs[0], deadline=99.0), CASE.jobs[1])}),
        ("allow and deny hold", {"jobs": (CASE.jobs[0], replace(CASE.jobs[1], allow=()))}),
        ("allow and deny hold", {"jobs": (CASE.jobs[0], replace(CASE.jobs[1], deny=("pa*",)))}),
        ("layers are where they may be", {"jobs": (CASE.jobs[0], replace(CASE.jobs[1], place=(TIED,)))}),
        ("layers are where they may be", {"jobs": (CASE.jobs[0], replace(CASE.jobs[1], place=(KEPT_OUT,)))}),
        ("fits into memory", {"machines": (replace(CASE.machines[0], memory=100_000.0), *CASE.machines[1:])}),
        ("refuses contradictions", {"refuse": "a contradiction"}),
        ("nothing over a blocked link", {"network": Network(regions={frozenset(("rome",)): True})}),
    ],
)  # fmt: skip
def test_the_checker_sees_a_case_that_the_plan_breaks(promise, changed):
    assert promise in promises_broken(case=replace(CASE, **changed))


@pytest.mark.parametrize(
    ("promise", "answer"),
    [
        ("ends well", {"code": None}),
        ("ends well", {"code": 1}),
        ("ends well", {"stderr": "Fatal Python error: Segmentation fault"}),
        ("answers in JSON", {"stdout": "x: 1 s a step"}),
        ("refuses nothing else", {"code": 2}),
        ("says why", {"code": 2, "stderr": ""}),
        ("says why", {"code": 3}),
        ("says what is broken", {"code": 3, "case": replace(CASE, options=replace(CASE.options, max_cost=1.0))}),
        ("breaks what it says", {"code": 3, "broken": ("the deadline of x cannot be kept",)}),
        ("keeps what it says", {"code": 0, "broken": ("the deadline of x cannot be kept",)}),
        ("writes kept plans only", {"code": 3, "broken": ("too dear",), "written": True}),
        ("writes kept plans only", {"code": 0, "written": False}),
        ("leaves nothing behind", {"files": {**CASE.files, "plan.json": json.dumps(PLAN), ".plan.tmp": ""}}),
        ("leaves files alone", {"files": {**CASE.files, "plan.json": json.dumps(PLAN), "jobs.yaml": "jobs: []"}}),
        ("writes what it prints", {"files": {**CASE.files, "plan.json": "{}"}}),
        ("writes no refused plan", {"code": 2, "files": {**CASE.files, "plan.json": "{}"}}),
        ("prices agree", {"price": lambda jobs: jobs["x"].update(step_s=1.00001)}),
        ("money is GPU hours", {"price": lambda jobs: jobs["y"]["money_per_step"].update(gpus=8.0 / 3600)}),
        ("headroom is left", {"price": lambda jobs: jobs["y"]["pipelines"][0][0].update(memory_used=23.5 * GIB)}),
        ("fits into memory", {"price": lambda jobs: jobs["y"]["pipelines"][0][0]["memory"].update(capacity=48 * GIB)}),
        ("throughput is tokens over seconds", {"price": lambda jobs: jobs["x"].update(tokens_per_s=65.0)}),
    ],
)  # fmt: skip
def test_the_checker_sees_an_answer_that_breaks(promise, answer):
    assert promise in promises_broken(**answer)


def test_broken_limits_and_waiting_jobs_are_answers_when_they_are_told():
    dear = replace(CASE, options=replace(CASE.options, max_cost=1.0))
    assert promises_broken(case=dear, code=3, broken=("8.07 $/h, not 1 $/h",)) == set()
    assert promises_broken(spoiled(y_waits), code=3) == set()
    assert promises_broken(case=replace(CASE, refuse="a contradiction"), code=2) == set()


# What the checker knows by itself agrees with what Hulk reads from the same files.


def test_own_sizes_of_models_are_bounds_from_below_and_not_far_below():
    for name in model_names():
        model, own = build_named_model(name), models.bundled_shape(name)
        assert len(own.pieces) == len(model.layers), name
        assert [piece.heads for piece in own.pieces] == [layer.head_width for layer in model.layers], name
        assert [piece.tied for piece in own.pieces] == [layer.tied for layer in model.layers], name
        assert all(piece.params <= layer.params for piece, layer in zip(own.pieces, model.layers, strict=True)), name
        assert own.params > 0.8 * model.params, name


@pytest.mark.parametrize("number", range(60))
def test_a_drawn_case_is_read_as_it_was_drawn(number, tmp_path):
    case = draw(SEED, number)
    case.write(tmp_path)
    cluster = load_cluster(tmp_path / "cluster.yaml")
    assert [(m.name, m.region, m.gpus) for m in cluster.machines] == [(m.name, m.region, m.gpus) for m in case.machines]
    for own, read in zip(case.machines, cluster.machines, strict=True):
        assert read.memory == pytest.approx(own.memory)
        assert read.price * 3600 == pytest.approx(own.dollars)
    for a in case.machines:
        for b in case.machines:
            assert case.network.blocked(a, b) == (a.name != b.name and cluster.link(a.name, b.name).blocked)
    if case.refuse:
        return
    for own_job, job in zip(case.jobs, load_jobs(tmp_path / "jobs.yaml"), strict=True):
        assert job.tokens_per_step == own_job.tokens_per_step
        assert (job.tokens, job.deadline) == (pytest.approx(own_job.tokens), pytest.approx(own_job.deadline))
        assert [layer.head_width for layer in job.model.layers] == [piece.heads for piece in own_job.shape.pieces]
        for region in cluster.regions:
            assert job.may_run_in(region.name) == own_job.may_run_in(region.name)
            for layer in range(len(job.model.layers)):
                assert job.may_hold(layer, region.name) == own_job.may_hold(layer, region.name)


# The runner sees how a run ends.


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang() -> None:
    while True:
        signal.pause()


def _leave_one_behind() -> None:
    if os.fork() == 0:
        _hang()


@pytest.mark.parametrize(
    ("does", "how"),
    [(_crash, "ended by SIGSEGV"), (_hang, "still running after 1 s"), (_leave_one_behind, "left a process running")],
)
def test_the_runner_sees_a_run_that_does_not_end_well(does, how, monkeypatch, tmp_path):
    monkeypatch.setattr(hulk.cli, "main", does)
    seen = run_hulk(["plan"], tmp_path, limit=1.0)
    assert (seen.code, seen.how) == (None, how)
