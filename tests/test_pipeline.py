"""The compiled recurrence against closed forms and against a longest path through a graph of events."""

from __future__ import annotations

from graphlib import TopologicalSorter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hulk.cost.pipeline import Passes, backward_position, forward_position, pass_at, run_pipeline
from hulk.domain.options import Schedule


def run(forward, backward, latency, send, back, warmup, microbatches, blocking=False):
    stages = len(forward)
    ends = np.zeros((stages, 2 * microbatches))
    passes = Passes(
        forward=np.array(forward, float),
        backward=np.array(backward, float),
        latency=np.array([*latency, 0.0], float),
        send_forward=np.array([*send, 0.0], float),
        send_backward=np.array([*back, 0.0], float),
        blocking=np.full(stages, blocking),
        warmup=np.array(warmup),
    )
    run_pipeline(passes, microbatches, ends)
    return ends


def warmups(schedule: str, stages: int, microbatches: int) -> list[int]:
    return [Schedule.parse(schedule).warmup(s, stages, microbatches) for s in range(stages)]


def longest_path(forward, backward, latency, send, back, warmup, microbatches) -> float:
    """The same pipeline as a graph: nodes are passes and transfers, edges say who waits for whom."""
    stages = len(forward)
    seconds: dict[tuple, float] = {}
    waits: dict[tuple, list[tuple]] = {}

    def add(node: tuple, duration: float, *before: tuple) -> None:
        seconds[node] = duration
        waits[node] = list(before)

    for s in range(stages):
        order = [pass_at(k, warmup[s], microbatches) for k in range(2 * microbatches)]
        for k, (is_forward, m) in enumerate(order):
            node = ("F" if is_forward else "B", s, m)
            before = [("F" if order[k - 1][0] else "B", s, order[k - 1][1])] if k else []
            if is_forward and s > 0:
                before.append(("land F", s - 1, m))
            if not is_forward and s + 1 < stages:
                before.append(("land B", s + 1, m))
            add(node, forward[s] if is_forward else backward[s], *before)
        for kind, wires, hop in (("F", send, s), ("B", back, s - 1)):
            if not 0 <= hop < stages - 1:
                continue
            sent = [m for is_forward, m in order if is_forward == (kind == "F")]
            for i, m in enumerate(sent):
                before = [(kind, s, m)] + ([(f"wire {kind}", s, sent[i - 1])] if i else [])
                add((f"wire {kind}", s, m), wires[hop], *before)
                add((f"land {kind}", s, m), latency[hop], (f"wire {kind}", s, m))
    end: dict[tuple, float] = {}
    for node in TopologicalSorter(waits).static_order():
        end[node] = max((end[b] for b in waits[node]), default=0.0) + seconds[node]
    return max(v for k, v in end.items() if k[0] in "FB")


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "1f1b+3"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 7), (4, 8), (8, 4), (3, 64)])
def test_equal_stages_without_transfers_have_the_textbook_time(schedule, stages, microbatches):
    nothing = [0.0] * (stages - 1)
    warmup = warmups(schedule, stages, microbatches)
    ends = run([1.0] * stages, [2.0] * stages, nothing, nothing, nothing, warmup, microbatches)
    assert ends.max() == pytest.approx((microbatches + stages - 1) * 3.0)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_recurrence_is_the_longest_path(data):
    stages = data.draw(st.integers(1, 6))
    microbatches = data.draw(st.integers(1, 24))
    schedule = data.draw(st.sampled_from(["gpipe", "1f1b", "1f1b+1", "1f1b+5"]))
    times = st.floats(0.01, 3.0)
    forward = data.draw(st.lists(times, min_size=stages, max_size=stages))
    backward = data.draw(st.lists(times, min_size=stages, max_size=stages))
    hops = st.lists(st.floats(0.0, 5.0), min_size=stages - 1, max_size=stages - 1)
    latency, send, back = data.draw(hops), data.draw(hops), data.draw(hops)
    warmup = warmups(schedule, stages, microbatches)
    got = run(forward, backward, latency, send, back, warmup, microbatches).max()
    assert got == pytest.approx(longest_path(forward, backward, latency, send, back, warmup, microbatches), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_blocking_is_never_faster_and_never_stuck(data):
    stages = data.draw(st.integers(2, 6))
    microbatches = data.draw(st.integers(1, 16))
    schedule = data.draw(st.sampled_from(["gpipe", "1f1b", "1f1b+2"]))
    wires = data.draw(st.lists(st.floats(0.0, 2.0), min_size=stages - 1, max_size=stages - 1))
    nothing = [0.0] * (stages - 1)
    warmup = warmups(schedule, stages, microbatches)
    forward, backward = [1.0] * stages, [2.0] * stages
    free = run(forward, backward, nothing, wires, wires, warmup, microbatches).max()
    blocked = run(forward, backward, nothing, wires, wires, warmup, microbatches, blocking=True).max()
    assert blocked >= free - 1e-9


def test_blocking_transfer_costs_both_ends():
    """Two stages, one microbatch: F0, send, F1, B1, send back, B0, one after the other."""
    ends = run([1.0, 1.0], [2.0, 2.0], [0.5], [0.25], [0.25], [1, 1], 1, blocking=True)
    assert ends.max() == pytest.approx(1 + 0.75 + 1 + 2 + 0.75 + 2)


def test_deeper_warmup_hides_latency():
    far = ([1.0] * 4, [2.0] * 4, [5.0] * 3, [0.1] * 3, [0.1] * 3)
    shallow = run(*far, warmups("1f1b", 4, 16), 16).max()
    deep = run(*far, warmups("1f1b+10", 4, 16), 16).max()
    assert deep < 0.7 * shallow


@given(st.integers(1, 40), st.integers(1, 40))
@settings(deadline=None)
def test_positions_are_the_inverse_of_the_order(warmup, microbatches):
    warmup = min(warmup, microbatches)
    for k in range(2 * microbatches):
        is_forward, m = pass_at(k, warmup, microbatches)
        there = forward_position(m, warmup) if is_forward else backward_position(m, warmup, microbatches)
        assert there == k
