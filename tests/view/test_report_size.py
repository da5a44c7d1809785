"""A report stays small enough to be mailed, however many large jobs it shows."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import small
from hulk.domain.options import Options, Recompute
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.io.cluster_file import read_cluster
from hulk.io.page_files import page_files
from hulk.io.yamlfile import parse_document
from hulk.simulate import Simulation
from hulk.view.build import Extras, Shown, document_of
from hulk.view.report import report_html
from hulk.view.timeline import timeline_view

MOST = 3_000_000
CLUSTER = """
name: halls
regions: {rome: {at: [41.9, 12.5]}, paris: {at: [48.9, 2.4]}}
machines:
  - {name: rm, count: %d, region: rome, gpu: v100-32, gpus: 8, network: 10 Gbit/s}
  - {name: pr, count: %d, region: paris, gpu: v100-32, gpus: 8, network: 10 Gbit/s}
"""
STAGES, PIPELINES, MICROBATCHES = 13, 16, 96


def large(jobs: int) -> tuple[Shown, Simulation]:
    """Jobs of 16 pipelines of 13 stages each, on machines of their own, and a step of them: all play alike."""
    each = STAGES * PIPELINES // 8
    machines = jobs * each
    cluster = read_cluster(parse_document(CLUSTER % (machines // 2, machines - machines // 2), name="halls.yaml"))
    layers = len(small.jobs()[0].model.layers) // STAGES
    first = replace(small.jobs()[0], global_batch=PIPELINES * MICROBATCHES)
    work = tuple(replace(first, name=f"job-{number}") for number in range(jobs))
    plans = {}
    for number, job in enumerate(work):
        own = cluster.machines[number * each : (number + 1) * each]
        gpus = [(machine.name, gpu) for machine in own for gpu in range(8)]
        pipelines = []
        for row in range(PIPELINES):
            places = gpus[row * STAGES : (row + 1) * STAGES]
            stages = (Stage(name, (gpu,), s * layers, (s + 1) * layers - 1) for s, (name, gpu) in enumerate(places))
            pipelines.append(Pipeline(tuple(stages), MICROBATCHES))
        plans[job.name] = JobPlan(tuple(pipelines), Options(microbatch_size=1, recompute=Recompute.FULL))
    shown = Shown(Plan(plans), cluster, work, small.compute())
    alone = replace(shown, jobs=work[:1], plan=Plan({"job-0": plans["job-0"]})).simulation()
    return shown, replace(alone, jobs=dict.fromkeys(plans, alone.jobs["job-0"]))


def written(shown: Shown, simulation: Simulation) -> tuple[int, dict[str, object]]:
    """Bytes of the report, and the document in it."""
    text = report_html(document_of(shown, shown.price(), Extras(simulation=simulation)), page_files())
    data = re.search(r'<script id="hulk-data" type="application/json">(.*?)</script>', text, re.S)
    assert data
    return len(text.encode()), json.loads(data[1])["document"]


@pytest.fixture(scope="module")
def four():
    return large(4)


def test_several_large_jobs_share_the_room_of_their_timelines(four):
    size, document = written(*four)
    assert size < MOST
    counts = [sum(len(row["kind"]) for row in job["rows"]) for job in document["timeline"].values()]
    assert len(counts) == 4
    assert 1000 < min(counts) == max(counts)
    assert all(job["resolution"] > 0.0 for job in document["timeline"].values())


def test_the_begin_and_the_end_of_a_long_step_are_shown_in_full(four):
    shown, simulation = four
    made = timeline_view(simulation, dict(shown.plan.jobs))["job-0"]
    rows = {(row["pipeline"], row["slot"]): row for row in made["rows"] if row["lane"] == "compute"}
    passes = [
        span for span in simulation.jobs["job-0"].spans
        if span.kind.computes and (span.pipeline, span.stage % STAGES) in rows and span.microbatch is not None
    ]  # fmt: skip
    until, since = made["in_full"]
    assert 0 < until < since < made["step"]
    whole = [span for span in passes if span.end <= until or span.start >= since]
    told = sum(micro >= 0 for row in rows.values() for micro in row["micro"])
    assert told == len(whole) > 1000


def test_what_would_be_larger_is_left_out_and_said(four, monkeypatch):
    shown, simulation = four
    whole, _ = written(shown, simulation)
    monkeypatch.setattr("hulk.view.report._MOST", whole)
    size, document = written(shown, simulation)
    assert size < whole
    assert document["timeline"]
    assert all("pipelines" not in job for job in document["price"]["jobs"].values())
    monkeypatch.setattr("hulk.view.report._MOST", size)
    less, document = written(shown, simulation)
    assert less < size
    assert document["timeline"] is None
    assert "left out" in document["words"]["notes"][-1]
