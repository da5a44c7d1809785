"""Jobs files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hulk.domain.gpu import Precision
from hulk.domain.job import Attention, Optimizer
from hulk.errors import InputError
from hulk.io.jobs_file import load_jobs, read_jobs
from hulk.io.yamlfile import parse_document

FULL = """
hulk: jobs/1
jobs:
  - name: big
    model: opt-125m
    sequence: 1024
    global_batch: 64
    precision: fp16
    optimizer: sgd
    attention: eager
    tokens: 300B tokens
    weight: 2
    allow: ["eu-*"]
    deny: [eu-london]
  - {name: small, model: bert-base, global_batch: 8}
"""


def test_every_field_arrives() -> None:
    big, small = read_jobs(parse_document(FULL, name="jobs.yaml"))
    assert (big.name, big.model.name, big.model.sequence, big.global_batch) == ("big", "opt-125m", 1024, 64)
    assert (big.precision, big.optimizer, big.attention) == (Precision.FP16, Optimizer.SGD, Attention.EAGER)
    assert (big.tokens, big.weight) == (3e11, 2.0)
    assert big.may_run_in("eu-paris")
    assert not big.may_run_in("eu-london")
    assert not big.may_run_in("us-ohio")
    assert (small.precision, small.optimizer, small.attention) == (Precision.BF16, Optimizer.ADAMW, Attention.FUSED)
    assert (small.tokens, small.weight, small.allow, small.deny) == (None, 1.0, None, ())
    assert small.model.sequence == 512


def test_a_target_sequence_reaches_the_decoder() -> None:
    text = "jobs: [{name: t, model: t5-small, sequence: 512, target_sequence: %d, global_batch: 8}]"
    short, long = (read_jobs(parse_document(text % n, name="j"))[0].model for n in (64, 512))
    assert short.flops_per_sample < long.flops_per_sample


def test_a_model_may_be_a_file_beside_the_jobs_file(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 32}
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    path = tmp_path / "jobs.yaml"
    path.write_text("jobs: [{name: tiny, model: tiny/config.json, global_batch: 4}]")
    (job,) = load_jobs(path)
    assert job.model.sequence == 32
    assert len(job.model.layers) == 4
    path.with_name("hub.yaml").write_text("jobs: [{name: a, model: Qwen/Qwen3-8B, global_batch: 4}]")
    with pytest.raises(InputError, match=r"hub\.yaml:1: jobs\[0\]\.model: no such file .* `hf download Qwen/Qwen3-8B"):
        load_jobs(path.with_name("hub.yaml"))
    (tmp_path / "tiny" / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"jobs\.yaml:1: jobs\[0\]\.model: .*config\.json"):
        load_jobs(path)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("opt-125m", "opt-125n", "jobs.yaml:5: jobs[0].model: unknown model 'opt-125n' (did you mean 'opt-125m'?)"),
        ("opt-125m", "./nothing.json", "jobs.yaml:5: jobs[0].model: nothing.json"),
        ("name: small", "name: big", "jobs.yaml:15: jobs[1].name: job 'big' is given twice"),
        ("precision: fp16", "precision: fp12", "jobs[0].precision: unknown value 'fp12' (one of"),
        ("weight: 2", "weight: 0", "jobs[0].weight: must be at least 1e-09"),
        ("weight: 2", "weight: 1e-320", "jobs[0].weight: must be at least 1e-09"),
        ("weight: 2", "weight: 1e10", "jobs[0].weight: must be at most 1000000000"),
        ("weight: 2", "weight: .nan", "jobs[0].weight: .nan is not a number"),
        ("global_batch: 64", "global_batch: 0", "jobs[0].global_batch: must be at least 1, not 0"),
        ("global_batch: 64", f"global_batch: {10**30}", "jobs[0].global_batch: must be at most 10000000"),
        ("global_batch: 64", "globalbatch: 64", "unknown key 'globalbatch' (did you mean 'global_batch'?"),
        ("tokens: 300B tokens", "tokens: lots", "jobs[0].tokens: 'lots' is not a count"),
        ('allow: ["eu-*"]', "allow: eu-*", "jobs[0].allow: expected a list (text 'eu-*' found)"),
        ("jobs/1", "jobs/9", "jobs.yaml:2: hulk: unknown value 'jobs/9'"),
    ],
)
def test_refuses(before: str, after: str, message: str) -> None:
    assert before in FULL
    with pytest.raises(InputError) as caught:
        read_jobs(parse_document(FULL.replace(before, after), name="jobs.yaml"))
    assert message in str(caught.value)


def test_no_jobs_and_no_such_name() -> None:
    with pytest.raises(InputError, match="at least 1"):
        read_jobs(parse_document("jobs: []", name="jobs.yaml"))
    with pytest.raises(InputError, match="did you mean 'paper4'"):
        load_jobs("paper44")
