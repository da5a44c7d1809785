"""A target that cannot express a plan refuses, and names the part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from export_scenes import AHEAD, changed, hall, jobs, tiny

from hulk.domain.gpu import Precision
from hulk.domain.job import Optimizer
from hulk.domain.options import Recompute, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.errors import InfeasibleError, InputError
from hulk.export import TARGETS, Scene
from hulk.io.hosts_file import Host, HostList

GRID = hall("tp2 pp2 dp2 mb1")


def with_stages(*stages: Stage) -> Scene:
    return replace(GRID, plan=replace(GRID.plan, pipelines=(Pipeline(stages, 64),)))


def other_job(scene: Scene, **fields: object) -> Scene:
    return replace(scene, job=replace(scene.job, **fields))


def shares(*microbatches: int) -> Scene:
    pipelines = zip(GRID.plan.pipelines, microbatches, strict=True)
    made = tuple(replace(pipeline, microbatches=count) for pipeline, count in pipelines)
    return replace(GRID, plan=replace(GRID.plan, pipelines=made))


def counted(*counts: int | None) -> Scene:
    pipelines = tuple(
        replace(p, stages=tuple(replace(s, recomputed=n) for s, n in zip(p.stages, counts, strict=True)))
        for p in GRID.plan.pipelines
    )
    return changed(replace(GRID, plan=replace(GRID.plan, pipelines=pipelines)), recompute=Recompute.FULL)


MIXED = hall("tp2 pp2 dp4 mb1")
WIDE, NARROW = Stage("oslo-1", (0, 1, 2, 3), 0, 16), Stage("oslo-2", (0, 1), 17, 33)
LONG, SHORT = GRID.plan.pipelines[0], Pipeline((Stage("oslo-3", (0, 1), 0, 33),), 32)
CUT = Pipeline((Stage("oslo-3", (0, 1), 0, 15), Stage("oslo-3", (2, 3), 16, 33)), 32)
SPREAD = replace(
    GRID,
    plan=replace(
        GRID.plan,
        pipelines=tuple(
            Pipeline((Stage(machine, (gpu,), 0, 33),), 16)
            for machine, gpu in (("oslo-1", 0), ("oslo-1", 1), ("oslo-1", 2), ("oslo-2", 0))
        ),
    ),
)
ALONE = JobPlan((Pipeline((Stage("oslo-1", (0,), 0, 13),), 12),), GRID.plan.options)


@pytest.mark.parametrize(
    ("target", "scene", "words"),
    [
        ("megatron", with_stages(WIDE, NARROW), "stages 1 and 2 use tensor parallel 4 and 2; it takes one for all"),
        ("deepspeed", replace(GRID, plan=replace(GRID.plan, pipelines=(LONG, SHORT))), "have 2 and 1 stages"),
        ("torchtitan", replace(GRID, plan=replace(GRID.plan, pipelines=(LONG, CUT))), "0–16 and 0–15 on stage 1"),
        ("automodel", shares(40, 24), "1 and 2 take 40 and 24 microbatches a step; it takes one share for all"),
        ("megatron", changed(GRID, schedule=AHEAD), "the plan has `schedule: 1f1b+4`; it takes 1f1b"),
        ("megatron", changed(GRID, sync=Sync.BY_REGION), "`sync: by-region`"),
        ("deepspeed", changed(GRID, context=2), "the plan has `context: 2`; it takes 1"),
        ("accelerate", changed(GRID, context=2), "the plan has `context: 2`; it takes 1"),
        ("megatron", counted(3, 2), "stages compute 3, 2, 3, 2 of their blocks again; it takes one number for all"),
        ("megatron", changed(counted(3, 3), recompute=Recompute.ATTENTION), "`recompute: attention` for some blocks"),
        ("torchtitan", counted(3, 3), "stage 1 of pipeline 1 computes 3 of its 16 blocks again; it takes all"),
        ("automodel", counted(3, None), "stage 1 of pipeline 1 computes 3 of its 16 blocks again; it takes all"),
        ("deepspeed", counted(None, 2), "stage 2 of pipeline 1 computes 2 of its 16 blocks again; it takes all"),
        ("torchtitan", changed(GRID, expert=2), "the plan has `expert: 2`; it takes 1"),
        ("automodel", changed(GRID, context=2), "2 GPUs share a sequence with `sharding: none`"),
        ("megatron", changed(MIXED, expert=4), "stage 1 are split over 4 GPUs, but replicas that follow"),
        ("megatron", changed(GRID, sharding=Sharding.PARAMETERS), "`sharding: parameters`; it takes none, optimizer"),
        ("megatron", other_job(GRID, optimizer=Optimizer.ADAFACTOR), "trains with adafactor"),
        ("torchtitan", changed(GRID, sharding=Sharding.OPTIMIZER), "`sharding: optimizer`; it takes none, gradients"),
        ("torchtitan", other_job(GRID, precision=Precision.FP16), "trains in fp16"),
        ("torchtitan", replace(GRID, job=jobs()["tiny"], plan=ALONE), "gpt2 is none of the models it brings along"),
        ("automodel", replace(GRID, job=jobs()["tiny"], plan=ALONE), "gpt2 is of the type gpt2; stages are known for"),
        ("deepspeed", changed(GRID, sharding=Sharding.GRADIENTS), "its pipelines take none or optimizer"),
        ("deepspeed", hall("pp4 dp8 mb1"), "its launcher numbers GPUs machine by machine"),
        ("deepspeed", hall("tp2 pp2 vp2 dp8 mb1 dp-pp"), "the plan has `chunks: 2`; it takes 1"),
        ("automodel", hall("tp2 pp2 vp2 dp8 mb1"), "the plan has `chunks: 2`; it takes 1"),
        ("megatron", hall("tp2 pp2 dp8 mb1 zb"), "the plan has `schedule: zb`; it takes 1f1b"),
        ("torchtitan", hall("tp2 pp2 dp8 mb1 zb"), "it splits backward with several chunks alone"),
        ("accelerate", GRID, "pipelines of 2 stages; it takes plain data parallel"),
        ("accelerate", hall("tp2 dp16 mb1"), "tensor parallel 2; it takes plain data parallel"),
        ("accelerate", SPREAD, "oslo-1 and oslo-2 train with 3 and 1 GPUs; it takes one number for all"),
        ("torchrun", other_job(hall("tp2 dp2 mb1"), precision=Precision.FP8), "products in fp8 need scales"),
        ("skypilot", replace(tiny(), hosts=HostList()), "where region 'rome' is, nobody says"),
        ("wireguard", replace(GRID, job=jobs()["tiny"], plan=ALONE), "uses oslo-1 alone"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_named(target: str, scene: Scene, words: str) -> None:
    with pytest.raises(InfeasibleError) as caught:
        TARGETS.get(target).export(scene)
    assert words in str(caught.value) and str(caught.value).startswith(target)


@pytest.mark.parametrize("target", ["torchrun", "slurm", "jobset", "skypilot", "ray"])
def test_workers_need_data_and_models_that_run(target: str) -> None:
    scene = tiny()
    with pytest.raises(InputError, match="no data to train on"):
        TARGETS.get(target).export(replace(scene, settings=scene.settings.model_copy(update={"data": None})))
    half = replace(scene.job, precision=Precision.FP16)
    with pytest.raises(InfeasibleError, match=f"^{target}: .*fp16 needs loss scaling"):
        TARGETS.get(target).export(replace(scene, job=half))


def test_two_machines_are_two_nodes_of_slurm() -> None:
    twice = HostList({name: Host("127.0.0.1", "127.0.0.1", "n1") for name in ("rome-1", "oslo-1")})
    with pytest.raises(InputError, match="the same `node`"):
        TARGETS.get("slurm").export(tiny(twice))


def test_an_unknown_target_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no target 'megatrom' \(did you mean 'megatron'\?\)"):
        TARGETS.get("megatrom")
