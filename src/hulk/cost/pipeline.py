"""How long one pipeline takes: the schedule's own recurrence over stages and microbatches, compiled.

Every stage does its passes in a fixed order: `warmup` forwards, then one backward and one forward in turn, then the
backwards that are left. GPipe is warmup = microbatches; 1F1B is warmup = stages − stage; more warm-up hides long links.

A pass starts when the stage is free and its input is there. What moves between two neighbours:

- overlapped (the default): a transfer starts when its pass is done and the link is free in that direction; it holds the
  link for bytes / bandwidth and arrives one latency later. The stage goes on meanwhile.
- blocking (engines whose send and receive sit in the compute stream): a transfer starts when the sender has finished
  the pass and the receiver has finished the pass before; the two directions of one link take turns, and both ends
  wait.

The order of passes never depends on timing, so each pass is computed once, in an order found by sweeping the stages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Bools, Floats, Ints
from hulk.cost.compiled import inlined, inner, kernel


class Passes(NamedTuple):
    """One pipeline: the seconds of its passes and messages, and their order. What belongs to a link stands with the
    stage before it."""

    forward: Floats  # [stages] seconds of one microbatch's pass
    backward: Floats  # [stages]
    latency: Floats  # [stages − 1] seconds, one way, between a stage and the next
    send_forward: Floats  # [stages − 1] seconds a message holds the link (bytes / bandwidth), in each direction
    send_backward: Floats  # [stages − 1]
    blocking: Bools  # [stages − 1] whether messages there block both ends
    warmup: Ints  # [stages] forwards before the first backward


class _Run(NamedTuple):
    """How far a pipeline has come. Times are infinite while they are not known."""

    done: Ints  # [stages] passes
    free_forward: Floats  # [stages] when the link to the next stage is free again; a blocking link has but this one
    free_backward: Floats  # [stages] the same for messages from the next stage
    activation: Floats  # [stages, microbatches] when it is there
    gradient: Floats  # [stages, microbatches]
    ends: Floats  # [stages, 2 × microbatches] of passes


@inlined
def pass_at(position: int, warmup: int, microbatches: int) -> tuple[bool, int]:
    """(is it a forward?, which microbatch) of the pass at a position in a stage's order."""
    if position < warmup:
        return True, position
    steady = position - warmup
    pairs = microbatches - warmup
    if steady < 2 * pairs:
        if steady % 2 == 0:
            return False, steady // 2
        return True, warmup + steady // 2
    return False, position - microbatches


@inlined
def forward_position(microbatch: int, warmup: int) -> int:
    """Where a microbatch's forward stands in a stage's order."""
    if microbatch < warmup:
        return microbatch
    return 2 * microbatch - warmup + 1


@inlined
def backward_position(microbatch: int, warmup: int, microbatches: int) -> int:
    """Where a microbatch's backward stands in a stage's order."""
    if microbatch < microbatches - warmup:
        return warmup + 2 * microbatch
    return microbatches + microbatch


@kernel
def run_pipeline(passes: Passes, microbatches: int, ends: Floats) -> None:
    """Fill `ends[stage, position]` with the end of every pass, in seconds from the step's start."""
    stages = passes.forward.shape[0]
    free, there = np.zeros((2, stages)), np.full((2, stages, microbatches), np.inf)
    run = _Run(
        done=np.zeros(stages, np.int64),
        free_forward=free[0],
        free_backward=free[1],
        activation=there[0],
        gradient=there[1],
        ends=ends,
    )
    _do_all(passes, microbatches, run)


@inner
def _do_all(passes: Passes, microbatches: int, run: _Run) -> None:
    """Every stage in turn does passes until one has to wait for another stage, again and again until all are done."""
    stages = passes.forward.shape[0]
    left = 2 * stages * microbatches
    while left > 0:
        before = left
        for s in range(stages):
            is_blocked = (s + 1 < stages and passes.blocking[s]) or (s > 0 and passes.blocking[s - 1])
            position = run.done[s]
            end = run.ends[s, position - 1] if position > 0 else 0.0
            while position < 2 * microbatches:
                is_forward, m = pass_at(position, passes.warmup[s], microbatches)
                start = end
                if is_blocked and position > 0:
                    # A blocking send of the pass before must have been taken by its receiver.
                    was_forward, last = pass_at(position - 1, passes.warmup[s], microbatches)
                    if was_forward and s + 1 < stages and passes.blocking[s]:
                        start = max(start, _arrival(passes, microbatches, run, s, s + 1, last))
                    elif not was_forward and s > 0 and passes.blocking[s - 1]:
                        start = max(start, _arrival(passes, microbatches, run, s, s - 1, last))
                    if start == np.inf:
                        break
                if is_forward:
                    if s > 0:
                        arrived = run.activation[s, m]
                        if arrived == np.inf and passes.blocking[s - 1]:
                            arrived = _arrival(passes, microbatches, run, s - 1, s, m)
                        if arrived == np.inf:
                            break
                        start = max(start, arrived)
                    end = start + passes.forward[s]
                    if s + 1 < stages and not passes.blocking[s]:
                        run.free_forward[s] = max(end, run.free_forward[s]) + passes.send_forward[s]
                        run.activation[s + 1, m] = run.free_forward[s] + passes.latency[s]
                else:
                    if s + 1 < stages:
                        arrived = run.gradient[s, m]
                        if arrived == np.inf and passes.blocking[s]:
                            arrived = _arrival(passes, microbatches, run, s + 1, s, m)
                        if arrived == np.inf:
                            break
                        start = max(start, arrived)
                    end = start + passes.backward[s]
                    if s > 0 and not passes.blocking[s - 1]:
                        run.free_backward[s - 1] = max(end, run.free_backward[s - 1]) + passes.send_backward[s - 1]
                        run.gradient[s - 1, m] = run.free_backward[s - 1] + passes.latency[s - 1]
                run.ends[s, position] = end
                position += 1
                run.done[s] = position
                left -= 1
        if left == before:
            raise RuntimeError("the schedule cannot go on")  # cannot happen: orders are consistent between stages


@inner
def _arrival(passes: Passes, microbatches: int, run: _Run, s: int, to: int, m: int) -> float:
    """When microbatch m's activation, or gradient, from stage s arrives at its neighbour over a blocking link; infinite
    while one of the two is not there yet."""
    is_forward, link = s < to, min(s, to)
    known: float = run.activation[to, m] if is_forward else run.gradient[to, m]
    if known < np.inf:
        return known
    if is_forward:
        sender, receiver = forward_position(m, passes.warmup[s]), forward_position(m, passes.warmup[to]) - 1
    else:
        sender = backward_position(m, passes.warmup[s], microbatches)
        receiver = backward_position(m, passes.warmup[to], microbatches) - 1
    if run.done[s] <= sender or run.done[to] <= receiver:
        return np.inf
    start = max(run.ends[s, sender], run.free_forward[link])
    if receiver >= 0:
        start = max(start, run.ends[to, receiver])
    seconds = passes.send_forward[link] if is_forward else passes.send_backward[link]
    arrived: float = start + passes.latency[link] + seconds
    run.free_forward[link] = arrived
    if is_forward:
        run.activation[to, m] = arrived
    else:
        run.gradient[to, m] = arrived
    return arrived
