"""`hulk explain` for people and for programs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

import small
from hulk.cli.explain import explain
from hulk.cost.price import price_job
from hulk.domain.options import Options
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.view.words import pipeline_lines, stage_lines

app = typer.Typer()
app.command()(explain)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return small.write_files(tmp_path_factory.mktemp("case"))


def test_for_people(files):
    done = CliRunner().invoke(app, [*files])
    assert done.exit_code == 0, done.output
    for part in (
        "rome: rome-1, rome-2 (4 GPUs)",
        "layers 0–25 on rome-1, 2 stages of 1×rtx-3090",
        "layers 12–25 on paris-1, 2×v100-32",
        "bottleneck",
        "would help",
        "tightest on",
        "to finish in",
        "an hour",
        "idle: rome: rome-3; oslo: oslo-1 (3 GPUs)",
    ):
        assert part in done.output, part


def test_for_programs(files):
    done = CliRunner().invoke(app, [*files, "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document["hulk"] == "explanation/1"
    bert = document["jobs"]["bert"]
    assert sum(bert["breakdown_s"].values()) == pytest.approx(bert["step_s"])
    assert bert["headroom_bytes"] > 0
    assert all(w["after_s"] < w["before_s"] for w in bert["what_if"])
    assert document["idle"] == ["rome-3", "oslo-1"]


def _priced(plan: JobPlan, global_batch: int):
    job = replace(small.jobs()[0], global_batch=global_batch)
    return price_job(job, plan, small.cluster(), compute=small.compute())


def test_equal_replicas_are_told_once():
    pipelines = tuple(Pipeline((Stage(f"rome-{n}", (g,), 0, 25),), 8) for n in (1, 2) for g in (0, 1))
    plan = JobPlan(pipelines, Options(microbatch_size=1))
    lines = pipeline_lines(plan, _priced(plan, 32))
    assert lines == [
        "pipeline 1 and 3 more like it, 8 microbatches each",
        "  layers 0–25 on rome-1, 1×rtx-3090",
        "  the others also on rome-2",
    ]


def test_a_long_pipeline_is_told_by_region():
    order = [("rome-1", 0), ("rome-2", 0), ("rome-1", 1), ("rome-3", 0), ("paris-1", 0), ("paris-2", 0)]
    stages = tuple(Stage(name, (gpu,), 4 * i, 4 * i + 3 if i < 5 else 25) for i, (name, gpu) in enumerate(order))
    plan = JobPlan((Pipeline(stages, 8),), Options(microbatch_size=1))
    long = _priced(plan, 8).pipelines[0]
    assert len(stage_lines(long, len(long))) == 6
    many = stage_lines(long * 4, 4 * len(long))  # 24 changes of machine
    assert len(many) == 8
    assert many[0] == "layers 0–15 in rome, 4 stages on rome-1, rome-2, rome-3 (4 GPUs)"
