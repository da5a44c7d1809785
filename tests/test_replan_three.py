"""Planning again does not move for nothing: three large machines with one job, small ones with others that are lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hulk.cli.app import app
from hulk.domain.options import Options, Recompute
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.io.plan_file import load_plan, save_plan

# What the small ones lose, the two spare machines in oslo take over together: one job on each. The first job to be
# repaired would take both.
CLUSTER = """
name: three
regions: {{rome: {{at: [41.9, 12.5]}}, paris: {{at: [48.9, 2.4]}}, oslo: {{at: [59.9, 10.8]}}}}
machines:
  - {{name: r, count: 3, region: rome, gpu: {large}, gpus: {gpus}, network: 25 Gbit/s}}
  - {{name: p, count: 3, region: paris, gpu: rtx-3090, gpus: 2, network: 10 Gbit/s}}
  - {{name: s, count: 2, region: oslo, gpu: rtx-3090, gpus: 2, network: 10 Gbit/s}}
links:
  - {{between: [rome, paris], latency: 12 ms, bandwidth: 1 Gbit/s}}
  - {{between: [rome, oslo], latency: 22 ms, bandwidth: 1 Gbit/s}}
  - {{between: [paris, oslo], latency: 18 ms, bandwidth: 1 Gbit/s}}
"""
JOBS = """
jobs:
  - {{name: big, model: {model}, sequence: 512, global_batch: 64, precision: fp16, allow: [rome]}}
  - {{name: one, model: bert-large, sequence: 128, global_batch: 64, precision: fp16, deny: [rome]}}
  - {{name: two, model: bert-large, sequence: 128, global_batch: 32, precision: fp16, deny: [rome]}}
"""
QUICK = ("--evaluations", "1500", "--time-limit", "120", "--no-gnn", "--json")
LONGER = ("--evaluations", "12000", "--time-limit", "120", "--no-gnn", "--json")
LOST = ("--lost", "p-1", "--lost", "p-2", "--lost", "p-3")


def hulk(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def replanned(folder: Path, plan: str, *options: str):
    where = ("--cluster", str(folder / "c.yaml"), "--jobs", str(folder / "j.yaml"))
    return hulk("replan", str(folder / plan), *where, *options, *QUICK)


def turned(plan: Plan) -> Plan:
    """The same plan with the large machines' names turned round."""
    others = {"r-1": "r-3", "r-3": "r-2", "r-2": "r-1"}
    big = plan.jobs["big"]
    pipelines = tuple(
        Pipeline(
            tuple(Stage(others[s.machine], s.gpus, s.first, s.last) for s in p.stages), microbatches=p.microbatches
        )
        for p in big.pipelines
    )
    made = JobPlan(pipelines, big.options)
    return Plan({**plan.jobs, "big": made}, plan.idle, plan.waiting)


def small_jobs() -> dict[str, JobPlan]:
    last = 25
    one = JobPlan(
        (Pipeline((Stage("p-1", (0, 1), 0, 11), Stage("p-2", (0, 1), 12, last)), 32),),
        Options(2, recompute=Recompute.FULL),
    )
    two = JobPlan((Pipeline((Stage("p-3", (0, 1), 0, last),), 16),), Options(2, recompute=Recompute.FULL))
    return {"one": one, "two": two}


@pytest.mark.parametrize(
    ("large", "gpus", "model"), [("a100-80", 8, "opt-30b"), ("a100-40", 4, "llama-3-8b"), ("v100-32", 8, "t5-11b")]
)
def test_a_job_that_lost_nothing_and_gains_nothing_keeps_its_plan_exactly(tmp_path, large, gpus, model):
    (tmp_path / "c.yaml").write_text(CLUSTER.format(large=large, gpus=gpus))
    (tmp_path / "j.yaml").write_text(JOBS.format(model=model))
    (tmp_path / "big.yaml").write_text("\n".join(JOBS.format(model=model).splitlines()[:3]))
    cluster, out = str(tmp_path / "c.yaml"), tmp_path / "plan.json"
    made = hulk("plan", cluster, str(tmp_path / "big.yaml"), "-o", str(out), *LONGER, "--workers", "1")
    assert made.exit_code == 0, made.output
    plan = load_plan(out)
    turned_round = turned(Plan({**plan.jobs, **small_jobs()}, ("s-1", "s-2")))
    save_plan(turned_round, out, cluster="three")

    done = replanned(tmp_path, "plan.json", *LOST, "-o", str(tmp_path / "new.json"))
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["stopped"] == []
    assert not told["jobs"]["big"]["changed"]
    assert told["jobs"]["big"]["moves"] == []
    assert load_plan(tmp_path / "new.json").jobs["big"] == turned_round.jobs["big"]
    for again in ("second", "tenth"):  # with the same words, and with none
        options = LOST if again == "second" else ()
        done = replanned(tmp_path, "new.json", *options, "-o", str(tmp_path / f"{again}.json"))
        assert done.exit_code == 0, done.output
        assert not json.loads(done.output)["changed"]
        assert load_plan(tmp_path / f"{again}.json").jobs == load_plan(tmp_path / "new.json").jobs
