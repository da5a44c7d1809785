"""Interleaved stages and backward in two passes: their orders against torch's own, their times against closed forms and
a longest path, their memory by hand, and what is refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from graphlib import TopologicalSorter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import FixedTimes, cluster, job, layer
from hulk.cost.engine import ENGINES, HULK, Engine
from hulk.cost.orders import BACKWARD, FORWARD, WEIGHTS, order_of, run_orders
from hulk.cost.pipeline import Passes
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible, JobPrice, Obstacle
from hulk.domain.check import check_plan
from hulk.domain.model import LayerKind
from hulk.domain.options import Options, Schedule
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.errors import PlanError

PLAIN = Engine(name="plain", reserve=0.0)


def warmups(schedule: str, slots: int, microbatches: int, chunks: int) -> list[int]:
    return [Schedule.parse(schedule).warmup(s, slots, microbatches, chunks) for s in range(slots)]


def orders(schedule: str, slots: int, microbatches: int, chunks: int) -> list[list[tuple[int, int, int]]]:
    """The passes of each slot: kind, stage, microbatch."""
    made = Schedule.parse(schedule)
    split, group = made.splits_backward, made.group(slots, microbatches)
    return [
        [tuple(row) for row in order_of(s, slots, chunks, microbatches, warmup, group, split).tolist()]
        for s, warmup in enumerate(warmups(schedule, slots, microbatches, chunks))
    ]


def run(schedule: str, slots: int, microbatches: int, chunks: int, seconds: Passes, weights: list[float]) -> float:
    """Seconds until all gradients are made."""
    ends = np.zeros(slots * chunks)
    made = Schedule.parse(schedule)
    warmup = np.array(warmups(schedule, slots, microbatches, chunks) * chunks)
    group = made.group(slots, microbatches)
    run_orders(
        seconds._replace(warmup=warmup), np.array(weights), slots, microbatches, group, made.splits_backward, ends
    )
    return float(ends.max())


def even(stages: int, forward: float = 1.0, backward: float = 2.0) -> Passes:
    """Stages that take as long as each other, and messages that take no time."""
    nothing = np.zeros(stages)
    ones = np.ones(stages)
    return Passes(forward * ones, backward * ones, nothing, nothing, nothing, nothing > 0, nothing.astype(int))


@pytest.mark.parametrize(("slots", "chunks", "microbatches"), [(2, 2, 2), (2, 3, 8), (4, 2, 8), (3, 5, 6), (4, 2, 64)])
@pytest.mark.parametrize("schedule", ["1f1b", "zb"])
def test_orders_are_those_of_torch(schedule: str, slots: int, chunks: int, microbatches: int) -> None:
    pytest.importorskip("torch")
    from torch.distributed.pipelining import schedules

    kind = {"1f1b": schedules.ScheduleInterleaved1F1B, "zb": schedules.ScheduleInterleavedZeroBubble}[schedule]
    rounds = microbatches // slots
    made = SimpleNamespace(
        n_local_stages=chunks, pp_group_size=slots, number_of_rounds=rounds, _n_microbatches=microbatches,
        microbatches_per_round=microbatches // rounds,
    )  # fmt: skip
    letters = {FORWARD: "F", BACKWARD: "I" if schedule == "zb" else "B", WEIGHTS: "W"}
    for s, ours in enumerate(orders(schedule, slots, microbatches, chunks)):
        theirs = [str(action) for action in kind._calculate_single_rank_operations(made, s) if action is not None]
        assert [f"{stage}{letters[kind]}{m}" for kind, stage, m in ours] == theirs


@pytest.mark.parametrize(("slots", "chunks", "microbatches"), [(2, 2, 4), (4, 2, 8), (4, 5, 16), (8, 3, 64)])
def test_interleaving_divides_the_bubble_by_the_chunks(slots: int, chunks: int, microbatches: int) -> None:
    """Narayanan et al., SC21, section 2.2.2: (S − 1) (F + B) / chunks, of a stage's whole passes."""
    took = run("1f1b", slots, microbatches, chunks, even(slots * chunks), [0.0] * slots * chunks)
    assert took == pytest.approx(3.0 * (microbatches * chunks + slots - 1))


@pytest.mark.parametrize(("slots", "microbatches"), [(2, 4), (4, 8), (8, 16)])
@pytest.mark.parametrize(("forward", "back", "weights"), [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8)])
def test_splitting_backward_leaves_the_bubble_of_the_paper(
    slots: int, microbatches: int, forward: float, back: float, weights: float
) -> None:
    """Qi et al., 2023, table 2: ZB-H1 has a bubble of (S − 1) (F + B − W)."""
    took = run("zb", slots, microbatches, 1, even(slots, forward, back), [weights] * slots)
    assert took == pytest.approx(microbatches * (forward + back + weights) + (slots - 1) * (forward + back - weights))


def test_deeper_warmup_hides_latency() -> None:
    for schedule, chunks in (("1f1b", 2), ("zb", 1), ("zb", 2)):
        far = even(4 * chunks)._replace(latency=np.full(4 * chunks, 5.0))
        deep = run(f"{schedule}+20", 4, 32, chunks, far, [1.0] * 4 * chunks)
        assert deep < 0.8 * run(schedule, 4, 32, chunks, far, [1.0] * 4 * chunks)


def longest_path(schedule: str, slots: int, microbatches: int, chunks: int, times: Passes, weights: list[float]):
    """The same as a graph: nodes are passes and messages, edges say who waits for whom."""
    stages = slots * chunks
    seconds: dict[tuple, float] = {}
    waits: dict[tuple, list[tuple]] = {}
    for s, order in enumerate(orders(schedule, slots, microbatches, chunks)):
        before: list[tuple] = []
        last_on_way: dict[int, tuple] = {}
        for kind, n, m in order:
            node = (kind, n, m)
            seconds[node] = {FORWARD: times.forward, BACKWARD: times.backward, WEIGHTS: weights}[kind][n]
            waits[node] = list(before)
            if kind == FORWARD and n > 0:
                waits[node].append(("land", FORWARD, n - 1, m))
            if kind == BACKWARD and n + 1 < stages:
                waits[node].append(("land", BACKWARD, n + 1, m))
            if kind != FORWARD:
                waits[node].append((kind - 1, n, m))
            before = [node]
            to, link = (n + 1, n) if kind == FORWARD else (n - 1, n - 1)
            if kind == WEIGHTS or not 0 <= to < stages:
                continue
            wire = ("wire", *node)
            seconds[wire] = (times.send_forward if kind == FORWARD else times.send_backward)[link]
            waits[wire] = [node, *([last_on_way[to % slots]] if to % slots in last_on_way else [])]
            last_on_way[to % slots] = wire
            seconds["land", *node] = times.latency[link]
            waits["land", *node] = [wire]
        assert {n % slots for _, n, _ in order} == {s}
    end: dict[tuple, float] = {}
    for node in TopologicalSorter(waits).static_order():
        end[node] = max((end[each] for each in waits[node]), default=0.0) + seconds[node]
    return max(value for node, value in end.items() if node[0] in (FORWARD, BACKWARD, WEIGHTS))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_recurrence_is_the_longest_path(data: st.DataObject) -> None:
    slots, chunks = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 3))
    microbatches = slots * data.draw(st.integers(1, 4))
    schedule = data.draw(st.sampled_from(["gpipe", "1f1b", "1f1b+3", "zb", "zb+2"] if chunks > 1 else ["zb", "zb+3"]))
    stages = slots * chunks

    def draw(most: float) -> np.ndarray:
        return np.array(data.draw(st.lists(st.floats(0.01, most), min_size=stages, max_size=stages)))

    times = Passes(draw(3.0), draw(3.0), draw(5.0), draw(5.0), draw(5.0), np.zeros(stages, bool), np.zeros(stages, int))
    weights = draw(3.0).tolist()
    found = run(schedule, slots, microbatches, chunks, times, weights)
    assert found == pytest.approx(longest_path(schedule, slots, microbatches, chunks, times, weights), rel=1e-9)


# --- Plans -----------------------------------------------------------------------------------------------------------


def made(
    slots: int, chunks: int, microbatches: int, *, schedule: str = "1f1b", replicas: int = 1, **options: object
) -> JobPlan:
    """A layer a stage."""
    count = slots * chunks
    pipelines = tuple(
        Pipeline(tuple(Stage(f"m{r * slots + k % slots}", (0,), k, k) for k in range(count)), microbatches)
        for r in range(replicas)
    )
    return JobPlan(pipelines, Options(1, schedule=Schedule.parse(schedule), chunks=chunks, **options))


def price(plan: JobPlan, engine: Engine = PLAIN, **changes: object) -> JobPrice:
    names = [f"m{i}" for i in range(8)]
    count = len(plan.pipelines[0].stages)
    the_job = job(count, global_batch=sum(pipeline.microbatches for pipeline in plan.pipelines), **changes)
    toys = cluster(dict.fromkeys(names, "r"))
    check_plan(Plan({"toy": plan}), toys, [the_job])
    found = price_job(the_job, plan, toys, compute=FixedTimes(), engine=engine)
    assert isinstance(found, JobPrice), found
    return found


def test_gpus_hold_the_activations_of_all_their_chunks() -> None:
    """A layer keeps 4,000 bytes of a microbatch, and what it sends on, 4,000 more, until the gradient comes back."""
    plain = [stage.memory.activations for stage in price(made(4, 1, 8)).pipelines[0]]
    assert plain == [4 * 8000, 3 * 8000, 2 * 8000, 4000]
    interleaved = [stage.memory.activations for stage in price(made(4, 2, 8)).pipelines[0]]
    assert interleaved == [11 * 8000, 9 * 8000, 7 * 8000, 5 * 8000] * 2  # the last holds (S − 1) chunks before its own
    split = [stage.memory.activations for stage in price(made(4, 1, 8, schedule="zb")).pipelines[0]]
    assert split == [4 * 8000, 4 * 8000, 4 * 8000, 4 * 4000]  # as many everywhere: what 1F1B has on the first stage


def test_gpus_hold_and_update_the_weights_of_all_their_chunks() -> None:
    one, two = price(made(2, 1, 4)), price(made(2, 2, 4))
    for stage in two.pipelines[0]:
        assert stage.memory.weights == 2 * one.pipelines[0][0].memory.weights
        assert stage.busy == pytest.approx(2 * 3.0 * 4 / two.step)
    assert two.money.gpus == pytest.approx(2 * one.money.gpus / one.step * two.step / 2)  # GPUs are paid for once


def test_chunks_that_do_not_fit_are_infeasible() -> None:
    small = cluster({"m0": "r", "m1": "r"})
    small = replace(small, machines=tuple(replace(machine, memory=50e6) for machine in small.machines))
    plan = made(2, 2, 4)
    found = price_job(job(4, global_batch=4), plan, small, compute=FixedTimes(), engine=PLAIN)
    assert isinstance(found, JobPrice)
    tight = replace(small, machines=tuple(replace(machine, memory=31e6) for machine in small.machines))
    found = price_job(job(4, global_batch=4), plan, tight, compute=FixedTimes(), engine=PLAIN)
    assert isinstance(found, Infeasible)
    assert found.obstacle is Obstacle.MEMORY


def test_embeddings_make_gradients_of_weights_alone() -> None:
    assert layer(kind=LayerKind.EMBEDDING).weights_share == 1.0
    assert layer().weights_share == 0.5


@pytest.mark.parametrize(
    ("engine", "schedule", "chunks", "refused"),
    [
        ("hulk", "zb", 2, None),
        ("torchtitan", "zb", 2, None),
        ("megatron", "1f1b", 2, None),
        ("megatron", "zb", 2, 'megatron cannot do "zb"'),
        ("megatron-deepspeed", "1f1b", 1, None),
        ("megatron-deepspeed", "zb", 1, 'megatron-deepspeed cannot do "zb"'),
        ("megatron-deepspeed", "1f1b", 2, 'megatron-deepspeed cannot do "interleaved, 2 chunks a stage"'),
    ],
)
def test_engines_say_what_they_have(engine: str, schedule: str, chunks: int, refused: str | None) -> None:
    plan = made(2, chunks, 4, schedule=schedule)
    toys = cluster({"m0": "r", "m1": "r"})
    found = price_job(job(4, global_batch=4), plan, toys, compute=FixedTimes(), engine=ENGINES[engine])
    if refused is None:
        assert isinstance(found, JobPrice), found
    else:
        assert isinstance(found, Infeasible)
        assert (found.obstacle, found.reason) == (Obstacle.ENGINE, refused)


def test_messages_beside_passes_never_block() -> None:
    waits = replace(PLAIN, blocking_above=0.0)
    assert price(made(2, 2, 4), waits).step == price(made(2, 2, 4)).step
    assert price(made(2, 1, 4), waits).step > price(made(2, 1, 4)).step


def wrong(plan: JobPlan) -> str:
    count = plan.pipelines[0].stages[-1].last + 1
    batch = sum(pipeline.microbatches for pipeline in plan.pipelines)
    with pytest.raises(PlanError) as caught:
        check_plan(Plan({"toy": plan}), cluster({f"m{i}": "r" for i in range(8)}), [job(count, global_batch=batch)])
    return str(caught.value)


def test_what_does_not_go_round_is_refused() -> None:
    assert "3 at a time, and 4 are no multiple" in wrong(made(3, 2, 4))
    assert "nothing to interleave" in wrong(made(1, 2, 4))
    assert "4 stages cannot go round 3 times" in wrong(replace(made(2, 2, 4), options=Options(1, chunks=3)))
    assert "0 chunks" in wrong(replace(made(2, 1, 4), options=Options(1, chunks=0)))
    crossed = made(2, 2, 4)
    stages = list(crossed.pipelines[0].stages)
    stages[2], stages[3] = replace(stages[2], machine="m1"), replace(stages[3], machine="m0")
    crossed = replace(crossed, pipelines=(Pipeline(tuple(stages), 4),))
    assert "must be on the GPUs of stage 1, 0 of 'm0', not on 0 of 'm1'" in wrong(crossed)
    assert "is used twice" in wrong(replace(made(2, 2, 4), options=Options(1)))


def test_every_pass_is_done_once() -> None:
    for schedule in ("gpipe", "1f1b+100", "1f1b+1", "zb+100", "zb", "zb+2"):
        counted: Counter[tuple[int, int]] = Counter()
        kinds = defaultdict(set)
        for order in orders(schedule, 3, 6, 2):
            counted.update((kind, stage) for kind, stage, _ in order)
            for kind, stage, m in order:
                kinds[kind, stage].add(m)
                assert kind == FORWARD or m in kinds[kind - 1, stage], "a pass needs the one before"
        assert set(counted.values()) == {6}
        assert all(found == set(range(6)) for found in kinds.values())
    assert HULK.tried["chunks"] == (1,)
