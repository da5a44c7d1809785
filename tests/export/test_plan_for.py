"""`hulk plan --for`: a plan that the target can express, at its engine's price, and what that costs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from export_scenes import SITES, clusters, jobs

from hulk.cost.compute import ComputeModel
from hulk.export import TARGETS
from hulk.io.plan_file import load_plan
from hulk.io.profiles import bundled_profiles
from hulk.search.form import Form
from hulk.search.objective import Objective
from hulk.search.request import Request
from hulk.search.uniform import best_uniform
from warm import hulk

JOBS = """
jobs:
  - {name: gpt, model: gpt2-xl, sequence: 512, global_batch: 48, precision: fp16}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sites.yaml").write_text(SITES)
    (tmp_path / "jobs.yaml").write_text(JOBS)
    return tmp_path


def test_a_plan_for_megatron_can_be_exported(folder: Path) -> None:
    words = ("plan", "sites.yaml", "jobs.yaml", "--for", "megatron", "-o", "plan.json", "--evaluations", "300")
    words += ("--workers", "1", "--no-gnn")
    done = hulk(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    told = re.search(r"gpt: .* a step as megatron can express it, .* without that: \+(\d+\.\d)%", done.stdout)
    assert told is not None, done.stdout
    plan = load_plan(folder / "plan.json").jobs["gpt"]
    assert len({pipeline.microbatches for pipeline in plan.pipelines}) == 1
    assert len({stage.ranks for stage in plan.stages}) == 1
    words = ("export", "plan.json", "-c", "sites.yaml", "-j", "jobs.yaml", "--to", "megatron", "-o", "out")
    done = hulk(*words, cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--for", "megatron", "--engine", "torchtitan"), 2, "--for and --engine cannot go together"),
        (("--for", "wireguard"), 2, "it starts no training"),
        (("--for", "megatorn"), 2, "did you mean 'megatron'"),
        (("--for", "torchtitan"), 3, "torchtitan: gpt2-xl is none of the models"),
    ],
)
def test_what_cannot_be_planned_for(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    (folder / "jobs.yaml").write_text(JOBS.replace("fp16", "bf16"))
    done = hulk("plan", "sites.yaml", "jobs.yaml", *words, cwd=folder)
    assert done.returncode == code and message in done.stderr, done.stderr


def test_the_form_of_a_target_is_kept() -> None:
    cluster = clusters()["sites"]
    job = replace(jobs()["tiny"], global_batch=24)
    compute = ComputeModel(bundled_profiles())
    machines = range(len(cluster.machines))
    for name in ("accelerate", "deepspeed", "megatron"):
        target = TARGETS.get(name)
        assert target.form is not None
        (space,) = Request(cluster, (job,), compute, target.engine, Objective()).spaces()
        best = best_uniform(space, machines, target.form)
        assert best is not None and target.form.fits(best.skeleton)
        chains = best.skeleton.chains
        assert target.form.stages is None or len(chains[0]) <= target.form.stages
        # An uneven cut is never worse than the even one.
        even = best_uniform(space, machines, replace(target.form, uneven=False))
        assert even is not None and best.seconds <= even.seconds
    assert Form().fits(best.skeleton)
