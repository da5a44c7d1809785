"""Recomputation of some of a stage's blocks: its time and memory, who can do it, how few there can be, its words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small
from hulk.cost.engine import ENGINES, HULK, MEGATRON, MEGATRON_DEEPSPEED, TORCHTITAN, Engine
from hulk.cost.prepared import Prepared, prepare
from hulk.cost.price import closed_form, price_job
from hulk.cost.report import Infeasible, JobPrice, Obstacle
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster, Link, Machine, Region
from hulk.domain.job import Job
from hulk.domain.options import Options, Recompute, Schedule, Sharding
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.domain.regular import parse_regular, regular_plan
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_compute
from hulk.planner import plan_jobs
from hulk.search.budget import Effort
from hulk.search.form import Form
from hulk.search.job_space import JobSpace
from hulk.search.request import Request
from hulk.search.skeleton import Skeleton, skeleton_of
from hulk.search.spaces import spaces_of
from hulk.search.uniform import Uniform, best_uniform
from hulk.simulate import simulate
from hulk.view.words import options_words, pipeline_lines
from warm import hulk

GIB = 2.0**30
COMPUTE = bundled_compute()
JOB = Job("j", build_named_model("llama-3-8b", sequence=2048), global_batch=32)
LAST = len(JOB.model.layers) - 1
CUTS = (0, 7, 17, 26, LAST + 1)
KINDS = tuple(kind for kind in Recompute if kind is not Recompute.NONE)


def hall(memory: float = 200 * GIB) -> Cluster:
    """Two machines of four H200 with as much memory as said."""
    region, kind = Region("hall", egress=0.0), gpu("h200")
    machines = tuple(Machine(f"n-{i}", "hall", kind, 4, memory, 5e10, 16.0 / 3600) for i in (1, 2))
    return Cluster("c", (region,), machines, {("hall", "hall"): Link(1e-5, 5e10)})


def able(engine: Engine) -> Engine:
    """The same engine, able to compute any number of blocks again on each stage."""
    return replace(engine, counts=KINDS, one_count=False)


def plan(options: Options, counts: Sequence[int | None] = (None,) * 4) -> JobPlan:
    """Two pipelines of four stages; with two chunks, of two slots."""
    pipelines = []
    for p in (1, 2):
        stages = [
            Stage(f"n-{p}", (s % (4 // options.chunks),), a, b - 1, recomputed=count)
            for s, ((a, b), count) in enumerate(zip(pairwise(CUTS), counts, strict=True))
        ]
        pipelines.append(Pipeline(tuple(stages), JOB.global_batch // options.microbatch_size // 2))
    return JobPlan(tuple(pipelines), options)


def priced(made: JobPlan, *, engine: Engine = HULK, where: Cluster | None = None) -> JobPrice:
    found = price_job(JOB, made, where or hall(), compute=COMPUTE, engine=engine)
    assert isinstance(found, JobPrice), found
    return found


def searched(made: JobPlan, where: Cluster) -> float:
    """Seconds of a step as a search takes them."""
    ready = prepare(JOB, made, where, compute=COMPUTE)
    assert isinstance(ready, Prepared), ready
    return closed_form(ready, ready.book.tables)


def all_or_none(where: Cluster) -> JobSpace:
    """The search's space for an engine that computes all blocks again or none."""
    (space,) = spaces_of(where, [JOB], compute=COMPUTE, engine=replace(HULK, counts=()))
    return space


def blocks(stage: Stage) -> int:
    return JOB.model.blocks(stage.first, stage.last)


def assert_same(one: JobPrice, other: JobPrice) -> None:
    assert one.step == pytest.approx(other.step, rel=1e-9)
    for mine, its in zip(one.pipelines, other.pipelines, strict=True):
        for a, b in zip(mine, its, strict=True):
            assert (a.forward, a.backward) == pytest.approx((b.forward, b.backward), rel=1e-9)
            assert a.memory.used == pytest.approx(b.memory.used, rel=1e-9)


WAYS = {
    "1f1b": {},
    "gpipe": {"schedule": Schedule.parse("gpipe")},
    "interleaved": {"chunks": 2},
    "zero bubble": {"schedule": Schedule.parse("zb")},
    "sharded": {"sharding": Sharding.OPTIMIZER},
    "parameters sharded": {"sharding": Sharding.PARAMETERS},
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_all_blocks_are_as_without_numbers_and_none_as_without_recomputation(engine: Engine) -> None:
    tried = 0
    for kind, way in product(KINDS, WAYS.values()):
        options = Options(1, recompute=kind, **way)
        if any(getattr(options, name) not in values for name, values in engine.offers.items()):
            continue
        tried += 1
        every = plan(options, [blocks(stage) for stage in plan(options).pipelines[0].stages])
        assert_same(priced(every, engine=able(engine)), priced(plan(options), engine=engine))
        none = plan(replace(options, recompute=Recompute.NONE))
        assert_same(priced(plan(options, (0,) * 4), engine=able(engine)), priced(none, engine=engine))
    assert tried >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_more_blocks_take_longer_and_hold_less(kind: Recompute) -> None:
    found = [priced(plan(Options(1, recompute=kind), (count,) * 4)) for count in range(7)]
    for fewer, more in pairwise(found):
        assert fewer.step < more.step
        for a, b in zip(fewer.pipelines[0], more.pipelines[0], strict=True):
            assert a.backward < b.backward
            if kind is not Recompute.ATTENTION:  # fused attention holds no scores that could be spared
                assert a.memory.activations > b.memory.activations
    earlier, later = (
        (found[0].pipelines[0][s].memory.activations - found[6].pipelines[0][s].memory.activations) for s in (0, 3)
    )
    if kind is not Recompute.ATTENTION:  # the first stage has four microbatches in flight, the last one
        assert earlier == pytest.approx(4 * later, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.tuples(*(st.integers(0, 6) for _ in range(4))), st.sampled_from(KINDS), st.sampled_from(sorted(WAYS)))
def test_the_simulator_agrees_with_the_price(counts: tuple[int, ...], kind: Recompute, way: str) -> None:
    made, where = plan(Options(1, recompute=kind, **WAYS[way]), counts), hall()
    ready = prepare(JOB, made, where, compute=COMPUTE)
    assert isinstance(ready, Prepared)
    assert simulate([ready], where).seconds == pytest.approx(priced(made).step, rel=1e-9)


def test_engines_say_what_they_cannot_do() -> None:
    options = Options(1, recompute=Recompute.FULL)

    def refused(counts: Sequence[int | None], engine: Engine, kind: Recompute = Recompute.FULL) -> str | None:
        found = price_job(JOB, plan(replace(options, recompute=kind), counts), hall(), compute=COMPUTE, engine=engine)
        if isinstance(found, Infeasible):
            assert found.obstacle is Obstacle.ENGINE
        return found.reason if isinstance(found, Infeasible) else None

    assert refused((3, 2, 1, 0), HULK) is None
    assert refused((3, 3, 3, 3), MEGATRON) is None
    assert refused((None, 8, 8, 7), MEGATRON) is None  # eight, or all where there are fewer
    assert refused((3, 2, 1, 0), MEGATRON) == "megatron cannot do another number of recomputed blocks on each stage"
    some = 'cannot do "{} recomputed" in some blocks of a stage and not in others'
    assert refused((3,) * 4, MEGATRON, Recompute.ATTENTION) == "megatron " + some.format("attention")
    for engine in (TORCHTITAN, MEGATRON_DEEPSPEED):
        assert refused((3,) * 4, engine) == f"{engine.name} " + some.format("everything")
        assert refused((None,) * 4, engine) is None


def test_a_stage_computes_as_few_blocks_again_as_its_memory_allows() -> None:
    options = Options(2, recompute=Recompute.FULL)
    needs = [stage.memory.used for stage in priced(plan(options)).pipelines[0]]
    where = hall(1.25 * max(needs))
    (space,) = spaces_of(where, [JOB], compute=COMPUTE, engine=HULK)
    skeleton = skeleton_of(plan(options), where)
    found, seconds = space.plan(skeleton, rounds=0)
    without, longer = all_or_none(where).plan(skeleton, rounds=0)
    check_plan(Plan({"j": found}), where, [JOB])
    assert not without.counts_blocks and seconds < longer
    assert seconds == pytest.approx(searched(found, where), rel=1e-9)
    counts = [stage.recomputed for stage in found.pipelines[0].stages]
    assert None not in counts and counts[0] > counts[-1] == 0
    for at, stage in enumerate(found.pipelines[0].stages):
        if stage.recomputed:
            fewer = list(counts)
            fewer[at] -= 1
            stages = [replace(s, recomputed=n) for s, n in zip(found.pipelines[0].stages, fewer, strict=True)]
            trial = replace(found, pipelines=(replace(found.pipelines[0], stages=tuple(stages)), found.pipelines[1]))
            tight = price_job(JOB, trial, where, compute=COMPUTE)
            assert isinstance(tight, Infeasible) and tight.obstacle is Obstacle.MEMORY


def test_cuts_are_refined_by_what_is_computed_again() -> None:
    options = Options(2, recompute=Recompute.FULL)
    where = hall(1.25 * max(stage.memory.used for stage in priced(plan(options)).pipelines[0]))
    (space,) = spaces_of(where, [JOB], compute=COMPUTE, engine=HULK)
    skeleton = skeleton_of(plan(options), where)
    as_it_is, refined = space.plan(skeleton, rounds=0), space.plan(skeleton)
    assert refined[1] <= as_it_is[1] < all_or_none(where).plan(skeleton)[1]
    assert refined[1] == pytest.approx(searched(refined[0], where), rel=1e-9)


@pytest.mark.parametrize("way", ["interleaved", "zero bubble"])
def test_other_orders_have_numbers_too(way: str) -> None:
    options = Options(2, recompute=Recompute.FULL, **WAYS[way])

    def best_in(where: Cluster, engine: Engine, takes: Callable[[Skeleton], bool]) -> Uniform:
        (space,) = spaces_of(where, [JOB], compute=COMPUTE, engine=replace(engine, searched={}))
        found = best_uniform(space, range(len(where.machines)), Form(takes=takes))
        assert found is not None
        return found

    roomy = best_in(hall(), replace(HULK, counts=()), lambda skeleton: skeleton.options == options)
    where = hall(1.02 * max(stage.memory.used for stages in priced(roomy.plan).pipelines for stage in stages))
    best = best_in(where, HULK, lambda skeleton: skeleton == roomy.skeleton)
    check_plan(Plan({"j": best.plan}), where, [JOB])
    assert best.plan.counts_blocks
    assert best.seconds == pytest.approx(searched(best.plan, where), rel=1e-9)
    assert best.seconds < searched(best.plan.uncounted, where)


def test_megatron_gets_one_number_for_all_stages() -> None:
    options = Options(1, recompute=Recompute.FULL, sharding=Sharding.OPTIMIZER)
    where = hall(1.1 * max(stage.memory.used for stage in priced(plan(options), engine=MEGATRON).pipelines[0]))
    (space,) = spaces_of(where, [JOB], compute=COMPUTE, engine=MEGATRON)
    found, seconds = space.plan(skeleton_of(plan(options), where), rounds=0)
    assert found.counts_blocks
    priced(found, engine=MEGATRON, where=where)  # it can do that
    each, quicker = spaces_of(where, [JOB], compute=COMPUTE, engine=able(MEGATRON))[0].plan(
        skeleton_of(plan(options), where), rounds=0
    )
    assert each.counts_blocks and quicker < seconds


def test_a_plan_for_little_memory_computes_less_again_and_is_quicker() -> None:
    where, effort = hall(26 * GIB), Effort(evaluations=300, seed=1)
    job = replace(JOB, model=build_named_model("llama-3-8b", sequence=4096))
    found = plan_jobs(Request(where, (job,), COMPUTE), effort)
    without = plan_jobs(Request(where, (job,), COMPUTE, engine=replace(HULK, counts=())), effort)
    assert without.plan.jobs["j"].options.recompute is Recompute.FULL
    made = found.plan.jobs["j"]
    assert made.counts_blocks
    assert found.seconds["j"] < 0.95 * without.seconds["j"]
    price = found.price.jobs["j"]
    assert isinstance(price, JobPrice)
    assert "everything recomputed in some blocks" in options_words(made)
    lines = " ".join(pipeline_lines(made, price))
    assert "blocks recomputed" in lines or "nothing recomputed" in lines


def test_a_layout_says_how_many_blocks() -> None:
    wanted = parse_regular("tp1 pp4 recompute3")
    assert (wanted.options.recompute, wanted.recomputed) == (Recompute.FULL, 3)
    made = regular_plan(wanted, JOB, hall())
    assert {stage.recomputed for stage in made.stages} == {3}
    assert parse_regular("recompute-attention2").options.recompute is Recompute.ATTENTION
    with pytest.raises(InputError, match="unknown word 'recompute-none3'"):
        parse_regular("recompute-none3")
    with pytest.raises(InputError, match="'recompute3' says again"):
        parse_regular("recompute recompute3")
    with pytest.raises(InputError, match="recompute9, but a stage has 8 blocks"):
        regular_plan(parse_regular("pp4 recompute9"), JOB, hall())
    with pytest.raises(InputError, match="recompute5, but a chunk of a stage has 4 blocks"):
        regular_plan(parse_regular("pp4 vp2 recompute5"), JOB, hall())


def test_a_price_lists_the_numbers(tmp_path: Path) -> None:
    files = small.write_files(tmp_path)
    text = json.loads(Path(files[0]).read_text())
    stages = text["jobs"]["bert"]["pipelines"][0]["stages"]
    stages[0]["recomputed"] = 4
    Path(files[0]).write_text(json.dumps(text))
    done = hulk("price", *files)
    assert done.returncode == 0 and "0–11 (4 again)" in done.stdout and "12–25 (13 again)" in done.stdout
    told = hulk("explain", *files)
    assert told.returncode == 0, told.stderr
    assert "everything recomputed in some blocks" in " ".join(told.stdout.split())
    stages[0]["recomputed"] = 12
    Path(files[0]).write_text(json.dumps(text))
    wrong = hulk("price", *files)
    assert wrong.returncode == 2 and "`recomputed: 12`, but layers 0 to 11 have 11 blocks" in wrong.stderr
    assert "Traceback" not in wrong.stderr
