"""What replicas and ranks split among them: memory, time and money of sharding, sequence parallelism, recomputation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from hulk.cost.engine import HULK, MEGATRON, MEGATRON_DEEPSPEED, TORCHTITAN, Engine
from hulk.cost.memory import layer_memory
from hulk.cost.price import price_anyway, price_job
from hulk.cost.report import Infeasible, JobPrice, Obstacle
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.gpu import Precision
from hulk.domain.job import Attention, Job
from hulk.domain.options import Options, Recompute, Sharding, Within
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_compute

COMPUTE = bundled_compute()
JOB = Job("j", build_named_model("llama-3-8b", sequence=4096), global_batch=256)
LAYERS = len(JOB.model.layers)
EGRESS = 0.1 / 1e9


def cluster(rate: float = 400e9, *, memory: float = 1e15) -> Cluster:
    """Two machines of eight H100 in each of two regions, `rate` bytes/s from one machine to another."""
    kind = gpu("h100")
    regions = tuple(Region(name, egress=EGRESS) for name in ("a", "b"))
    machines = tuple(
        Machine(f"{region.name}-{i}", region.name, kind, 8, memory, rate, 16.0 / 3600)
        for region in regions
        for i in (1, 2)
    )
    links = {pair(x, y): Link(1e-5, rate) for x in "ab" for y in "ab"}
    return Cluster("c", regions, machines, links)


def plan(options: Options, *, ranks: int = 1, stages: int = 1) -> JobPlan:
    """As many pipelines as 32 GPUs make, stages beside each other."""
    slots = [(f"{r}-{i}", first) for r in "ab" for i in (1, 2) for first in range(0, 8, ranks)]
    cuts = [round(i * LAYERS / stages) for i in range(stages + 1)]
    pipelines = []
    for begin in range(0, len(slots) - stages + 1, stages):
        made = [
            Stage(machine, tuple(range(first, first + ranks)), a, b - 1)
            for (machine, first), (a, b) in zip(slots[begin : begin + stages], pairwise(cuts), strict=True)
        ]
        pipelines.append(tuple(made))
    share = JOB.global_batch // options.microbatch_size // len(pipelines)
    return JobPlan(tuple(Pipeline(stages, share) for stages in pipelines), options)


def priced(
    options: Options, *, engine: Engine = TORCHTITAN, rate: float = 400e9, ranks: int = 1, stages: int = 1
) -> JobPrice:
    found = price_job(JOB, plan(options, ranks=ranks, stages=stages), cluster(rate), compute=COMPUTE, engine=engine)
    assert isinstance(found, JobPrice), found
    return found


@pytest.mark.parametrize("within", Within)
def test_each_kind_of_sharding_splits_one_more_part_of_the_state(within: Within) -> None:
    parts = {Within.EVERYWHERE: 32, Within.REGION: 16, Within.MACHINE: 8}[within]
    none = priced(Options(1)).pipelines[0][0].memory
    for level, sharding in enumerate(Sharding):
        memory = priced(Options(1, sharding=sharding, shard_within=within)).pipelines[0][0].memory
        assert memory.optimizer == pytest.approx(none.optimizer / (parts if level >= 1 else 1))
        assert memory.gradients == pytest.approx(none.gradients / (parts if level >= 2 else 1))
        assert memory.weights == pytest.approx(none.weights / (parts if level >= 3 else 1))
        total = memory.weights + memory.gradients + memory.optimizer + memory.activations + memory.workspace
        assert memory.used == pytest.approx(total + memory.reserved)


def test_gathers_hide_behind_passes_until_links_are_slow() -> None:
    whole, sharded = Options(2), Options(2, sharding=Sharding.PARAMETERS)
    assert priced(sharded).step < 1.1 * priced(whole).step
    assert priced(sharded, rate=1e9).step > 3 * priced(whole, rate=1e9).step
    steps = [priced(sharded, rate=rate).step for rate in (0.5e9, 1e9, 5e9, 50e9)]
    assert steps == sorted(steps, reverse=True)


def test_within_machines_slow_links_are_no_matter_for_passes() -> None:
    near = Options(2, sharding=Sharding.PARAMETERS, shard_within=Within.MACHINE)
    far = replace(near, shard_within=Within.EVERYWHERE)
    assert priced(near, rate=1e9).step < 0.5 * priced(far, rate=1e9).step
    assert priced(near, rate=1e9).pipelines[0][0].forward == pytest.approx(priced(near).pipelines[0][0].forward)


def test_gathering_across_regions_is_paid_for() -> None:
    whole, far = priced(Options(2)), priced(Options(2, sharding=Sharding.PARAMETERS))
    near = priced(Options(2, sharding=Sharding.PARAMETERS, shard_within=Within.REGION))
    assert far.money.egress > 1.5 * whole.money.egress
    assert near.money.egress == pytest.approx(whole.money.egress)


def test_pipelines_that_split_parameters_must_be_alike() -> None:
    made = plan(Options(1, sharding=Sharding.PARAMETERS), stages=2)
    first, *others = made.pipelines
    a, b = first.stages
    other = replace(first, stages=(replace(a, last=a.last + 1), replace(b, first=b.first + 1)))
    found = price_job(JOB, replace(made, pipelines=(other, *others)), cluster(), compute=COMPUTE, engine=TORCHTITAN)
    assert isinstance(found, Infeasible) and found.obstacle is Obstacle.UNLIKE
    assert "pipeline 2 is not like pipeline 1" in found.reason


def test_an_engine_says_what_it_cannot_do() -> None:
    made = plan(Options(1, sharding=Sharding.PARAMETERS))
    found = price_job(JOB, made, cluster(), compute=COMPUTE, engine=MEGATRON)
    assert isinstance(found, Infeasible) and found.obstacle is Obstacle.ENGINE
    assert found.reason == 'megatron cannot do "parameters, gradients and optimizer sharded"'
    older = price_job(
        JOB, plan(Options(1, sequence_parallel=True), ranks=8), cluster(), compute=COMPUTE, engine=MEGATRON_DEEPSPEED
    )
    assert isinstance(older, Infeasible) and "sequence parallel" in older.reason


def test_an_engine_can_do_more_than_a_search_tries() -> None:
    assert Sharding.PARAMETERS not in HULK.tried["sharding"]
    assert priced(Options(1, sharding=Sharding.PARAMETERS), engine=HULK).step > 0


def test_passes_take_computing_and_moving_where_these_do_not_overlap() -> None:
    """`hulk run` counts on no overlap; and owners send nothing where every pass gathers weights anyway."""
    options = Options(2, sharding=Sharding.PARAMETERS)
    apart = priced(options, engine=replace(HULK, overlap_shards=False), rate=10e9)
    over = priced(options, engine=replace(HULK, overlap_shards=True), rate=10e9)
    assert over.step < apart.step < 2.0 * over.step
    sends = priced(options, engine=replace(HULK, sends_weights=False), rate=10e9)
    assert sends.step == apart.step


def test_owners_send_what_they_updated_to_those_near_them() -> None:
    """Within machines no weights cross a slow network, everywhere they do."""
    everywhere, near = (
        priced(Options(1, sharding=Sharding.OPTIMIZER, shard_within=within), engine=HULK, rate=1e9).step
        - priced(
            Options(1, sharding=Sharding.OPTIMIZER, shard_within=within),
            engine=replace(HULK, sends_weights=False),
            rate=1e9,
        ).step
        for within in (Within.EVERYWHERE, Within.MACHINE)
    )
    assert near < 0.1 * everywhere


def test_weights_are_handed_on_once_where_gradients_are_sharded() -> None:
    plain, none = (
        priced(Options(1, sharding=Sharding.GRADIENTS), engine=replace(HULK, sends_weights=sends), rate=1e9).step
        for sends in (True, False)
    )
    optimizer, without = (
        priced(Options(1, sharding=Sharding.OPTIMIZER), engine=replace(HULK, sends_weights=sends), rate=1e9).step
        for sends in (True, False)
    )
    assert plain - none == pytest.approx(optimizer - without, rel=0.05)


def test_sequence_parallelism_splits_what_was_whole() -> None:
    """Activations of Korthikanti et al. (arXiv 2205.05198): 34 s b h bytes a layer with t ranks are 10 + 24 / t of them
    without sequence parallelism and 34 / t with it (dropout's masks among them, scores left out)."""
    config = build_named_model("gpt2-xl", sequence=1024)
    job = Job("g", config, 8, precision=Precision.FP16, attention=Attention.FUSED)
    block = config.layers[1]
    plain = layer_memory(block, block.output, job, Options(1), MEGATRON)
    split = layer_memory(block, block.output, job, Options(1, sequence_parallel=True), MEGATRON)
    unit = block.output
    assert plain.held_whole == pytest.approx(10 * unit, rel=0.01)
    assert plain.held_split == pytest.approx(24 * unit, rel=0.01)
    assert split.held_whole == 0 and split.held_split == pytest.approx(34 * unit, rel=0.01)
    one = priced(Options(1), engine=MEGATRON, ranks=8)
    two = priced(Options(1, sequence_parallel=True), engine=MEGATRON, ranks=8)
    assert two.step < one.step and two.pipelines[0][0].memory.used < one.pipelines[0][0].memory.used


def test_recomputation_trades_time_for_memory() -> None:
    """From none to full, each keeps less and takes longer."""
    titan = [priced(Options(2, recompute=how)) for how in (Recompute.NONE, Recompute.OPERATIONS, Recompute.FULL)]
    held = [price.pipelines[0][0].memory.activations for price in titan]
    assert held == sorted(held, reverse=True) and held[0] > 1.5 * held[1] > 3 * held[2]
    steps = [price.step for price in titan]
    assert steps == sorted(steps) and 1.2 < steps[2] / steps[0] < 1.4


def test_attention_recomputed_leaves_all_but_the_scores() -> None:
    """5 a s² b bytes of scores a layer (arXiv 2205.05198) go, and a forward pass of attention comes again."""
    model = build_named_model("gpt2-xl", sequence=1024)
    job = Job("g", model, 64, precision=Precision.FP16, attention=Attention.FUSED_SOFTMAX)
    block = model.layers[1]
    none, some = (
        layer_memory(block, block.output, job, Options(1, recompute=how), MEGATRON)
        for how in (Recompute.NONE, Recompute.ATTENTION)
    )
    heads, tokens = 25, 1024
    assert none.held_split - some.held_split == pytest.approx(5 * heads * tokens**2, rel=0.01)
    assert some.peak_split == pytest.approx(none.held_split - some.held_split)


def test_fp8_is_faster_where_the_card_has_it_and_nowhere_else() -> None:
    def step(precision: Precision, kind: str) -> float:
        job = replace(JOB, precision=precision)
        here = cluster()
        machines = tuple(replace(machine, gpu=gpu(kind)) for machine in here.machines)
        found = price_job(job, plan(Options(2)), replace(here, machines=machines), compute=COMPUTE, engine=TORCHTITAN)
        assert isinstance(found, JobPrice)
        return found.step

    assert 0.55 < step(Precision.FP8, "h100") / step(Precision.BF16, "h100") < 0.9
    assert step(Precision.FP8, "a100-80") == pytest.approx(step(Precision.BF16, "a100-80"))


def test_what_does_not_fit_can_be_priced_anyway() -> None:
    made, small = Plan({"j": plan(Options(1))}), cluster(memory=80 * 2.0**30)
    found = price_anyway(made, small, [JOB], compute=COMPUTE, engine=TORCHTITAN).jobs["j"]
    assert isinstance(found, JobPrice)
    assert found.step == pytest.approx(priced(Options(1)).step)
    assert found.pipelines[0][0].memory.used > found.pipelines[0][0].memory.capacity == 80 * 2.0**30
