"""Limits, deadlines and placements: kept, or refused with exit code 3 and the nearest that can be had."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from hulk.cost.price import price_plan
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster
from hulk.io.cluster_file import read_cluster
from hulk.io.jobs_file import read_jobs
from hulk.io.yamlfile import parse_document
from hulk.planner import plan_jobs
from hulk.search.budget import Effort
from hulk.search.exact import solve_exactly
from hulk.search.objective import Objective, Outcome, job_cost, time_cost
from hulk.search.request import Request
from test_exact import COMPUTE, make_job
from warm import hulk

LAB = """
regions: {a: {at: [52.5, 13.4]}, b: {at: [48.8, 2.3]}, c: {at: [41.9, 12.5]}}
machines:
  - {name: big, count: 2, region: a, gpu: a100-80, gpus: 8, network: 100 Gbit/s}
  - {name: small, count: 4, region: b, gpu: rtx-4090, gpus: 4, network: 10 Gbit/s}
  - {name: fast, region: c, gpu: h100, gpus: 8}
links:
  - {between: [a, b], latency: 12 ms, bandwidth: 1 Gbit/s}
  - {between: [a, c], latency: 12 ms, bandwidth: 1 Gbit/s}
  - {between: [b, c], latency: 12 ms, bandwidth: 1 Gbit/s}
"""
LLAMA = "jobs: [{name: llama, model: llama-3-8b, sequence: 8192, global_batch: 64}]\n"
TWO = """
jobs:
  - {name: llama, model: llama-3-8b, sequence: 8192, global_batch: 64, tokens: 1B, deadline: 1 day}
  - {name: bert, model: bert-large, global_batch: 256, tokens: 10B, deadline: 5 days}
"""
QUICK = ("--evaluations", "1200", "--time-limit", "20", "--workers", "1", "--json")
DAY = 86400.0


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(LAB)
    (tmp_path / "j.yaml").write_text(LLAMA)
    (tmp_path / "two.yaml").write_text(TWO)
    (tmp_path / "soon.yaml").write_text(TWO.replace("1 day", "10 min"))
    return tmp_path


def machines_of(document: dict, job: str) -> set[str]:
    pipelines = document["plan"]["jobs"][job]["pipelines"]
    return {stage["machine"] for pipeline in pipelines for stage in pipeline["stages"]}


@pytest.mark.parametrize("limit", ["1 $/h", "3 $/h", "11 $/h", "40 $/h"])
def test_a_money_limit_is_kept_or_said_to_be_broken(lab, limit):
    done = hulk("plan", "c.yaml", "j.yaml", "--max-cost", limit, *QUICK, cwd=lab)
    assert done.returncode in (0, 3), done.stderr
    answer = json.loads(done.stdout)
    price = answer["price"]["jobs"]["llama"]
    hourly = price["money_per_step"]["total"] / price["step_s"] * 3600
    assert (hourly <= float(limit.split()[0]) * (1 + 1e-6)) == (done.returncode == 0) == (answer["broken"] == [])


@pytest.mark.parametrize(
    ("jobs", "option", "words"),
    [
        ("j.yaml", ("--max-cost", "0.0001 $/h"), "an hour, the limit is $0.0001"),
        ("j.yaml", ("--min-throughput", "1e15"), "tokens/s, at least 1.00P"),
        ("soon.yaml", (), "its deadline is 10.0 min"),
        ("soon.yaml", ("--cheapest",), "its deadline is 10.0 min"),
    ],
)
def test_what_cannot_be_kept_exits_3_shows_the_nearest_and_writes_nothing(lab, jobs, option, words):
    done = hulk("plan", "c.yaml", jobs, *option, *QUICK[:-1], "-o", "p.json", cwd=lab)
    assert done.returncode == 3, done.stderr
    assert words in done.stdout
    assert "nearest" in done.stdout
    assert "a step, " in done.stdout  # the plan itself
    assert not (lab / "p.json").exists()


def test_cheapest_meets_deadlines_for_less_than_the_fastest_plan(lab):
    cheap = hulk("plan", "c.yaml", "two.yaml", "--cheapest", "-o", "p.json", *QUICK, cwd=lab)
    fast = hulk("plan", "c.yaml", "two.yaml", *QUICK, cwd=lab)
    assert cheap.returncode == fast.returncode == 0, cheap.stderr + fast.stderr
    assert (lab / "p.json").exists()
    bills = []
    for done in (cheap, fast):
        prices = json.loads(done.stdout)["price"]["jobs"]
        assert prices["llama"]["finish_s"] <= DAY
        assert prices["bert"]["finish_s"] <= 5 * DAY
        bills.append(sum(price["finish_money"] for price in prices.values()))
    assert bills[0] < 0.9 * bills[1]


def test_a_pinned_machine_is_used_by_its_job_alone(lab):
    pins = ("--pin", "bert=fast", "--pin", "llama=small-3", "--avoid", "llama=big-1")
    for extra in ((), ("--cheapest",), ("--max-cost", "60 $/h"), ("--min-throughput", "1000"), ("--policy", "paper")):
        done = hulk("plan", "c.yaml", "two.yaml", *pins, *extra, *QUICK, cwd=lab)
        assert done.returncode in (0, 3), done.stderr
        answer = json.loads(done.stdout)
        assert not [words for words in answer["broken"] if "pinned" in words or "avoid" in words]
        for job, pinned in (("bert", "fast"), ("llama", "small-3")):
            if job in answer["plan"]["jobs"]:
                assert pinned in machines_of(answer, job), extra
        if done.returncode == 0:
            assert not machines_of(answer, "llama") & {"big-1", "fast"}
            assert "small-3" not in machines_of(answer, "bert")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--pin", "llama=fast", "--avoid", "llama=fast"), "--pin and --avoid both name 'llama=fast'"),
        (("--pin", "llama=fast", "--pin", "bert=fast"), "pinned to 'llama' already"),
        (("--pin", "eu=fast"), "'eu' may not run in 'c'"),
        (("--max-cost", "5 $/h", "--min-throughput", "5"), "add --cheapest to keep both"),
        (("--max-cost", "0 $/h"), "must be more than 0"),
        (("--min-throughput", "inf"), "not a finite number"),
        (("--min-throughput", "nan"), "not a finite number"),
        (("--min-throughput", "-5"), "must be more than 0"),
        (("--exact", "--max-cost", "5 $/h"), "--exact knows the default objective only"),
        (("--exact", "--cheapest"), "--exact knows the default objective only"),
        (("--exact", "--pin", "llama=fast"), "no --pin"),
    ],
)
def test_contradictions_are_refused(lab, options, words):
    jobs = TWO + "  - {name: eu, model: gpt2, global_batch: 8, allow: [a, b]}\n"
    (lab / "three.yaml").write_text(jobs)
    done = hulk("plan", "c.yaml", "three.yaml", *options, *QUICK, cwd=lab)
    assert done.returncode == 2
    assert words in done.stderr


def test_an_empty_allow_means_nowhere(lab):
    (lab / "j.yaml").write_text("jobs: [{name: a, model: gpt2, global_batch: 8, allow: []}]\n")
    done = hulk("plan", "c.yaml", "j.yaml", *QUICK, cwd=lab)
    assert done.returncode == 3
    assert "it may run nowhere" in json.loads(done.stdout)["plan"]["waiting"]["a"]
    (lab / "j.yaml").write_text("jobs: [{name: a, model: gpt2, global_batch: 8, allow: }]\n")
    assert hulk("plan", "c.yaml", "j.yaml", *QUICK, cwd=lab).returncode == 2


def test_a_deadline_needs_tokens(lab):
    (lab / "j.yaml").write_text("jobs: [{name: a, model: gpt2, global_batch: 8, deadline: 5 days}]\n")
    done = hulk("plan", "c.yaml", "j.yaml", *QUICK, cwd=lab)
    assert done.returncode == 2
    assert "a deadline needs `tokens`" in done.stderr


SMALL = "regions: {a: {at: [1, 1]}}\nmachines:\n"


@pytest.mark.parametrize(
    ("machines", "jobs", "words", "never"),
    [
        # Long sequences: the state fits with ease, the activations of one sequence do not.
        ("  - {name: m, region: a, gpu: v100-16, gpus: 1}\n",
         "  - {name: j, model: ./long.json, sequence: 131072, global_batch: 8}\n", "131,072 tokens", "other jobs"),
        # A job alone is never told of others.
        ("  - {name: m, count: 2, region: a, gpu: t4, gpus: 1}\n",
         "  - {name: j, model: gpt2-xl, sequence: 1024, global_batch: 8}\n", "activations of 1 sequence", "other jobs"),
        # Two that fit one at a time.
        ("  - {name: m, region: a, gpu: a100-80, gpus: 1}\n",
         "  - {name: i, model: gpt2, global_batch: 8, weight: 9}\n  - {name: j, model: gpt2, global_batch: 8}\n",
         "if the other jobs left it more machines", "optimizer state"),
    ],
)  # fmt: skip
def test_why_a_job_waits(tmp_path, machines, jobs, words, never):
    (tmp_path / "long.json").write_text(
        json.dumps({
            "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 2048, "vocab_size": 64000, "max_position_embeddings": 131072,
        })
    )  # fmt: skip
    (tmp_path / "c.yaml").write_text(SMALL + machines)
    (tmp_path / "j.yaml").write_text("jobs:\n" + jobs)
    done = hulk("plan", "c.yaml", "j.yaml", *QUICK, cwd=tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    reason = json.loads(done.stdout)["plan"]["waiting"]["j"]
    assert words in reason
    assert never not in reason


def test_exact_keeps_to_avoided_machines_and_deadlines(tmp_path):
    config = tmp_path / "tiny.json"
    config.write_text(
        json.dumps({
            "model_type": "gpt2", "n_embd": 512, "n_layer": 2, "n_head": 4, "vocab_size": 2048, "n_positions": 256,
        })
    )  # fmt: skip
    (tmp_path / "c.yaml").write_text(
        SMALL + "  - {name: h, region: a, gpu: h100, gpus: 1}\n  - {name: t, region: a, gpu: t4, gpus: 1}\n"
    )
    job = "{name: j, model: ./tiny.json, sequence: 256, global_batch: 4, tokens: 1M"
    (tmp_path / "j.yaml").write_text(f"jobs: [{job}}}]\n")
    free = json.loads(hulk("plan", "c.yaml", "j.yaml", "--exact", "--json", cwd=tmp_path).stdout)
    assert "h" in machines_of(free, "j")
    kept = json.loads(hulk("plan", "c.yaml", "j.yaml", "--exact", "--avoid", "j=h", "--json", cwd=tmp_path).stdout)
    assert machines_of(kept, "j") == {"t"}
    finish = free["price"]["jobs"]["j"]["finish_s"]
    (tmp_path / "j.yaml").write_text(f"jobs: [{job}, deadline: {0.5 * finish:.9f} s}}]\n")
    late = hulk("plan", "c.yaml", "j.yaml", "--exact", "--json", cwd=tmp_path)
    assert late.returncode == 3
    assert "deadline" in json.loads(late.stdout)["plan"]["waiting"]["j"]


def fewer_gpus(cluster: Cluster, counts: tuple[int, ...]) -> Cluster | None:
    """The cluster with so many GPUs of each machine, at their share of its price."""
    kept = [
        replace(machine, gpus=count, price=machine.price * count / machine.gpus)
        for machine, count in zip(cluster.machines, counts, strict=True)
        if count
    ]
    return replace(cluster, machines=tuple(kept)) if kept else None


@pytest.mark.parametrize("share", [1.2, 2.0, 4.0, 1e6])
def test_cheapest_is_the_least_by_brute_force(share):
    """Without egress, the least money is the least over all numbers of GPUs of (their price × the least time)."""
    text = (
        SMALL + "  - {name: h, region: a, gpu: h100, gpus: 2}\n  - {name: t, count: 2, region: a, gpu: t4, gpus: 1}\n"
    )
    cluster = read_cluster(parse_document(text, name="c.yaml"))
    job = make_job("j", 2, hidden=1024, batch=8, tied=False, tokens=1e9)
    found: list[tuple[float, float]] = []
    for counts in product(*(range(machine.gpus + 1) for machine in cluster.machines)):
        part = fewer_gpus(cluster, counts)
        if part is not None:
            _, seconds = solve_exactly(part, [job], compute=COMPUTE)
            if seconds["j"] is not None:
                found.append((seconds["j"] * sum(machine.price for machine in part.machines), seconds["j"]))
    least = min(seconds for _, seconds in found)
    job = replace(job, deadline=least * share * job.steps)
    best = min(dollars for dollars, seconds in found if seconds <= job.longest_step)
    request = Request(cluster, (job,), COMPUTE, objective=Objective(cheapest=True))
    result = plan_jobs(request, Effort(evaluations=3000))
    price = price_plan(result.plan, cluster, [job], compute=COMPUTE).jobs["j"]
    assert isinstance(price, JobPrice)
    assert price.finish <= job.deadline * (1 + 1e-9)
    assert price.money.total <= best * 1.005


def test_lateness_counts_more_than_time_and_less_than_waiting():
    job = make_job("j", 1, hidden=512, batch=4, tied=False, tokens=1e6)
    job = replace(job, deadline=job.steps * 2.0)
    assert job_cost(job, 1.9) == time_cost(job, 1.9)
    assert time_cost(job, 1e6) < job_cost(job, 2.1) < job_cost(job, 2.2) < job_cost(job, 1e6) < job_cost(job, None)
    assert Objective().broken([job], [Outcome(2.1)])
    assert not Objective().broken([job], [Outcome(2.0)])


def test_weights_do_not_count_in_a_throughput_limit():
    jobs = read_jobs(parse_document("jobs: [{name: a, model: gpt2, global_batch: 8, weight: 100}]", name="j.yaml"))
    limit = jobs[0].tokens_per_step  # tokens/s, reached by a step of one second
    assert Objective(least_tokens_per_second=limit * 1.01).broken(jobs, [Outcome(1.0)])
    assert not Objective(least_tokens_per_second=limit).broken(jobs, [Outcome(1.0)])
