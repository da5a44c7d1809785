"""The price through its public functions: figures one can work out by hand, and properties that must always hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import GPU, FixedTimes, cluster, job, layer, model
from hulk.cost.compiled import plain
from hulk.cost.compute import update_time
from hulk.cost.engine import HULK, Engine
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible, JobPrice, Obstacle
from hulk.cost.sync import chain_pieces
from hulk.domain.cluster import BLOCKED, Link
from hulk.domain.gpu import Precision
from hulk.domain.job import Optimizer
from hulk.domain.model import LayerKind, Model
from hulk.domain.options import Options, Recompute, Schedule, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Stage

BARE = Engine(name="bare", reserve=0.0)
PARAMS = 1_000_000


def pipeline(*stages: tuple[str, int, int], microbatches: int = 8, gpus: tuple[int, ...] = (0,)) -> Pipeline:
    return Pipeline(tuple(Stage(name, gpus, first, last) for name, first, last in stages), microbatches)


def price(a_job, plan, where, *, compute=None, engine=BARE) -> JobPrice:
    result = price_job(a_job, plan, where, compute=compute or FixedTimes(), engine=engine)
    assert isinstance(result, JobPrice), result
    return result


def test_one_stage_is_compute_and_update():
    here = cluster({"a": "x"})
    result = price(job(4), JobPlan((pipeline(("a", 0, 3)),), Options(1)), here)
    update = update_time(4 * PARAMS, GPU, Precision.FP32, Optimizer.ADAMW)
    assert result.breakdown.compute == pytest.approx(8 * 4 * 3.0)
    assert result.breakdown.update == pytest.approx(update)
    assert result.step == pytest.approx(96.0 + update)
    assert result.tokens_per_second == pytest.approx(8 * 10 / result.step)


def test_two_stages_fill_and_drain():
    here = cluster({"a": "x", "b": "x"}, default=Link(0.0, 1e15), network=1e15)
    result = price(job(4), JobPlan((pipeline(("a", 0, 1), ("b", 2, 3)),), Options(1)), here)
    assert result.breakdown.compute == pytest.approx(8 * 6.0)
    assert result.breakdown.bubble == pytest.approx(6.0)
    assert result.breakdown.transfer == pytest.approx(0.0, abs=1e-6)


def test_ring_sync_by_hand():
    here = cluster({"a": "x", "b": "y"}, {("x", "y"): Link(latency=0.1, bandwidth=1e6)})
    plan = JobPlan((pipeline(("a", 0, 3), microbatches=4), pipeline(("b", 0, 3), microbatches=4)), Options(1))
    result = price(job(4), plan, here)
    size = 4 * PARAMS * 4
    assert result.breakdown.sync == pytest.approx(2 * (size / 2 / 1e6 + 0.1), rel=1e-6)


def test_bandwidth_is_the_least_of_flow_card_and_trunk():
    for link, card, rate in [
        (Link(0.0, 2e6), 1e9, 2e6),
        (Link(0.0, 1e9), 3e6, 3e6),
        (Link(0.0, 1e9, trunk=1e6), 5e6, 1e6),
    ]:
        here = cluster({"a": "x", "b": "y"}, {("x", "y"): link}, network=card)
        plan = JobPlan((pipeline(("a", 0, 3), microbatches=4), pipeline(("b", 0, 3), microbatches=4)), Options(1))
        assert price(job(4), plan, here).breakdown.sync == pytest.approx(4 * PARAMS * 4 / rate, rel=1e-6)


def test_region_by_region_crosses_the_slow_link_once():
    machines = {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y", "f": "y"}
    here = cluster(machines, {("x", "y"): Link(latency=0.2, bandwidth=1e6)}, default=Link(1e-4, 1e9))
    replicas = tuple(pipeline((name, 0, 3), microbatches=1) for name in machines)
    ring = price(job(4, global_batch=6), JobPlan(replicas, Options(1, sync=Sync.RING)), here)
    regional = price(job(4, global_batch=6), JobPlan(replicas, Options(1, sync=Sync.BY_REGION)), here)
    size = 4 * PARAMS * 4
    between = 2 * (size / 2 / 1e6 + 0.2)
    pieces = plain(chain_pieces)(size)  # one is on a hop while the next is behind it
    inside = 2 * ((1 + 1 / pieces) * size / 1e9 + 2e-4)
    assert regional.breakdown.sync == pytest.approx(between + inside, rel=1e-6)
    assert regional.breakdown.sync < 0.7 * ring.breakdown.sync


def test_later_layers_sync_while_earlier_ones_still_compute():
    """Replicas cut at different layers: the last layers' gradients are ready before the first ones'."""
    here = cluster({"a": "x", "b": "x", "c": "x"}, default=Link(0.0, 2e6))
    plan = JobPlan(
        (pipeline(("a", 0, 3), microbatches=4), pipeline(("b", 0, 1), ("c", 2, 3), microbatches=4)),
        Options(1),
    )
    eager = price(job(4), plan, here)
    late = price(job(4), plan, here, engine=replace(BARE, overlap_sync=False))
    assert eager.step < late.step


def test_shared_parameters_are_synced_between_the_ends():
    shared = 500_000
    ends = Model(
        "tied",
        "decoder",
        10,
        (
            layer("embedding", kind=LayerKind.EMBEDDING, params=shared),
            layer("block"),
            layer("head", kind=LayerKind.HEAD, params=shared, tied=shared),
        ),
    )
    link = Link(latency=0.0, bandwidth=1e6)
    here = cluster({"a": "x", "b": "y"}, {("x", "y"): link})
    split = price(job(the_model=ends), JobPlan((pipeline(("a", 0, 1), ("b", 2, 2)),), Options(1)), here)
    assert split.breakdown.sync == pytest.approx(shared * 4 / 1e6, rel=1e-3)
    whole = price(job(the_model=ends), JobPlan((pipeline(("a", 0, 2)),), Options(1)), here)
    assert whole.breakdown.sync == 0
    together = whole.pipelines[0][0].memory
    assert together.weights == pytest.approx(4 * (shared + PARAMS))


@pytest.mark.parametrize(
    ("precision", "optimizer", "per_parameter"),
    [
        (Precision.FP32, Optimizer.ADAMW, 16),
        (Precision.TF32, Optimizer.ADAMW, 16),
        (Precision.BF16, Optimizer.ADAMW, 18),
        (Precision.FP16, Optimizer.ADAM, 18),
        (Precision.BF16, Optimizer.SGD, 10),
        (Precision.FP32, Optimizer.MOMENTUM, 12),
    ],
)
def test_state_bytes_per_parameter(precision, optimizer, per_parameter):
    a_job = replace(job(4), precision=precision, optimizer=optimizer)
    memory = price(a_job, JobPlan((pipeline(("a", 0, 3)),), Options(1)), cluster({"a": "x"})).pipelines[0][0].memory
    assert memory.weights + memory.gradients + memory.optimizer == pytest.approx(4 * PARAMS * per_parameter)


def test_memory_divides_over_ranks_and_replicas():
    here = cluster({"a": "x", "b": "x"})
    one = price(job(4), JobPlan((pipeline(("a", 0, 3)),), Options(1)), here).pipelines[0][0].memory
    four = price(job(4), JobPlan((pipeline(("a", 0, 3), gpus=(0, 1, 2, 3)),), Options(1)), here).pipelines[0][0].memory
    assert four.weights == pytest.approx(one.weights / 4)
    replicas = (pipeline(("a", 0, 3), microbatches=4), pipeline(("b", 0, 3), microbatches=4))
    sharded = price(job(4), JobPlan(replicas, Options(1, sharding=Sharding.OPTIMIZER)), here).pipelines[0][0].memory
    assert sharded.optimizer == pytest.approx(one.optimizer / 2)
    assert sharded.weights == pytest.approx(one.weights)


def test_activations_follow_the_schedule():
    """Stage 1 of 2 keeps two microbatches under 1F1B, all of them under GPipe; recomputation keeps the inputs only."""
    here = cluster({"a": "x", "b": "x"})

    def held(schedule: str, recompute: Recompute = Recompute.NONE) -> float:
        plan = JobPlan((pipeline(("a", 0, 1), ("b", 2, 3)),), Options(1, Schedule.parse(schedule), recompute))
        return price(job(the_model=model(4, held=5000.0, output=1000.0)), plan, here).pipelines[0][0].memory.activations

    one = (2 * 5000.0 + 1000.0) * 4  # two layers, and the output until its gradient comes back
    assert held("1f1b") == pytest.approx(2 * one)
    assert held("1f1b+3") == pytest.approx(5 * one)
    assert held("gpipe") == pytest.approx(8 * one)
    assert held("1f1b", Recompute.FULL) == pytest.approx(2 * (0 + 1000.0 + 1000.0) * 4)


def test_full_recomputation_costs_another_forward():
    here = cluster({"a": "x"})
    plan = JobPlan((pipeline(("a", 0, 3)),), Options(1, recompute=Recompute.FULL))
    assert price(job(4), plan, here).breakdown.compute == pytest.approx(8 * 4 * 4.0)


def test_too_big_says_where_and_by_how_much():
    big = model(2, params=400_000_000)
    result = price_job(
        job(the_model=big),
        JobPlan((pipeline(("a", 0, 1)),), Options(1)),
        cluster({"a": "x"}),
        compute=FixedTimes(),
        engine=HULK,
    )
    assert isinstance(result, Infeasible)
    assert result.obstacle is Obstacle.MEMORY
    assert "layers 0–1 on a need" in result.reason
    assert "13.4 GiB" in result.reason
    assert "9.31 GiB" in result.reason


def test_blocked_neighbours_are_infeasible():
    here = cluster({"a": "x", "b": "y"}, {("x", "y"): BLOCKED})
    result = price_job(
        job(4), JobPlan((pipeline(("a", 0, 1), ("b", 2, 3)),), Options(1)), here, compute=FixedTimes(), engine=BARE
    )
    assert isinstance(result, Infeasible)
    assert result.obstacle is Obstacle.BLOCKED
    assert "a and b" in result.reason


def test_money_counts_gpus_in_use_and_bytes_out_of_a_region():
    here = cluster({"a": "x", "b": "y"}, egress=1e-9)
    result = price(job(4), JobPlan((pipeline(("a", 0, 1), ("b", 2, 3), gpus=(0, 1)),), Options(1)), here)
    assert result.money.gpus == pytest.approx(4 * GPU.price * result.step)
    assert result.money.egress == pytest.approx(8 * 2 * 1000 * 4 * 1e-9)  # there and back, 8 microbatches of 4 kB
    assert price(job(4), JobPlan((pipeline(("a", 0, 3)),), Options(1)), here).money.egress == 0


def test_token_budget_gives_time_and_money_to_finish():
    result = price(job(4, tokens=8000.0), JobPlan((pipeline(("a", 0, 3)),), Options(1)), cluster({"a": "x"}))
    assert result.finish == pytest.approx(100 * result.step)
    assert result.finish_money == pytest.approx(100 * result.money.total)


@pytest.mark.parametrize(
    ("word", "link", "times"),
    [
        ("compute", Link(0.0, 1e12), FixedTimes()),
        ("transfer", Link(10.0, 1e12), FixedTimes(forward=0.01, backward=0.01)),
        ("bubble", Link(0.0, 1e12), FixedTimes(by_layer={"block 0": (40.0, 40.0), "block 3": (40.0, 40.0)})),
    ],
)
def test_bottleneck_names_the_largest_part(word, link, times):
    here = cluster({"a": "x", "b": "y"}, {("x", "y"): link})
    microbatches = 1 if word == "bubble" else 8
    stages = (("a", 0, 1), ("b", 2, 3)) if word != "bubble" else (("a", 0, 0), ("b", 1, 2), ("a", 3, 3))
    plan = JobPlan(
        (Pipeline(tuple(Stage(m, (i,), f, last) for i, (m, f, last) in enumerate(stages)), microbatches),), Options(1)
    )
    result = price(job(4, global_batch=microbatches), plan, here, compute=times)
    assert result.bottleneck.startswith(word)


@st.composite
def random_plans(draw):
    """Any plan of one job on up to six machines in three regions, with unequal cuts and shares."""
    layers = draw(st.integers(1, 8))
    names = [f"m{i}" for i in range(6)]
    here = {name: f"r{i % 3}" for i, name in enumerate(names)}
    replicas = draw(st.integers(1, 3))
    pipelines = []
    for r in range(replicas):
        stages = draw(st.integers(1, min(layers, 3)))
        cuts = sorted(draw(st.sets(st.integers(1, max(layers - 1, 1)), min_size=stages - 1, max_size=stages - 1)))
        bounds = [0, *cuts, layers]
        made = [Stage(draw(st.sampled_from(names)), (r * 3 + s,), bounds[s], bounds[s + 1] - 1) for s in range(stages)]
        pipelines.append(Pipeline(tuple(made), draw(st.integers(1, 8))))
    plan = JobPlan(
        tuple(pipelines),
        Options(
            1,
            draw(st.sampled_from([Schedule.parse(t) for t in ("gpipe", "1f1b", "1f1b+2")])),
            sync=draw(st.sampled_from(Sync)),
        ),
    )
    batch = sum(p.microbatches for p in pipelines)
    return job(layers, global_batch=batch), plan, here


@settings(max_examples=150, deadline=None)
@given(random_plans(), st.floats(1e4, 1e9), st.floats(0.0, 1.0), st.floats(1.0, 10.0))
def test_parts_add_up_and_a_better_link_never_hurts(case, bandwidth, latency, better):
    a_job, plan, machines = case
    times = FixedTimes(forward=0.1, backward=0.2)
    slow = price(a_job, plan, cluster(machines, default=Link(latency, bandwidth), gpus=12), compute=times)
    fast = price(
        a_job, plan, cluster(machines, default=Link(latency / better, bandwidth * better), gpus=12), compute=times
    )
    parts = slow.breakdown
    assert min(parts.compute, parts.bubble, parts.transfer, parts.sync, parts.update) >= 0
    assert sum([parts.compute, parts.bubble, parts.transfer, parts.sync, parts.update]) == pytest.approx(slow.step)
    assert fast.step <= slow.step * (1 + 1e-9)
    for stage in (stage for p in slow.pipelines for stage in p):
        assert 0 <= stage.busy <= 1 + 1e-9
        assert stage.memory.used <= stage.memory.capacity
