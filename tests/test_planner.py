"""The planner through its one function: plans that hold every invariant, are priced right, and keep every
constraint."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.cost.prepared import prepare
from hulk.cost.price import price_job, price_plan
from hulk.cost.report import JobPrice
from hulk.domain.check import check_plan
from hulk.domain.gpu import Precision
from hulk.domain.job import Job
from hulk.io.cluster_file import load_cluster, read_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_profiles
from hulk.io.yamlfile import parse_document
from hulk.planner import plan_jobs
from hulk.search.budget import Effort
from hulk.search.job_space import JobSpace, Places
from hulk.search.objective import Objective
from hulk.search.request import Request
from hulk.search.shape.arrange import arrange
from hulk.simulate import simulate

COMPUTE = ComputeModel(bundled_profiles())
TEXT = """
regions: {eu-a: {at: [50, 0]}, eu-b: {at: [45, 10]}, us-c: {at: [40, -80]}}
machines:
  - {name: a, count: 2, region: eu-a, gpu: a100-40, gpus: 4}
  - {name: b, count: 2, region: eu-b, gpu: rtx-3090, gpus: 4}
  - {name: c, count: 2, region: us-c, gpu: v100-32, gpus: 8}
"""


def cluster(text: str = TEXT):
    return read_cluster(parse_document(text, name="test.yaml"))


def job(name: str = "bert-large", batch: int = 64, **kwargs) -> Job:
    return Job(name, build_named_model(name), global_batch=batch, precision=Precision.FP16, **kwargs)


def quick(where, jobs, evaluations=800, **kwargs):
    effort = {name: kwargs.pop(name) for name in ("time_limit", "seed") if name in kwargs}
    how = {name: kwargs.pop(name) for name in ("progress", "stop", "network") if name in kwargs}
    request = Request(where, tuple(jobs), COMPUTE, **kwargs)
    return plan_jobs(request, Effort(evaluations=evaluations, **effort), **how)


def machines_of(result, name: str) -> set[str]:
    return {stage.machine for pipeline in result.plan.jobs[name].pipelines for stage in pipeline.stages}


def test_plan_is_valid_and_its_seconds_are_its_price():
    where, jobs = cluster(), [job("gpt2-xl"), job("bert-large")]
    result = quick(where, jobs)
    check_plan(result.plan, where, jobs)
    for each in jobs:
        price = price_job(each, result.plan.jobs[each.name], where, compute=COMPUTE)
        assert isinstance(price, JobPrice)
        assert price.step == pytest.approx(result.seconds[each.name], rel=1e-9)


def test_same_seed_same_plan():
    where, jobs = cluster(), [job("gpt2-xl"), job("bert-large")]
    assert quick(where, jobs, seed=3).plan == quick(where, jobs, seed=3).plan


def test_a_busy_machine_finds_the_same_plan(monkeypatch):
    where, jobs = cluster(), [job("gpt2-xl"), job("bert-large")]
    found = []
    for tick, pause in ((1e-4, 0.0), (5e-3, 0.8)):  # seconds between two looks at the clock; now and then, a pause
        times = accumulate(tick if look % 50 else pause for look in count(1))
        monkeypatch.setattr("time.monotonic", times.__next__)
        found.append(quick(where, jobs, seed=3, evaluations=8000))
    assert found[0] == found[1]
    assert not found[0].hurried
    assert quick(where, jobs, evaluations=10**6, time_limit=0.5).hurried


def test_jobs_stay_where_they_may_run():
    where = cluster()
    jobs = [job("gpt2-xl", allow=("eu-*",)), job("bert-large", deny=("eu-*",))]
    result = quick(where, jobs)
    assert all(where.machine(name).region.startswith("eu-") for name in machines_of(result, "gpt2-xl"))
    assert all(where.machine(name).region == "us-c" for name in machines_of(result, "bert-large"))


def test_machines_kept_from_a_job_are_not_used():
    banned = frozenset({"a-1", "a-2"})
    result = quick(cluster(), [job("gpt2-xl")], keep_from={"gpt2-xl": banned})
    assert not machines_of(result, "gpt2-xl") & banned


@pytest.mark.parametrize(
    ("jobs", "waits", "words"),
    [
        ([job("opt-175b"), job("bert-large")], "opt-175b", "weights and optimizer state take"),
        ([job("bert-large", allow=("mars",)), job("gpt2-xl")], "bert-large", "no machine is in a region"),
    ],
)
def test_a_job_without_a_place_waits_and_the_others_run(jobs, waits, words):
    result = quick(cluster(), jobs)
    assert set(result.plan.waiting) == {waits}
    assert words in result.plan.waiting[waits]
    assert result.seconds[waits] is None
    assert set(result.plan.jobs) == {each.name for each in jobs} - {waits}


@pytest.mark.parametrize(
    ("first", "waits", "objective"),
    [
        ("gpt2-xl", "opt-175b", Objective()),
        ("gpt2-xl", "opt-175b", Objective(most_dollars_per_second=60 / 3600)),
        ("opt-30b", "opt-30b", Objective()),
    ],
)
def test_a_job_without_a_place_does_not_spoil_the_others_search(first, waits, objective):
    where, jobs = cluster(), [job(first, weight=5.0), job("bert-large", weight=5.0)]
    moves = 6_000 if objective.needs_money else 20_000  # money is counted move by move, in Python
    alone = quick(where, jobs, objective=objective, evaluations=moves)
    late = replace(job(waits), name="late")
    beside = quick(where, [*jobs, late], objective=objective, evaluations=moves)

    def cost(result):
        if objective.needs_money:
            return 1 / sum(each.tokens_per_step / result.seconds[each.name] for each in jobs)
        return sum(result.seconds[each.name] for each in jobs)

    assert beside.seconds["late"] is None
    assert cost(beside) <= 1.03 * cost(alone), (cost(beside), cost(alone))


def test_blocked_links_are_never_crossed():
    text = TEXT + "links:\n  - {between: [eu-a, us-c], blocked: true}\n  - {between: [eu-a, eu-b], blocked: true}\n"
    where = cluster(text)
    result = quick(where, [job("llama-3-8b", batch=16), job("gpt2-xl")])
    check_plan(result.plan, where, [job("llama-3-8b", batch=16), job("gpt2-xl")])
    assert not result.plan.waiting


def test_money_limits_hold():
    where, jobs = cluster(), [job("gpt2-xl")]
    free = quick(where, jobs)
    spending = price_plan(free.plan, where, jobs, compute=COMPUTE).jobs["gpt2-xl"]
    rate = spending.money.total / spending.step
    limit = 0.5 * rate
    capped = quick(where, jobs, objective=Objective(most_dollars_per_second=limit), evaluations=400)
    price = price_plan(capped.plan, where, jobs, compute=COMPUTE).jobs["gpt2-xl"]
    assert price.money.total / price.step <= limit * 1.001
    assert price.step >= spending.step * 0.999
    target = 0.5 * spending.tokens_per_second
    cheap = quick(where, jobs, objective=Objective(least_tokens_per_second=target), evaluations=400)
    price = price_plan(cheap.plan, where, jobs, compute=COMPUTE).jobs["gpt2-xl"]
    assert price.tokens_per_second >= target * 0.999
    assert price.money.total / price.step <= rate * 1.001


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_every_plan_holds_every_invariant(data):
    """Random small clusters and jobs, blocked pairs among them."""
    regions = data.draw(st.integers(1, 4))
    lines = ["regions:"] + [f"  r{i}: {{at: [{40 + i}, {i * 20}]}}" for i in range(regions)] + ["machines:"]
    for i in range(data.draw(st.integers(1, 6))):
        gpu = data.draw(st.sampled_from(["gtx-1080", "v100-16", "a100-40", "rtx-3090"]))
        gpus = data.draw(st.sampled_from([1, 2, 3, 4, 8]))
        lines.append(f"  - {{name: m{i}, region: r{data.draw(st.integers(0, regions - 1))}, gpu: {gpu}, gpus: {gpus}}}")
    pairs = [(a, b) for a in range(regions) for b in range(a)]
    blocked = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    lines += ["links:"] + [f"  - {{between: [r{a}, r{b}], blocked: true}}" for a, b in blocked] if blocked else []
    where = cluster("\n".join(lines))
    names = data.draw(st.lists(st.sampled_from(["bert-base", "gpt2", "t5-small", "gpt2-xl"]), min_size=1, unique=True))
    jobs = [job(name, batch=16) for name in names]
    result = quick(where, jobs, evaluations=150)
    check_plan(result.plan, where, jobs)
    assert set(result.plan.jobs) | set(result.plan.waiting) == set(names)
    for each in jobs:
        if each.name in result.plan.jobs:
            price = price_job(each, result.plan.jobs[each.name], where, compute=COMPUTE)
            assert isinstance(price, JobPrice), price
            assert price.step == pytest.approx(result.seconds[each.name], rel=1e-9)


def test_weights_decide_who_gets_the_better_machines():
    where = cluster("regions: {x: {}}\nmachines: [{name: fast, region: x, gpu: a100-80, gpus: 8},"
                    " {name: slow, region: x, gpu: v100-16, gpus: 2}]")  # fmt: skip
    one, two = job("gpt2"), replace(job("gpt2"), name="other", weight=100.0)
    result = quick(where, [one, two])
    assert result.seconds["other"] < result.seconds["gpt2"]


def test_hulk47_side_by_side_beats_one_job_after_the_other():
    """Few near machines for each job do better than all machines for one job at a time, in the shape arranged for all:
    for all jobs together by more than half, and for the largest by itself."""
    where, jobs = load_cluster("hulk47"), load_jobs("paper4")
    result = quick(where, jobs, evaluations=2000)
    assert not result.plan.waiting
    check_plan(result.plan, where, jobs)
    places = Places.of(where)
    alone = {}
    for each in jobs:
        found = arrange(JobSpace(each, where, places, compute=COMPUTE, engine=HULK), range(len(where.machines)))
        assert found is not None
        alone[each.name] = found[1].seconds
    largest = max(alone, key=alone.__getitem__)
    assert sum(result.seconds.values()) < 0.5 * sum(alone.values())
    assert result.seconds[largest] < alone[largest]


def test_no_job_waits_beside_idle_machines_that_hold_it():
    """A budget that takes millions of years: beside it, what a waiting job counts for is nothing to a search."""
    endless = replace(job("bert-large"), name="endless", tokens=1e18)
    result = quick(cluster(), [endless, job("gpt2-xl")], evaluations=1)
    assert not result.plan.waiting


TWO_SITES = """
regions: {east: {at: [40, -83]}, west: {at: [45.6, -121.2]}}
machines:
  - {name: e, count: 8, region: east, gpu: v100-16, gpus: 1, network: 10 Gbit/s}
  - {name: w, count: 8, region: west, gpu: v100-16, gpus: 1, network: 10 Gbit/s}
links:
  - {between: [east, west], latency: 30 ms, bandwidth: 2 Gbit/s, trunk: 2 Gbit/s}
"""


def simulated(result, where, jobs) -> dict[str, float]:
    ready = [prepare(each, result.plan.jobs[each.name], where, compute=COMPUTE) for each in jobs]
    return simulate(ready, where).steps


def test_a_plan_over_a_narrow_trunk_is_priced_as_it_plays_and_beats_half_the_machines():
    where, jobs = cluster(TWO_SITES), [job("gpt2-xl", 256)]
    result = quick(where, jobs, evaluations=4000)
    assert simulated(result, where, jobs) == pytest.approx(result.seconds, rel=1e-6)
    east = replace(where, regions=where.regions[:1], machines=tuple(where.in_region("east")))
    half = quick(east, jobs, evaluations=4000)
    assert result.seconds["gpt2-xl"] <= 1.01 * half.seconds["gpt2-xl"]


def test_jobs_that_share_a_trunk_are_priced_together():
    where = cluster(TWO_SITES.replace("8", "4", 2))
    jobs = [job("gpt2-xl", 64), job("bert-large", 128)]
    result = quick(where, jobs)
    assert simulated(result, where, jobs) == pytest.approx(result.seconds, rel=1e-6)


def test_machines_of_one_place_that_are_kept_apart_share_no_sums():
    text = """
regions: {east: {at: [50, 0]}, west: {at: [45, 10]}}
machines:
  - {name: a, count: 3, region: east, gpu: a100-40, gpus: 1}
  - {name: b, region: west, gpu: rtx-3090, gpus: 1}
links:
  - {inside: east, blocked: true}
  - {between: [east, west], latency: 5 ms, bandwidth: 10 Gbit/s}
"""
    where, jobs = cluster(text), [job("bert-large", 256)]
    result = quick(where, jobs, evaluations=3000)
    assert price_plan(result.plan, where, jobs, compute=COMPUTE).feasible
