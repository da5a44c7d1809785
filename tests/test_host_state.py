"""Optimizer state that lies in the machine's own memory: room on GPUs, seconds of the host, and who can do it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, MEGATRON, MEGATRON_DEEPSPEED, TORCHTITAN, Engine
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible, JobPrice, Obstacle
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.gpu import Precision
from hulk.domain.job import Job
from hulk.domain.regular import parse_regular, regular_plan
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.planner import plan_jobs
from hulk.search.budget import Effort
from hulk.search.request import Request
from warm import hulk

H100 = gpu("h100")
ONE = Cluster(
    "one", (Region("here"),), (Machine("node", "here", H100, 8, H100.memory, 50e9, 0.0),),
    {pair("here", "here"): Link(1e-5, 50e9)},
)  # fmt: skip
LARGE = Job("large", build_named_model("llama-3-70b", sequence=2048), global_batch=64, precision=Precision.BF16)
SMALL = Job("small", build_named_model("llama-3-8b", sequence=2048), global_batch=64, precision=Precision.BF16)


def price(layout: str, job: Job = SMALL, engine: Engine = MEGATRON) -> JobPrice | Infeasible:
    plan = regular_plan(parse_regular(layout), job, ONE)
    return price_job(job, plan, ONE, compute=ComputeModel(), engine=engine)


def test_gpus_keep_weights_and_gradients_and_the_host_takes_its_time():
    here, there = price("tp8 mb1 sp"), price("tp8 mb1 sp host")
    assert isinstance(here, JobPrice)
    assert isinstance(there, JobPrice)
    (before,), (after,) = here.pipelines[0], there.pipelines[0]
    params = SMALL.model.params / 8
    assert before.memory.optimizer == pytest.approx(12 * params, rel=0.01)
    assert after.memory.optimizer == 0.0
    assert (after.memory.weights, after.memory.gradients) == (before.memory.weights, before.memory.gradients)
    # Gradients in fp32 to the host over PCIe 5, 2 ns a parameter there, and 16-bit weights back.
    seconds = params * (4 / 50e9 + 2e-9 + 2 / 50e9)
    overhead = MEGATRON.step_overhead
    assert there.breakdown.update == pytest.approx(seconds + overhead, rel=0.01)
    assert there.breakdown.update > 5 * (here.breakdown.update - overhead)
    assert there.step - here.step == pytest.approx(there.breakdown.update - here.breakdown.update, rel=0.01)


def test_replicas_that_shard_state_share_the_update():
    alone, shared = (price(f"tp4 dp2 mb1 sp {words}") for words in ("host", "zero1 host"))
    assert isinstance(alone, JobPrice)
    assert isinstance(shared, JobPrice)
    overhead = MEGATRON.step_overhead
    assert shared.breakdown.update - overhead == pytest.approx((alone.breakdown.update - overhead) / 2, rel=0.01)


@pytest.mark.parametrize("engine", [HULK, MEGATRON_DEEPSPEED, TORCHTITAN], ids=lambda engine: engine.name)
def test_an_engine_without_it_says_so(engine):
    found = price("tp8 mb1 host", engine=engine)
    assert isinstance(found, Infeasible)
    assert found.obstacle is Obstacle.ENGINE
    assert "held by the host" in found.reason


def test_a_search_finds_it_where_nothing_else_fits_and_leaves_it_where_all_does():
    effort = Effort(evaluations=2000, time_limit=120)
    for job, engine, runs in ((LARGE, MEGATRON, True), (LARGE, _without(MEGATRON), False), (SMALL, MEGATRON, True)):
        result = plan_jobs(Request(ONE, (job,), ComputeModel(), engine), effort)
        assert (job.name in result.plan.jobs) == runs
        if runs:
            assert result.plan.jobs[job.name].options.host_state == (job is LARGE)


def _without(engine: Engine) -> Engine:
    return replace(engine, offers={**engine.offers, "host_state": (False,)})


CLUSTER = "regions: {here: {at: [1, 1]}}\nmachines: [{name: node, region: here, gpu: h100, gpus: 8}]\n"
JOBS = "jobs: [{name: j, model: llama-3-70b, sequence: 2048, global_batch: 64}]\n"


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    (tmp_path / "j.yaml").write_text(JOBS)
    given = ("c.yaml", "j.yaml", "--engine", "megatron", "--uniform", "--evaluations", "500", "-o", "p.json")
    planned = hulk("plan", *given, cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "optimizer state held by the host" in planned.stdout
    assert '"host_state": true' in (tmp_path / "p.json").read_text()
    shared = ("p.json", "-c", "c.yaml", "-j", "j.yaml")
    exported = hulk("export", *shared, "--to", "megatron", "-o", "out", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    assert "--optimizer-cpu-offload\n" in (tmp_path / "out" / "arguments.txt").read_text()
    for target, more in (("torchtitan", ()), ("torchrun", ("--data", "j.yaml"))):
        refused = hulk("export", *shared, "--to", target, "-o", f"to-{target}", *more, cwd=tmp_path)
        assert refused.returncode in (2, 3)
        assert "host" in refused.stderr
        assert not (tmp_path / f"to-{target}").exists()
