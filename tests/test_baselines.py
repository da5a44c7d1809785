from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from factories import FixedTimes, cluster, job, layer
from generator import irregular
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK, Engine
from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.domain.check import check_plan
from hulk.domain.cluster import BLOCKED, Cluster, Link, Machine
from hulk.domain.job import Job
from hulk.domain.model import Layer, LayerKind, Model
from hulk.domain.options import ScheduleKind
from hulk.domain.plan import JobPlan
from hulk.errors import InputError
from hulk.io.profiles import bundled_profiles
from hulk.search.baselines import BASELINES, BaselineResult, Registry
from hulk.search.baselines.evolution import evolution

NAMES = [entry.name for entry in BASELINES.entries()]
IN_TURN = {"A", "B", "B-tour", "C", "alone"}
SEEDS = (3, 11)
FREE = Engine(name="free", offers=HULK.tried, reserve=0.0)


@cache
def compute() -> ComputeModel:
    return ComputeModel(bundled_profiles())


@cache
def answered(name: str, seed: int) -> BaselineResult:
    drawn, jobs = irregular(seed)
    return BASELINES.get(name).run(drawn, jobs, compute=compute(), engine=HULK, seed=7, time_limit=60.0)


def run(name: str, drawn: Cluster, *jobs: Job, engine: Engine = FREE) -> BaselineResult:
    times = FixedTimes(forward=0.01, backward=0.02)
    return BASELINES.get(name).run(drawn, jobs, compute=times, engine=engine, seed=0, time_limit=30.0)  # type: ignore[arg-type]


def with_memory(drawn: Cluster, memory: Mapping[str, float]) -> Cluster:
    def sized(machine: Machine) -> Machine:
        return replace(machine, memory=memory.get(machine.name, machine.memory))

    return replace(drawn, machines=tuple(sized(machine) for machine in drawn.machines))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
class TestEveryBaseline:
    def test_answers_for_every_job(self, name: str, seed: int) -> None:
        _, jobs = irregular(seed)
        result = answered(name, seed)
        assert result.name == name
        assert set(result.placed) | set(result.waiting) == {entry.name for entry in jobs}
        assert not set(result.placed) & set(result.waiting)
        assert all(result.waiting.values())
        assert result.concurrent is (name not in IN_TURN)

    def test_plans_are_valid(self, name: str, seed: int) -> None:
        drawn, jobs = irregular(seed)
        for plan in answered(name, seed).plans(drawn):
            check_plan(plan, drawn, jobs)

    def test_seconds_are_those_of_the_price(self, name: str, seed: int) -> None:
        drawn, jobs = irregular(seed)
        result = answered(name, seed)
        for entry in jobs:
            placement = result.placed.get(entry.name)
            if placement is None or placement.plan is None:
                continue
            price = price_job(entry, placement.plan, drawn, compute=compute(), engine=HULK)
            assert isinstance(price, JobPrice)
            assert placement.seconds == pytest.approx(price.step, rel=1e-9)
            assert placement.communication + placement.computation == pytest.approx(price.step, rel=1e-9)

    def test_total(self, name: str, seed: int) -> None:
        result = answered(name, seed)
        seconds = [placement.seconds for placement in result.placed.values()]
        if result.waiting:
            assert result.total is None
        else:
            assert result.total == (max(seconds) if result.concurrent else sum(seconds))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_result(name: str) -> None:
    drawn, jobs = irregular(3)
    again = BASELINES.get(name).run(drawn, jobs, compute=compute(), engine=HULK, seed=7, time_limit=60.0)
    assert again == answered(name, 3)


@pytest.mark.parametrize("name", ["greedy", "metis", "evolution"])
@pytest.mark.parametrize("seed", SEEDS)
def test_groups_leave_no_job_waiting_that_others_place(name: str, seed: int) -> None:
    if not answered("alone", seed).waiting:
        assert not answered(name, seed).waiting


@pytest.mark.parametrize("name", NAMES)
def test_a_job_with_no_allowed_machine_waits_and_the_others_train(name: str) -> None:
    here, nowhere = job(), replace(job(), name="nowhere", allow=("mars",))
    result = run(name, cluster({"a": "x", "b": "x", "c": "y"}), here, nowhere)
    assert "may run" in result.waiting["nowhere"]
    assert set(result.placed) == {"toy"}


@pytest.mark.parametrize("name", NAMES)
def test_a_job_too_large_for_all_machines_waits_with_the_sizes(name: str) -> None:
    big = Job("big", Model("big", "decoder", 10, (layer(params=10**13),)), global_batch=8)
    result = run(name, cluster({"a": "x", "b": "x"}), big)
    assert "TiB" in result.waiting["big"]
    assert result.total is None


def used(plan: JobPlan) -> set[str]:
    return {stage.machine for pipeline in plan.pipelines for stage in pipeline.stages}


def without(drawn: Cluster, *names: str) -> Cluster:
    return replace(drawn, machines=tuple(machine for machine in drawn.machines if machine.name not in names))


def block() -> Layer:
    """A layer that tensor parallel adds up: without such a one, system C sends nothing."""
    return replace(layer(kind=LayerKind.BLOCK), reductions=1)


@pytest.mark.parametrize("name", NAMES)
class TestEveryBaselineKeepsThePlannersPromises:
    @pytest.mark.parametrize("where", [{"allow": ("eu-*",)}, {"allow": ("*",), "deny": ("us-?",)}])
    def test_regions(self, name: str, where: dict[str, tuple[str, ...]]) -> None:
        drawn = cluster({"a": "eu-1", "b": "us-1", "c": "eu-2", "d": "us-2"}, gpus=2)
        bound = replace(job(), **where)  # type: ignore[arg-type]
        placed = run(name, drawn, bound).placed["toy"]
        if placed.plan is None:  # no plan to look into: the others might as well not be there
            assert placed == run(name, without(drawn, "b", "d"), bound).placed["toy"]
        else:
            assert used(placed.plan) <= {"a", "c"}

    def test_blocked_links(self, name: str) -> None:
        drawn = cluster({"a": "x", "b": "y"}, {("x", "y"): BLOCKED}, gpus=1)
        result = run(name, drawn, job(the_model=Model("four", "decoder", 10, (block(),) * 4)))
        if name in {"B", "B-tour", "C"}:  # all machines or none
            assert "blocked" in result.waiting["toy"]
        else:
            plan = result.placed["toy"].plan
            assert plan is not None
            assert len(used(plan)) == 1

    def test_memory(self, name: str) -> None:
        drawn = with_memory(cluster({"a": "x", "b": "x", "c": "x"}, gpus=1), {"b": 1e6})
        placed = run(name, drawn, job(6)).placed["toy"]
        if placed.plan is None:
            assert placed == run(name, without(drawn, "b"), job(6)).placed["toy"]
            return
        assert "b" not in used(placed.plan)
        price = price_job(job(6), placed.plan, drawn, compute=FixedTimes(), engine=FREE)  # type: ignore[arg-type]
        assert isinstance(price, JobPrice)
        assert all(stage.memory.used <= stage.memory.capacity for stages in price.pipelines for stage in stages)


class TestDataParallel:
    def test_machines_that_cannot_hold_the_model_are_dropped(self) -> None:
        drawn = with_memory(cluster({"a": "x", "b": "x", "c": "x"}, gpus=1), {"b": 1e6})
        result = run("A", drawn, job())
        plan = result.placed["toy"].plan
        assert plan is not None
        assert {pipeline.stages[0].machine for pipeline in plan.pipelines} == {"a", "c"}
        assert all(len(pipeline.stages) == 1 for pipeline in plan.pipelines)
        assert result.notes["toy"] == "1 of 3 machines are dropped"

    def test_a_model_that_no_machine_holds_waits(self) -> None:
        drawn = cluster(dict.fromkeys("abcd", "x"), gpus=1)
        large = Job(
            "large", Model("large", "decoder", 10, tuple(layer(params=10**8) for _ in range(12))), global_batch=8
        )
        assert run("A", drawn, large).waiting["large"] == "no machine can hold the whole model"

    def test_replicas_all_reach_each_other(self) -> None:
        drawn = cluster({"a": "x", "b": "y", "c": "z"}, {("x", "z"): BLOCKED}, gpus=1)
        plan = run("A", drawn, job()).placed["toy"].plan
        assert plan is not None
        used = {pipeline.stages[0].machine for pipeline in plan.pipelines}
        assert used in ({"a", "b"}, {"b", "c"})


class TestGpipe:
    def test_one_pipeline_in_file_order(self) -> None:
        plan = run("B", cluster({"a": "x", "b": "y", "c": "x"}, gpus=1), job(6)).placed["toy"].plan
        assert plan is not None
        assert plan.options.schedule.kind is ScheduleKind.GPIPE
        assert [[stage.machine for stage in pipeline.stages] for pipeline in plan.pipelines] == [["a", "b", "c"]]

    def test_the_tour_visits_near_machines_together(self) -> None:
        far = Link(latency=0.2, bandwidth=1e9)
        drawn = cluster({"a": "x", "b": "y", "c": "x"}, {("x", "y"): far}, gpus=1)
        plan = run("B-tour", drawn, job(6)).placed["toy"].plan
        assert plan is not None
        order = [stage.machine for stage in plan.pipelines[0].stages]
        assert order in (["a", "c", "b"], ["c", "a", "b"], ["b", "a", "c"], ["b", "c", "a"])

    def test_a_blocked_neighbour_is_named_and_the_tour_avoids_it(self) -> None:
        drawn = cluster({"a": "x", "b": "y", "c": "z"}, {("x", "y"): BLOCKED})
        assert "a and b is blocked" in run("B", drawn, job()).waiting["toy"]
        assert "toy" in run("B-tour", drawn, job()).placed

    def test_no_more_machines_than_layers(self) -> None:
        plan = run("B", cluster(dict.fromkeys("abcdef", "x")), job(4)).placed["toy"].plan
        assert plan is not None
        assert len({stage.machine for stage in plan.pipelines[0].stages}) == 4


class TestTensorParallel:
    def test_the_formula_on_round_numbers(self) -> None:
        """2 machines of 1 GPU; 1 layer with 1 all-reduce of 10 × 8 × 4 B a pass; every link 1 s and 320 B/s."""
        block = replace(layer(output=10.0, params=0, kind=LayerKind.BLOCK), reductions=1)
        slow = Link(latency=1.0, bandwidth=320.0)
        the_job = job(the_model=Model("one", "decoder", 10, (block,)), global_batch=8)
        result = run("C", cluster({"a": "x", "b": "y"}, default=slow, gpus=1), the_job)
        placement = result.placed["toy"]
        # One microbatch of 8: 0.03 s on one GPU, half on two. Ring of 2: 2 (2 − 1) rounds of 160 B: 2 (1 + 0.5) = 3 s,
        # once forward and once backward.
        assert placement.plan is None
        assert placement.computation == pytest.approx(0.015)
        assert placement.communication == pytest.approx(6.0)

    def test_no_ring_where_links_are_blocked(self) -> None:
        block = replace(layer(output=10.0), reductions=1)
        drawn = cluster({"a": "x", "b": "y"}, {("x", "y"): BLOCKED})
        assert "ring" in run("C", drawn, job(the_model=Model("one", "decoder", 10, (block,)))).waiting["toy"]


def test_more_evaluations_are_not_worse() -> None:
    drawn, jobs = irregular(11)
    few, many = (
        evolution(drawn, jobs, compute=compute(), engine=HULK, seed=1, time_limit=60.0, evaluations=count)
        for count in (100, 2000)
    )
    assert not many.waiting
    cost = [sum(placement.seconds for placement in result.placed.values()) for result in (few, many)]
    assert few.waiting or cost[1] <= cost[0] * 1.001


def test_the_registry_refuses_duplicates_and_suggests_names() -> None:
    registry = Registry()
    registry.add("one", "", BASELINES.get("A").run)
    with pytest.raises(ValueError, match="already"):
        registry.add("one", "", BASELINES.get("A").run)
    with pytest.raises(InputError, match="metis"):
        BASELINES.get("metiss")
