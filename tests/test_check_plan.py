"""The invariants of plans: each broken in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.model import Layer, LayerKind, Model
from hulk.domain.options import Options, Recompute
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.errors import PlanError
from hulk.io.cluster_file import read_cluster
from hulk.io.yamlfile import parse_document

CLUSTER = """
regions: {eu-a: {at: [50, 0]}, eu-b: {at: [50, 5]}, us-c: {at: [40, -80]}}
machines:
  - {name: a, count: 3, region: eu-a, gpu: a100-40, gpus: 4}
  - {name: b, count: 3, region: eu-b, gpu: a100-40, gpus: 4}
  - {name: c, count: 3, region: us-c, gpu: a100-40, gpus: 4}
links:
  - {between: [eu-b, us-c], blocked: true}
  - {between: [b-3, c-3], latency: 40 ms}
  - {between: [a-2, b-2], blocked: true}
"""


def layer(number: int, *, heads: int = 12, tied: int = 0) -> Layer:
    return Layer(
        name=f"layer {number}", kind=LayerKind.BLOCK, shape="block", params_split=100, params_whole=10, tied=tied,
        matmuls=(), moved_split=1.0, moved_whole=1.0, scores=1.0, held_split=1.0, held_whole=1.0, mask_bytes=0.0,
        output=1.0, reductions=2, kernels=10, head_width=heads,
    )  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return read_cluster(parse_document(CLUSTER, name="cluster.yaml"))


def model(*, tied: int = 0) -> Model:
    return Model("m", "test", 128, (layer(0, heads=0), *(layer(n) for n in range(1, 7)), layer(7, heads=0, tied=tied)))


JOB = Job("big", model(), global_batch=24, allow=("eu-*", "us-*"))
OTHER = Job("other", model(), global_batch=4, deny=("us-*",))


FULL = Recompute.FULL


def pipe(*stages: tuple[Any, ...], microbatches: int = 4) -> Pipeline:
    """Stages as (machine, GPUs, first and last layer), and how many blocks are recomputed."""
    made = (Stage(*stage[:4], recomputed=stage[4] if len(stage) > 4 else None) for stage in stages)
    return Pipeline(tuple(made), microbatches)


FIRST = pipe(("a-1", (0, 1), 0, 3), ("b-1", (0, 1, 2), 4, 7), microbatches=8)
SECOND = pipe(("a-1", (2,), 0, 7), microbatches=4)
GOOD = Plan(
    jobs={"big": JobPlan((FIRST, SECOND), Options(2)), "other": JobPlan((pipe(("a-3", (0,), 0, 7)),), Options(1))},
    idle=("c-1", "b-2"),
)


def with_pipelines(*pipelines: Pipeline) -> Plan:
    return replace(GOOD, jobs={**GOOD.jobs, "big": JobPlan(pipelines, Options(2))}, idle=())


def test_a_good_plan_passes(cluster: Cluster) -> None:
    check_plan(GOOD, cluster, [JOB, OTHER])
    check_plan(Plan(jobs={}, waiting={"big": "no memory"}), cluster, (JOB,))


BAD: dict[str, tuple[Callable[[], Plan], str]] = {
    "unknown job": (lambda: Plan(jobs={"bik": GOOD.jobs["big"]}), "job 'bik' that is not among the jobs (did you mean"),
    "unknown waiting": (lambda: replace(GOOD, waiting={"none": "why"}), "job 'none' that is not among the jobs"),
    "trains and waits": (lambda: replace(GOOD, waiting={"big": "why"}), "job 'big' both trains and waits"),
    "no pipeline": (with_pipelines, "job 'big' has no pipeline"),
    "no stage": (lambda: with_pipelines(Pipeline((), 12)), "job 'big', pipeline 1: no stages"),
    "gap": (
        lambda: with_pipelines(pipe(("a-1", (0,), 0, 2), ("b-1", (0,), 4, 7), microbatches=12)),
        "job 'big', pipeline 1, stage 2: layers 3 to 3 are left out (this stage must begin with layer 3)",
    ),
    "overlap": (
        lambda: with_pipelines(FIRST, pipe(("a-1", (2,), 0, 4), ("b-3", (0,), 3, 7))),
        "job 'big', pipeline 2, stage 2: layers 3 to 4 are there twice or out of order",
    ),
    "short": (
        lambda: with_pipelines(pipe(("a-1", (0,), 0, 6), microbatches=12)),
        "the stages end with layer 6, but the model has 8 layers (0 to 7)",
    ),
    "long": (
        lambda: with_pipelines(pipe(("a-1", (0,), 0, 8), microbatches=12)),
        "the stages end with layer 8, but the model has 8 layers",
    ),
    "backwards": (
        lambda: with_pipelines(pipe(("a-1", (0,), 0, 3), ("a-1", (1,), 4, 3), ("a-1", (2,), 4, 7), microbatches=12)),
        "stage 2: layers 4 to 3 are none",
    ),
    "unknown machine": (
        lambda: with_pipelines(pipe(("aa-1", (0,), 0, 7), microbatches=12)),
        "job 'big', pipeline 1, stage 1: no machine 'aa-1' in cluster 'cluster' (did you mean 'a-1'?)",
    ),
    "no such GPU": (
        lambda: with_pipelines(pipe(("a-1", (4,), 0, 7), microbatches=12)),
        "no GPU 4 on 'a-1' (it has GPUs 0 to 3)",
    ),
    "negative GPU": (lambda: with_pipelines(pipe(("a-1", (-1,), 0, 7), microbatches=12)), "no GPU -1 on 'a-1'"),
    "no GPUs": (lambda: with_pipelines(pipe(("a-1", (), 0, 7), microbatches=12)), "stage 1: no GPUs"),
    "GPU twice in a stage": (
        lambda: with_pipelines(pipe(("a-1", (0, 0), 0, 7), microbatches=12)),
        "GPU 0 of 'a-1' is used twice",
    ),
    "GPU twice": (
        lambda: with_pipelines(FIRST, pipe(("a-1", (1,), 0, 7))),
        "job 'big', pipeline 2, stage 1: GPU 1 of 'a-1' is used twice, first by job 'big', pipeline 1, stage 1",
    ),
    "GPU in two jobs": (
        lambda: with_pipelines(FIRST, pipe(("a-3", (0,), 0, 7))),
        "GPU 0 of 'a-3' is used twice, first by job 'big', pipeline 2, stage 1",
    ),
    "heads": (
        lambda: replace(
            GOOD, jobs={"big": JobPlan((pipe(("wide", tuple(range(8)), 0, 7), microbatches=12),), Options(2))}
        ),
        "8 GPUs cannot share the 12 attention heads of layer 1 evenly (use 1, 2, 3, 4, 6 GPUs)",
    ),
    "recomputed of nothing": (
        lambda: with_pipelines(pipe(("a-1", (0,), 0, 7, 3), microbatches=12)),
        "stage 1: `recomputed: 3`, but with `recompute: none` nothing is computed again (leave it out, or say what",
    ),
    "recomputed of more": (
        lambda: replace(
            GOOD,
            jobs={"big": JobPlan((pipe(("a-1", (0,), 0, 7, 9), microbatches=12),), Options(2, recompute=FULL))},
        ),
        "stage 1: `recomputed: 9`, but layers 0 to 7 have 8 blocks (0 to 8; left out, all blocks are computed again)",
    ),
    "batch": (
        lambda: with_pipelines(FIRST),
        "job 'big': 8 microbatches of 2 are 16 sequences a step, but the job's global batch is 24",
    ),
    "no microbatches": (
        lambda: with_pipelines(replace(FIRST, microbatches=12), replace(SECOND, microbatches=0)),
        "job 'big', pipeline 2: 0 microbatches",
    ),
    "blocked neighbours": (
        lambda: with_pipelines(pipe(("b-1", (0,), 0, 3), ("c-1", (0,), 4, 7), microbatches=12)),
        "job 'big', pipeline 1: stages 1 and 2 exchange activations, but the link between 'b-1' and 'c-1' is blocked",
    ),
    "blocked replicas": (
        lambda: with_pipelines(FIRST, pipe(("a-1", (2,), 0, 4), ("c-1", (0,), 5, 7))),
        "job 'big': layers 5 to 7 are on 'b-1' and on 'c-1', which must add up their gradients",
    ),
    "blocked machines": (
        lambda: with_pipelines(pipe(("a-2", (0,), 0, 7), microbatches=8), pipe(("b-2", (0,), 0, 7))),
        "layers 0 to 7 are on 'a-2' and on 'b-2'",
    ),
    "region": (
        lambda: Plan(jobs={"other": JobPlan((pipe(("c-1", (0,), 0, 7)),), Options(1))}),
        "job 'other', pipeline 1, stage 1: the job may not run in region 'us-c', where 'c-1' is",
    ),
    "idle but busy": (lambda: replace(GOOD, idle=("a-1",)), "machine 'a-1' is listed as idle, but job 'big'"),
    "idle unknown": (lambda: replace(GOOD, idle=("z",)), "no idle machine 'z'"),
    "idle twice": (lambda: replace(GOOD, idle=("c-1", "c-1")), "machine 'c-1' is listed as idle twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_each_broken_invariant_is_named(case: str, cluster: Cluster) -> None:
    make, message = BAD[case]
    wide = replace(cluster.machine("a-3"), name="wide", gpus=8)
    larger = replace(cluster, machines=(*cluster.machines, wide))
    with pytest.raises(PlanError) as caught:
        check_plan(make(), larger, [JOB, OTHER])
    assert message in str(caught.value)


def test_an_open_pair_of_two_blocked_regions_may_talk(cluster: Cluster) -> None:
    check_plan(with_pipelines(pipe(("b-3", (0,), 0, 3), ("c-3", (0,), 4, 7), microbatches=12)), cluster, [JOB, OTHER])


def test_stages_that_share_tied_weights_must_reach_each_other(cluster: Cluster) -> None:
    stages = pipe(("b-1", (0,), 0, 3), ("a-1", (0,), 4, 6), ("c-1", (0,), 7, 7), microbatches=12)
    plan = Plan(jobs={"big": JobPlan((stages,), Options(2))})
    check_plan(plan, cluster, [JOB])
    with pytest.raises(PlanError, match="stages 1 and 3 share tied weights, but the link between 'b-1' and 'c-1'"):
        check_plan(plan, cluster, [replace(JOB, model=model(tied=100))])
