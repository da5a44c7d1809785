"""Stages on several machines that are near each other: what may be, what it takes, and who must know of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from halls import CARD, COMPUTE, JOB, LONG, hall, planned, priced
from hulk.cost.collectives import Between, Operation, collective_time
from hulk.cost.engine import HULK, MEGATRON, Engine
from hulk.cost.kinds import StageKind
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import price_plan
from hulk.domain.check import check_plan
from hulk.domain.cluster import BLOCKED, Cluster, Span
from hulk.domain.job import Job
from hulk.domain.joined import joined
from hulk.domain.options import Options
from hulk.domain.plan import JobPlan, Part, Pipeline, Plan, Stage, machines_used
from hulk.domain.regular import parse_regular, regular_plan
from hulk.errors import InputError, PlanError
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.plan_file import dump_plan, read_plan
from hulk.io.yamlfile import parse_document
from hulk.planner import plan_jobs
from hulk.search.baselines import BASELINES
from hulk.search.budget import Effort
from hulk.search.form import Form
from hulk.search.request import Request
from hulk.search.uniform import best_uniform
from hulk.simulate import simulate

# --- what may be ---


def test_a_layout_takes_the_fewest_machines_that_have_the_gpus() -> None:
    eight = tuple(range(8))
    (pipeline,) = planned("tp16").pipelines
    assert pipeline.stages == (Stage("m-0", eight, 0, len(JOB.model.layers) - 1, (Part("m-1", eight),)),)
    assert [stage.machines for stage in planned("tp8 pp2").stages] == [("m-0",), ("m-1",)]
    four = planned("tp4 cp8 pp2 mb1 dp1", LONG, machines=8)
    assert [stage.machines for stage in four.stages] == [tuple(f"m-{i}" for i in range(k, k + 4)) for k in (0, 4)]
    assert [four.slices(stage) for stage in four.stages] == [1, 1]
    assert planned("tp2 cp6 mb1 dp1", _even(LONG)).stages[0].beside == (Part("m-1", tuple(range(6))),)


def test_a_layout_that_no_machines_have_room_for() -> None:
    with pytest.raises(InputError, match="groups of 32 GPUs of one machine, or of several"):
        regular_plan(parse_regular("tp4 cp8"), LONG, hall(2))
    blocked = replace(hall(2), machine_links={("m-0", "m-1"): BLOCKED})
    with pytest.raises(InputError, match="there are 0"):
        regular_plan(parse_regular("tp16"), JOB, blocked)


def mixed(cluster: Cluster) -> Cluster:
    return replace(cluster, machines=(cluster.machines[0], replace(cluster.machines[1], gpu=gpu("a100-80"))))


WRONG = {
    "GPU types": (lambda stage: stage, mixed, "'m-0' has h100 and 'm-1' has a100-80"),
    "a blocked link": (
        lambda stage: stage,
        lambda cluster: replace(cluster, machine_links={("m-0", "m-1"): BLOCKED}),
        "the link between them is blocked",
    ),
    "another region": (
        lambda stage: stage,
        lambda cluster: replace(
            cluster, machines=(cluster.machines[0], replace(cluster.machines[1], region="b"))
        ),
        "'m-0' is in 'a' and 'm-1' in 'b'",
    ),
    "an unknown machine": (
        lambda stage: replace(stage, beside=(Part("m-9", stage.gpus),)), lambda cluster: cluster, "no machine 'm-9'",
    ),
    "a GPU that is not there": (
        lambda stage: replace(stage, beside=(Part("m-1", tuple(range(1, 9))),)),
        lambda cluster: cluster,
        "no GPU 8 on 'm-1'",
    ),
    "fewer GPUs": (
        lambda stage: replace(stage, beside=(Part("m-1", tuple(range(4))),)),
        lambda cluster: cluster,
        "8 GPUs of 'm-0' and 4 of 'm-1'",
    ),
    "the same machine": (
        lambda stage: replace(stage, gpus=(0, 1), beside=(Part("m-0", (2, 3)),)),
        lambda cluster: cluster,
        "'m-0' is there twice",
    ),
    "heads": (
        lambda stage: replace(stage, gpus=(0, 1, 2), beside=(Part("m-1", (0, 1, 2)),)),
        lambda cluster: cluster,
        "6 GPUs cannot share the 16 attention heads",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_machines_must_have_in_common(name: str) -> None:
    change, around, words = WRONG[name]
    plan = JobPlan((Pipeline((change(planned("tp16").stages[0]),), 16),), Options(1))
    with pytest.raises(PlanError, match=words) as raised:
        check_plan(Plan({"j": plan}), around(hall()), [JOB])
    assert "pipeline 1, stage 1" in str(raised.value)


def halves(first: Stage, second: Stage) -> Plan:
    """Two stages, half of the layers each."""
    last = len(JOB.model.layers) - 1
    stages = (replace(first, first=0, last=last // 2), replace(second, first=last // 2 + 1, last=last))
    return Plan({"j": JobPlan((Pipeline(stages, 16),), Options(1))})


def wide(gpus: tuple[int, ...], *machines: str) -> Stage:
    return Stage(machines[0], gpus, 0, 0, tuple(Part(name, gpus) for name in machines[1:]))


def test_a_gpu_of_a_machine_beside_is_used_once() -> None:
    check_plan(halves(wide((0, 1), "m-0", "m-1"), wide((2, 3), "m-0", "m-1")), hall(), [JOB])
    with pytest.raises(PlanError, match="GPU 1 of 'm-0' is used twice, first by job 'j', pipeline 1, stage 1"):
        check_plan(halves(wide((0, 1), "m-0", "m-1"), wide((1, 2), "m-0", "m-1")), hall(), [JOB])


def test_machines_hold_all_their_stages_together() -> None:
    for other in (wide((2, 3), "m-1"), wide((2, 3), "m-1", "m-0"), wide((2, 3), "m-1", "m-2")):
        with pytest.raises(PlanError, match="holds stages in two ways"):
            check_plan(halves(wide((0, 1), "m-0", "m-1"), other), hall(3), [JOB])


def test_parts_of_sequences_go_over_machines_evenly() -> None:
    job, names = _even(LONG), ("m-0", "m-1", "m-2")
    for gpus, context, fits in (((0, 1, 2), 3, True), ((0, 1, 2), 9, True), ((0, 1), 2, False)):
        stage = replace(wide(gpus, *names), last=len(job.model.layers) - 1)
        plan = Plan({"j": JobPlan((Pipeline((stage,), 4),), Options(1, context=context))})
        if fits:
            check_plan(plan, hall(3), [job])
            continue
        with pytest.raises(PlanError, match="3 GPUs share a layer, and 2 of each machine hold it"):
            check_plan(plan, hall(3), [job])


def _even(job: Job) -> Job:
    """The same with sequences that three GPUs can share, and without heads that must be divided."""
    model = build_named_model("llama-3-8b", sequence=18 * 1024)
    layers = tuple(replace(layer, head_width=0) for layer in model.layers)
    return replace(job, model=replace(model, layers=layers))


def test_experts_are_split_inside_of_machines() -> None:
    job = Job("j", build_named_model("mixtral-8x7b", sequence=4096), global_batch=4)
    plan = planned("cp16 mb1", job)
    with pytest.raises(PlanError, match="experts are split inside of a machine"):
        check_plan(Plan({"j": replace(plan, options=replace(plan.options, expert=8))}), hall(), [job])


# --- files ---


def test_what_is_dumped_loads_as_the_same_plan() -> None:
    plan = Plan({"j": planned("tp16")}, idle=())
    text = dump_plan(plan, cluster=hall())
    assert read_plan(parse_document(text, name="plan")) == plan
    assert json.loads(text)["jobs"]["j"]["pipelines"][0]["stages"][0]["beside"][0]["machine"] == "m-1"
    assert {name for group in json.loads(text)["made_for"]["machines"] for name in group["names"]} == {"m-0", "m-1"}
    assert "beside" not in dump_plan(Plan({"j": planned("tp8 pp2")}), cluster=hall())


# --- what it takes ---


def test_rails_as_fast_as_the_inside_are_one_machine() -> None:
    from hulk.cost.collectives import KNOWN_RINGS, ring

    one = ring(gpu("h100"), 8)
    alike = {"h100": {8: one, 16: one}}
    for operation in (Operation.ALL_REDUCE, Operation.ALL_GATHER, Operation.REDUCE_SCATTER):
        whole = collective_time(operation, 1e8, gpu("h100"), 16, rings=alike)
        parts = [
            collective_time(operation, 1e8, gpu("h100"), 16, between=Between(2, 0.0, rail), rings=KNOWN_RINGS)
            for rail in (one.bandwidth / 100, one.bandwidth / 10, one.bandwidth)
        ]
        assert parts[0] > parts[1] > parts[2] == pytest.approx(whole, rel=1e-12)


def test_who_is_on_which_machine() -> None:
    span = Span(4, 1e-5, 10e9, 40e9)
    kind = StageKind(gpu("h100"), 32, span)
    assert kind.slices(Options(1, context=4)) is None  # eight GPUs share a layer: those of a machine
    assert kind.sharers(Options(1, context=4)) == Between(4, 1e-5, 5e9)  # 8 GPUs share 40 GB/s
    assert kind.sharers(Options(1, context=16)) == Between(4, 1e-5, 5e9)  # four of each machine
    assert kind.slices(Options(1, context=2)) == Between(2, 1e-5, 5e9)
    assert kind.sharers(Options(1, context=2)) == Between(2, 1e-5, 5e9)  # one of every second machine
    assert StageKind(gpu("h100"), 4, replace(span, machines=2)).slices(Options(1)) == Between(2, 1e-5, 10e9)


@pytest.mark.parametrize("layout", ["tp16", "tp16 sp", "tp2 cp8", "tp8 cp2 sp"])
@pytest.mark.parametrize("engine", [HULK, MEGATRON], ids=lambda engine: engine.name)
def test_faster_cards_make_it_quicker_down_to_one_machine(layout: str, engine: Engine) -> None:
    job = LONG if "cp" in layout else JOB
    plan = planned(layout, job)
    steps = [
        priced(plan, hall(card=card, latency=0.0, memory=1e15), job, engine).step for card in (1e9, 1e10, 1e11, 480e9)
    ]
    assert steps == sorted(steps, reverse=True) and steps[0] > steps[-1]
    ranks = plan.stages[0].ranks
    one = replace(hall(1, card=480e9, latency=0.0, memory=1e15).machines[0], gpus=16, network=16 * 480e9, cards=16)
    stage = replace(plan.stages[0], gpus=tuple(range(ranks)), beside=())
    alone = replace(plan, pipelines=(replace(plan.pipelines[0], stages=(stage,)),))
    near = priced(alone, replace(hall(1), machines=(one,)), job, engine).step
    assert steps[-1] == pytest.approx(near, rel=5e-3)  # four GPUs reach a little less than eight


def test_memory_money_and_machines_are_those_of_all() -> None:
    cluster = hall()
    plan, two = planned("tp16 sp"), planned("tp8 pp2 sp")
    price, other = priced(plan, cluster), priced(two, cluster)
    assert price.pipelines[0][0].where == "m-0 and m-1"
    assert price.money.gpus == pytest.approx(32.0 / 3600 * price.step)
    assert other.money.gpus == pytest.approx(32.0 / 3600 * other.step)
    half = priced(planned("tp8 sp dp1"), cluster).pipelines[0][0].memory
    assert half.weights / 2 < price.pipelines[0][0].memory.weights < 0.6 * half.weights  # norms and positions are whole
    assert machines_used([plan]) == {"m-0", "m-1"} and plan.leaders == ("m-0",)


def test_the_simulator_agrees() -> None:
    for layout, machines in (("tp16 pp2 zero1 dp2 sp", 8), ("tp2 cp8 pp2 dp1 sp", 4), ("tp16 dp2", 4)):
        job = LONG if "cp" in layout else JOB
        cluster = hall(machines, card=5e9, memory=1e15)
        plan = planned(layout, job, machines)
        ready = prepare(job, plan, cluster, compute=COMPUTE, engine=MEGATRON)
        assert isinstance(ready, Prepared)
        step = priced(plan, cluster, job).step
        assert simulate([ready], cluster).steps["j"] == pytest.approx(step, rel=1e-6)


def test_cards_of_all_machines_carry_what_stages_send() -> None:
    cluster = joined(hall(4), [planned("tp16 pp2 dp1", machines=4)])
    assert [machine.name for machine in cluster.machines] == ["m-0", "m-2"]
    assert cluster.machine("m-0").network == pytest.approx(16 * CARD)
    assert joined(cluster, [planned("tp16 pp2 dp1", machines=4)]) is cluster
    slow = hall(4, card=1e8)
    wide_way = priced(planned("tp16 pp2 dp1 sp", machines=4), slow).pipelines[0][0].send_wire
    one_way = priced(planned("tp8 pp2 dp1 sp", machines=4), slow).pipelines[0][0].send_wire
    assert wide_way < 0.6 * one_way  # sixteen flows through as many cards, not eight


def test_jobs_side_by_side() -> None:
    other = replace(JOB, name="k")
    eight = tuple(range(8))
    last = len(JOB.model.layers) - 1
    plans = {
        "j": JobPlan((Pipeline((Stage("m-0", eight, 0, last, (Part("m-1", eight),)),), 16),), Options(1)),
        "k": JobPlan((Pipeline((Stage("m-2", eight, 0, last, (Part("m-3", eight),)),), 16),), Options(1)),
    }
    plan, cluster = Plan(plans), hall(4)
    check_plan(plan, cluster, [JOB, other])
    found = price_plan(plan, cluster, [JOB, other], compute=COMPUTE, engine=MEGATRON).jobs
    assert found["j"].step == pytest.approx(priced(plans["j"], cluster).step)  # type: ignore[union-attr]
    assert found["k"].step == pytest.approx(found["j"].step)  # type: ignore[union-attr]


# --- search ---


def test_regular_plans_span_machines_where_cards_are_fast() -> None:
    # More memory than a machine has, and one sequence at a time: sixteen GPUs must share it.
    job = replace(LONG, global_batch=1)
    fast, slow = (Request(hall(4, card=card), (job,), COMPUTE, MEGATRON).spaces()[0] for card in (CARD, 1e9))
    form = Form(stages=1)
    found, other = best_uniform(fast, range(4), form), best_uniform(slow, range(4), form)
    assert found is not None and found.plan.spans
    assert other is None or not other.plan.spans
    check_plan(Plan({"j": found.plan}), hall(4), [job])
    step = priced(found.plan, hall(4), job).step
    assert step == pytest.approx(found.seconds, rel=0.02)
    best = best_uniform(fast, range(4), form, in_turn=True)
    assert best is None or (not best.plan.spans and found.seconds < best.seconds)


def test_a_free_search_ends_with_a_look_at_them() -> None:
    job, effort = replace(LONG, global_batch=1), Effort(time_limit=60.0, evaluations=400)
    fast, slow = (plan_jobs(Request(hall(4, card=card), (job,), COMPUTE, MEGATRON), effort) for card in (CARD, 1e9))
    assert fast.plan.jobs["j"].spans and not slow.plan.jobs["j"].spans
    assert fast.cost < slow.cost


def test_jobs_that_fit_no_machine_do_not_take_the_same_ones() -> None:
    """Two jobs of which none fits without sixteen GPUs to a sequence, and machines for one of them."""
    long = Job("a", build_named_model("llama-3-8b", sequence=1_048_576), global_batch=1)
    request = Request(hall(4), (long, replace(long, name="b")), COMPUTE, MEGATRON)
    found = plan_jobs(request, Effort(time_limit=60.0, evaluations=400))
    check_plan(found.plan, hall(4), request.jobs)
    assert any(plan.spans for plan in found.plan.jobs.values())


def test_a_pinned_machine_is_used() -> None:
    cluster = replace(hall(5), machines=(*hall(4).machines, replace(hall(5).machines[4], gpus=4)))
    request = Request(cluster, (replace(LONG, global_batch=1),), COMPUTE, MEGATRON, pins={"j": frozenset({"m-4"})})
    found = plan_jobs(request, Effort(time_limit=60.0, evaluations=400)).plan
    assert "m-4" in found.jobs["j"].machines


def test_system_c_is_a_plan_where_a_plan_can_say_it() -> None:
    odd = replace(JOB, model=build_named_model("gpt-neo-2.7b"))  # sixteen GPUs cannot share twenty heads
    found = {}
    for job in (JOB, odd):
        result = BASELINES.get("C").run(hall(2), [job], compute=COMPUTE, engine=MEGATRON, seed=0, time_limit=60.0)
        found[job.model.name] = result.placed["j"]
    said, unsaid = found.values()
    assert unsaid.plan is None and unsaid.seconds > 0
    assert said.plan is not None and said.plan.stages[0].ranks == 16
    assert said.seconds == pytest.approx(priced(said.plan, hall(2)).step)
