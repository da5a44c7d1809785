"""Small cases for the simulator, by hand and drawn. Every layer takes as long as its name says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hulk.cost import step
from hulk.cost.compute import ComputeModel, LayerTime, TimeOrigin
from hulk.cost.engine import Engine
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.roofline import Conditions
from hulk.cost.tables import without_sharing
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Job
from hulk.domain.model import Layer, LayerKind, Model
from hulk.domain.options import Options, Schedule, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Stage

PLAIN = Engine(name="plain", reserve=0.0)
GPU = GpuType("toy", memory=1e15, memory_bandwidth=1e30, rates={Precision.FP32: 1.0}, link_bandwidth=1e4)


class HandTimes(ComputeModel):
    """Every layer's seconds as given: a layer's name is "forward/backward"."""

    def layer_times(self, model: Model, layer: Layer | int, gpu: GpuType, how: Conditions) -> LayerTime:
        assert isinstance(layer, Layer)
        forward, backward = layer.name.split("/")
        return LayerTime(float(forward), float(backward), TimeOrigin.MEASURED)


def make_layer(forward: float, backward: float, *, output: float = 0.0, params: int = 0, tied: int = 0) -> Layer:
    """`output` and `params` are elements of 4 bytes."""
    return Layer(
        name=f"{forward}/{backward}", kind=LayerKind.BLOCK, shape="", params_split=params, params_whole=0, tied=tied,
        matmuls=(), moved_split=0, moved_whole=0, scores=0, held_split=0, held_whole=0, mask_bytes=0, output=output,
        reductions=0, kernels=0,
    )  # fmt: skip


def make_job(name: str, layers: Sequence[Layer], microbatches: int = 1) -> Job:
    return Job(name, Model("toy", "toy", 1, tuple(layers)), global_batch=microbatches, precision=Precision.FP32)


def make_machine(name: str, region: str = "r", network: float = 100.0, gpu: GpuType = GPU) -> Machine:
    return Machine(name, region, gpu, gpus=64, memory=gpu.memory, network=network, price=0.0)


def make_cluster(machines: Sequence[Machine], links: Mapping[tuple[str, str], Link] | None = None) -> Cluster:
    """All regions linked by 1000 bytes/s a flow and no latency, but for `links`."""
    regions = sorted({machine.region for machine in machines})
    every = {pair(a, b): Link(latency=0.0, bandwidth=1000.0) for a in regions for b in regions}
    return Cluster("toy", tuple(map(Region, regions)), tuple(machines), every | dict(links or {}))


def prepared(job: Job, plan: JobPlan, cluster: Cluster, engine: Engine = PLAIN) -> Prepared:
    found = prepare(job, plan, cluster, compute=HandTimes(), engine=engine)
    assert isinstance(found, Prepared), found
    return found


def two_stages(name: str, a: str, b: str, cluster: Cluster, *, forward: float = 1.0, gpu: int = 0) -> Prepared:
    """One microbatch, a layer on each machine, 100 bytes in between."""
    layers = [make_layer(forward, 2.0, output=25.0), make_layer(1.0, 2.0)]
    stages = (Stage(a, (gpu,), 0, 0), Stage(b, (gpu,), 1, 1))
    return prepared(make_job(name, layers), JobPlan((Pipeline(stages, 1),), Options(1)), cluster)


# --- Drawn ---------------------------------------------------------------------------------------------------------

SCHEDULES = ["gpipe", "1f1b", "1f1b+1", "1f1b+3", "1f1b+50", "zb", "zb+2"]
seconds = st.floats(0.001, 2.0)
rates = st.floats(10.0, 1e4)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    gpus = [GPU, replace(GPU, name="other", link_bandwidth=draw(rates), link_kind="nvlink")]
    count = draw(st.integers(1, 6))
    machines = [
        make_machine(f"m{i}", draw(st.sampled_from("rst")), draw(rates), draw(st.sampled_from(gpus)))
        for i in range(count)
    ]
    regions = sorted({machine.region for machine in machines})
    links = {
        pair(a, b): Link(draw(st.floats(0, 2)), draw(rates), trunk=draw(st.none() | rates))
        for a in regions
        for b in regions
    }
    return make_cluster(machines, links)


@st.composite
def pipelines(draw: st.DrawFn, layers: int, machines: Sequence[str], free: Counter[str]) -> Pipeline:
    inner = st.sets(st.integers(1, layers - 1), max_size=7) if layers > 1 else st.just(set())
    bounds = [0, *sorted(draw(inner)), layers]
    stages = []
    for first, end in pairwise(bounds):
        name = draw(st.sampled_from(machines))
        ranks = draw(st.sampled_from([1, 2, 4]))
        stages.append(Stage(name, tuple(range(free[name], free[name] + ranks)), first, end - 1))
        free[name] += ranks
    return Pipeline(tuple(stages), draw(st.integers(1, 64)))


@st.composite
def rounds(draw: st.DrawFn, layers: int, chunks: int, machines: Sequence[str], free: Counter[str]) -> Pipeline:
    """A pipeline whose stages go round its GPUs."""
    count = draw(st.integers(2, layers // chunks))
    places = []
    for _ in range(count):
        name, ranks = draw(st.sampled_from(machines)), draw(st.sampled_from([1, 2, 4]))
        places.append((name, tuple(range(free[name], free[name] + ranks))))
        free[name] += ranks
    cuts = draw(st.permutations(range(1, layers)))[: count * chunks - 1]
    bounds = pairwise([0, *sorted(cuts), layers])
    stages = tuple(Stage(*places[k % count], first, end - 1) for k, (first, end) in enumerate(bounds))
    return Pipeline(stages, count * draw(st.integers(1, 8)))


def draw_habits(draw: st.DrawFn) -> dict[str, Any]:
    """Some of what `hulk run` does."""
    flags = {name: draw(st.booleans()) for name in ("swaps", "shares_once", "sends_weights", "rolls")}
    return {**flags, "hop_overhead": draw(st.sampled_from([0.0, 0.01])), "bucket": draw(st.sampled_from([None, 90.0]))}


@st.composite
def jobs_prepared(draw: st.DrawFn, cluster: Cluster, name: str = "job", *, habits: bool = False) -> Prepared:
    count = draw(st.integers(1, 8))
    layers = [
        make_layer(draw(seconds), draw(seconds), output=draw(st.floats(0, 100)), params=draw(st.integers(4, 200)))
        for _ in range(count)
    ]
    if count > 1 and draw(st.booleans()):
        tied_layer = draw(st.integers(1, count - 1))
        layers[tied_layer] = replace(layers[tied_layer], tied=4)
    names = [machine.name for machine in cluster.machines]
    free: Counter[str] = Counter()
    replicas = draw(st.integers(1, 4))
    chunks = draw(st.sampled_from([each for each in (1, 1, 2, 3) if each == 1 or count >= 2 * each]))
    drawn = pipelines(count, names, free) if chunks == 1 else rounds(count, chunks, names, free)
    plan = JobPlan(
        tuple(draw(drawn) for _ in range(replicas)),
        Options(
            microbatch_size=1,
            schedule=Schedule.parse(draw(st.sampled_from(SCHEDULES))),
            chunks=chunks,
            sync=draw(st.sampled_from(Sync)),
            sharding=draw(st.sampled_from([Sharding.NONE, Sharding.OPTIMIZER])),
        ),
    )
    engine = Engine(
        name="any",
        blocking_above=draw(st.sampled_from([0.0, 50.0, 200.0, float("inf")])),
        message_overhead=draw(st.sampled_from([0.0, 0.01])),
        flow_per_rank=draw(st.booleans()),
        overlap_sync=draw(st.booleans()),
        reserve=0.0,
        ring_share_of=draw(st.sampled_from([{}, {"other": 0.4}])),
        **(draw_habits(draw) if habits else {"swaps": draw(st.booleans())}),
    )
    batch = sum(pipeline.microbatches for pipeline in plan.pipelines)
    return prepared(make_job(name, layers, batch), plan, cluster, engine)


def price_of(one: Prepared) -> tuple[float, np.ndarray]:
    """Seconds of the step, and when each stage's passes are done, where nobody waits for others on the way."""
    stage_end, sync_end = np.zeros(len(one.stages)), np.zeros(len(one.stages))
    total = step.step_seconds(
        without_sharing(one.book.tables), one.encoded, one.durations, one.sets, stage_end, sync_end, step.ALL
    )
    return total, stage_end
