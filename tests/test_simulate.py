"""The simulator: it agrees with the price where nothing contends, and contends as worked out by hand where it does."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hulk.cost.play import play
from hulk.cost.prepared import Prepared
from hulk.domain.cluster import Cluster, Link
from hulk.domain.options import Options, Schedule, Sync
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.errors import InputError
from hulk.simulate import Simulation, Span, SpanKind, simulate, to_trace
from hulk.simulate.jitter import Jitter
from hulk.simulate.network import Flow, Resource, fair_rates
from played import (
    GPU,
    PLAIN,
    clusters,
    jobs_prepared,
    make_cluster,
    make_job,
    make_layer,
    make_machine,
    prepared,
    price_of,
    rates,
    two_stages,
)

# --- Agreement with the price ---------------------------------------------------------------------------------------

many_cases = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@many_cases
@given(st.data())
def test_agrees_with_the_price_where_nothing_contends(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    one = data.draw(jobs_prepared(cluster))
    total, stage_end = price_of(one)
    timeline = simulate([one], cluster, contention=False).jobs["job"]
    if one.plan.options.sync is Sync.BY_REGION:  # the closed form has all regions begin at once, when the last one can
        least = total - one.durations.set_seconds[: one.sets].sum()
        assert least * (1 - 1e-9) <= timeline.step <= total * (1 + 1e-9)
    else:
        assert timeline.step == pytest.approx(total, rel=1e-9)
    assert [stage.passes_end for stage in timeline.stages] == pytest.approx(stage_end.tolist(), rel=1e-9)
    for i in range(one.sets):
        layers = int(one.durations.set_first[i]), int(one.durations.set_last[i])
        for span in timeline.spans:
            if span.layers == layers and one.plan.options.sync is not Sync.BY_REGION:
                assert span.seconds == pytest.approx(one.durations.set_seconds[i], rel=1e-6)


@many_cases
@given(st.data())
def test_contention_only_ever_slows_down(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    ready = [data.draw(jobs_prepared(cluster, name)) for name in ("a", "b")]
    alone = simulate(ready, cluster, contention=False)
    together = simulate(ready, cluster)
    for name, seconds_alone in alone.steps.items():
        assert together.steps[name] >= seconds_alone * (1 - 1e-9)
    for use in together.machines:
        assert use.out_share <= 1 + 1e-9
        assert use.in_share <= 1 + 1e-9
    assert sum(use.sent for use in together.machines) == pytest.approx(sum(use.received for use in together.machines))
    check_spans(together, ready)


@many_cases
@given(st.data())
def test_a_price_is_what_the_simulator_plays(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    names = ("a", "b", "c")[: data.draw(st.integers(1, 3))]
    ready = [data.draw(jobs_prepared(cluster, name, habits=True)) for name in names]
    together = simulate(ready, cluster)
    # Which of two blocking messages that are ready at the same moment goes first is anybody's guess, and decides much.
    near = 0.25 if any(one.durations.blocking.any() for one in ready) else 1e-6
    for one, played in zip(ready, play(ready), strict=True):
        timeline = together.jobs[one.job.name]
        assert played.seconds == pytest.approx(timeline.step, rel=near)
        ends = [stage.passes_end for stage in timeline.stages]
        assert played.stage_end.tolist() == pytest.approx(ends, rel=near)


def check_spans(simulation: Simulation, ready: Sequence[Prepared]) -> None:
    """Every microbatch passes every stage once each way, and GPUs do one thing at a time."""
    for one in ready:
        timeline = simulation.jobs[one.job.name]
        by_stage = defaultdict(list)
        for span in timeline.spans:
            assert 0 <= span.start <= span.end <= timeline.step
            by_stage[span.pipeline, span.stage].append(span)
        for (p, s), spans in by_stage.items():
            pipeline = one.plan.pipelines[p]
            assert {span.machine for span in spans} == {pipeline.stages[s].machine}
            for kind in (SpanKind.FORWARD, SpanKind.BACKWARD):
                done = [span.microbatch for span in spans if span.kind is kind]
                assert done == list(range(pipeline.microbatches))
            if one.plan.options.schedule.splits_backward:
                made = [span.microbatch for span in spans if span.kind is SpanKind.WEIGHTS]
                assert made == list(range(pipeline.microbatches))
            slots = len(pipeline.slots(one.plan.options.chunks))
            together = [span for k in range(s % slots, len(pipeline.stages), slots) for span in by_stage[p, k]]
            assert sum(span.kind is SpanKind.UPDATE for span in together) == 1
            computing = sorted((span for span in together if span.kind.computes), key=lambda span: span.start)
            assert all(a.end <= b.start + 1e-12 for a, b in pairwise(computing))


# --- Contention, worked out by hand ---------------------------------------------------------------------------------


def test_two_jobs_on_one_card_take_half_each() -> None:
    cluster = make_cluster([make_machine("hub"), make_machine("x"), make_machine("y")])
    ready = [two_stages("one", "hub", "x", cluster), two_stages("two", "hub", "y", cluster, gpu=1)]
    # Alone: forward 1, send 100 B at 100 B/s, forward 1, backward 2, send 1, backward 2. Together each send takes 2.
    assert simulate(ready[:1], cluster).steps == {"one": pytest.approx(8.0)}
    assert simulate(ready, cluster).steps == {"one": pytest.approx(10.0), "two": pytest.approx(10.0)}
    assert simulate(ready, cluster, contention=False).steps == {"one": pytest.approx(8.0), "two": pytest.approx(8.0)}


def test_shares_change_when_a_message_starts_and_ends() -> None:
    cluster = make_cluster([make_machine("hub"), make_machine("x"), make_machine("y")])
    ready = [two_stages("one", "hub", "x", cluster), two_stages("two", "hub", "y", cluster, forward=1.5, gpu=1)]
    simulation = simulate(ready, cluster)
    sends = {
        name: next(span for span in job.spans if span.kind is SpanKind.SEND) for name, job in simulation.jobs.items()
    }
    # One is alone from 1.0 to 1.5 (50 B), then both have 50 B/s until one is through; two does its last 50 B alone.
    assert (sends["one"].start, sends["one"].end) == pytest.approx((1.0, 2.5))
    assert (sends["two"].start, sends["two"].end) == pytest.approx((1.5, 3.0))


def test_a_slow_flow_leaves_the_rest_to_others() -> None:
    slow = {("r", "s"): Link(latency=0.0, bandwidth=20.0)}
    cluster = make_cluster([make_machine("hub"), make_machine("near"), make_machine("far", region="s")], slow)
    ready = [two_stages("near", "hub", "near", cluster), two_stages("far", "hub", "far", cluster, gpu=1)]
    sends = {
        name: next(span.seconds for span in job.spans if span.kind is SpanKind.SEND)
        for name, job in simulate(ready, cluster).jobs.items()
    }
    assert sends == {"near": pytest.approx(100 / 80), "far": pytest.approx(100 / 20)}


def test_two_pipelines_share_a_trunk() -> None:
    trunk = {("r", "s"): Link(latency=0.25, bandwidth=1000.0, trunk=100.0)}
    machines = [make_machine(name, name[0], network=1000.0) for name in ("r1", "r2", "s1", "s2")]
    cluster = make_cluster(machines, trunk)
    layers = [make_layer(1.0, 2.0, output=25.0), make_layer(1.0, 2.0)]
    stages = [(Stage(f"r{i}", (0,), 0, 0), Stage(f"s{i}", (0,), 1, 1)) for i in (1, 2)]
    plan = JobPlan(tuple(Pipeline(pair_of, 1) for pair_of in stages), Options(1))
    one = prepared(make_job("job", layers, 2), plan, cluster)
    assert price_of(one)[0] == pytest.approx(8.5)
    assert simulate([one], cluster).steps["job"] == pytest.approx(10.5)


def test_gradient_sums_share_a_card_but_directions_do_not() -> None:
    cluster = make_cluster([make_machine("x"), make_machine("y")])
    layers = [make_layer(1.0, 2.0, params=25)]

    def replicas(name: str, gpu: int) -> Prepared:
        plan = JobPlan(tuple(Pipeline((Stage(machine, (gpu,), 0, 0),), 1) for machine in "xy"), Options(1))
        return prepared(make_job(name, layers, 2), plan, cluster)

    # 100 B over a ring of two: each sends 2 · 1/2 · 100 B at 100 B/s, both directions at once.
    assert simulate([replicas("one", 0)], cluster).steps["one"] == pytest.approx(3 + 1)
    both = simulate([replicas("one", 0), replicas("two", 1)], cluster)
    assert both.steps == {"one": pytest.approx(3 + 2), "two": pytest.approx(3 + 2)}
    assert [(use.sent, use.received) for use in both.machines] == [(200.0, 200.0), (200.0, 200.0)]
    assert both.machines[0].out_share == pytest.approx(200 / (100 * 5))


def test_stages_on_one_machine_need_no_card() -> None:
    cluster = make_cluster([make_machine("x"), make_machine("y")])
    ready = [two_stages("inside", "x", "x", cluster), two_stages("outside", "x", "y", cluster, gpu=2)]
    inside = 6 + 2 * 100 / GPU.link_bandwidth
    assert simulate(ready, cluster).steps == {"inside": pytest.approx(inside), "outside": pytest.approx(8.0)}


def test_only_the_wires_part_of_a_message_stretches() -> None:
    cluster = make_cluster([make_machine("hub"), make_machine("x"), make_machine("y")])
    slow = replace(PLAIN, message_overhead=0.5)
    ready = [two_stages("one", "hub", "x", cluster), two_stages("two", "hub", "y", cluster, gpu=1)]
    ready = [prepared(one.job, one.plan, cluster, slow) for one in ready]
    sends = [span.seconds for span in simulate(ready, cluster).jobs["one"].spans if span.kind is SpanKind.SEND]
    assert sends == pytest.approx([0.5 + 2.0, 0.5 + 2.0])


@given(st.lists(st.tuples(rates, st.sets(st.integers(0, 3), min_size=1)), min_size=1, max_size=8), st.data())
def test_shares_are_max_min_fair(wanted: list[tuple[float, set[int]]], data: st.DataObject) -> None:
    resources = [Resource(data.draw(rates)) for _ in range(4)]
    flows = [Flow(limit, tuple(resources[i] for i in sorted(on)), 1.0, 0.0, lambda: None) for limit, on in wanted]
    for flow in flows:
        for resource in flow.resources:
            resource.add(flow)
    found = fair_rates(flows, resources)
    full = {
        resource
        for resource in resources
        if sum(found[flow] for flow in resource.flows) >= resource.capacity * (1 - 1e-9)
    }
    for resource in resources:
        assert sum(found[flow] for flow in resource.flows) <= resource.capacity * (1 + 1e-9)
    for flow, rate in found.items():
        # At its limit, or held by a full resource on which nobody has more.
        held = any(
            resource in full and all(found[other] <= rate * (1 + 1e-9) for other in resource.flows)
            for resource in flow.resources
        )
        assert rate == flow.limit or held


# --- Jitter ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy_plan() -> tuple[list[Prepared], Cluster]:
    """4 pipelines × 8 stages × 64 microbatches on 8 machines in two regions, and a job beside them."""
    machines = [make_machine(f"m{i}", "rs"[i % 2], network=2e4) for i in range(8)]
    links = {("r", "s"): Link(0.05, 5e3, trunk=2e4), ("r", "r"): Link(0.001, 1e4), ("s", "s"): Link(0.001, 1e4)}
    cluster = make_cluster(machines, links)
    layers = [make_layer(0.02, 0.04, output=100.0, params=2000) for _ in range(8)]
    stages = [[Stage(f"m{(s + p) % 8}", (p,), s, s) for s in range(8)] for p in range(4)]
    engine = replace(PLAIN, message_overhead=1e-3)
    large = JobPlan(tuple(Pipeline(tuple(found), 64) for found in stages), Options(1, Schedule.parse("1f1b+4")))
    small = JobPlan((Pipeline(tuple(Stage(f"m{s}", (9,), s, s) for s in range(4)), 8),), Options(1))
    ready = [
        prepared(make_job("large", layers, 256), large, cluster, engine),
        prepared(make_job("small", layers[:4], 8), small, cluster, engine),
    ]
    return ready, cluster


def test_the_same_seed_gives_the_same_result(busy_plan: tuple[list[Prepared], Cluster]) -> None:
    ready, cluster = busy_plan
    first = simulate(ready, cluster, seed=3, jitter=0.05)
    assert first == simulate(ready, cluster, seed=3, jitter=0.05)
    assert first.steps != simulate(ready, cluster, seed=4, jitter=0.05).steps
    assert simulate(ready, cluster, seed=3) == simulate(ready, cluster, seed=4)
    check_spans(first, ready)


def test_jitter_has_mean_one_and_the_spread_asked_for() -> None:
    drawn = np.array(Jitter(0.3, np.random.default_rng(0)).factors(200_000))
    assert drawn.mean() == pytest.approx(1.0, abs=0.005)
    assert drawn.std() == pytest.approx(0.3, rel=0.02)
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    assert Jitter(0.0, rng).factors(3) == [1.0, 1.0, 1.0]
    assert rng.bit_generator.state == before


def test_jitter_is_seen_in_every_kind_of_span() -> None:
    cluster = make_cluster([make_machine("x"), make_machine("y")])
    layers = [make_layer(1.0, 2.0, output=25.0, params=25), make_layer(1.0, 2.0, params=25)]
    plan = JobPlan(tuple(Pipeline((Stage("x", (p,), 0, 0), Stage("y", (p,), 1, 1)), 2) for p in (0, 1)), Options(1))
    one = prepared(make_job("job", layers, 4), plan, cluster)
    still = simulate([one], cluster, contention=False).jobs["job"].spans
    shaken = simulate([one], cluster, contention=False, jitter=0.1).jobs["job"].spans

    def total(spans: Sequence[Span], kind: SpanKind) -> float:
        return sum(span.seconds for span in spans if span.kind is kind)

    for kind in (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.SEND, SpanKind.SYNC):
        assert total(shaken, kind) != total(still, kind)


@pytest.mark.parametrize("jitter", [-0.1, float("nan"), float("inf")])
def test_impossible_jitter_is_refused(jitter: float) -> None:
    with pytest.raises(InputError):
        simulate([], make_cluster([make_machine("x")]), jitter=jitter)


def test_one_job_cannot_run_twice() -> None:
    cluster = make_cluster([make_machine("x"), make_machine("y")])
    with pytest.raises(InputError, match="'one'"):
        simulate([two_stages("one", "x", "y", cluster)] * 2, cluster)


def test_nothing_to_play() -> None:
    assert simulate([], make_cluster([make_machine("x")])).seconds == 0.0


# --- The timeline ---------------------------------------------------------------------------------------------------


def test_busy_share_is_the_passes_share_of_the_step(busy_plan: tuple[list[Prepared], Cluster]) -> None:
    ready, cluster = busy_plan
    timeline = simulate(ready, cluster).jobs["large"]
    assert len(timeline.stages) == 32
    for stage in timeline.stages:
        assert stage.busy == pytest.approx(64 * 0.06 / timeline.step)
        assert stage.passes_end <= stage.end <= timeline.step


def test_trace_is_what_perfetto_reads(busy_plan: tuple[list[Prepared], Cluster]) -> None:
    ready, cluster = busy_plan
    simulation = simulate(ready, cluster, jitter=0.1)
    trace = json.loads(json.dumps(to_trace(simulation), allow_nan=False))

    by_phase = defaultdict(list)
    for event in trace["traceEvents"]:
        by_phase[event["ph"]].append(event)
    assert set(by_phase) == {"M", "X", "s", "f"}
    assert len(by_phase["X"]) == sum(len(job.spans) for job in simulation.jobs.values())
    processes = {event["pid"]: event["args"]["name"] for event in by_phase["M"] if event["name"] == "process_name"}
    assert sorted(processes.values()) == [f"m{i} ({'rs'[i % 2]})" for i in range(8)]
    threads = {(event["pid"], event["tid"]) for event in by_phase["M"] if event["name"] == "thread_name"}

    rows = defaultdict(list)
    for event in by_phase["X"]:
        rows[event["pid"], event["tid"]].append(event)
    assert set(rows) == threads
    for slices in rows.values():
        slices.sort(key=lambda event: (event["ts"], event["dur"]))
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(slices))

    sent = {event["id"]: event["ts"] for event in by_phase["s"]}
    got = {event["id"]: event["ts"] for event in by_phase["f"]}
    assert len(sent) == len(by_phase["s"]) == len(by_phase["f"])
    assert all(got[i] >= at for i, at in sent.items())
