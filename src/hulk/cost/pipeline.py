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

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inlined, inner, kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
def run_pipeline(
    forward: Floats,
    backward: Floats,
    latency: Floats,
    serial_forward: Floats,
    serial_backward: Floats,
    blocking: NDArray[np.bool_],
    warmup: Ints,
    microbatches: int,
    ends: Floats,
) -> None:
    """Fill `ends[stage, position]` with the end of every pass, in seconds from the step's start.

    forward, backward       [stages]      seconds of one microbatch's pass
    latency                 [stages − 1]  seconds, one way, between a stage and the next
    serial_forward, _backward [stages − 1] seconds a transfer holds the link (bytes / bandwidth) in each direction
    blocking                [stages − 1]  whether transfers there block both ends
    warmup                  [stages]      forwards before the first backward
    ends                    [stages, 2 × microbatches]
    """
    stages = forward.shape[0]
    passes = 2 * microbatches
    done = np.zeros(stages, np.int64)
    # When the link to the next stage is free again: forward and backward direction (blocking links use the first).
    free_forward = np.zeros(stages)
    free_backward = np.zeros(stages)
    # Arrival of each microbatch's activation at, and gradient at, a stage; < 0: not yet known.
    arrival_forward = np.full((stages, microbatches), -1.0)
    arrival_backward = np.full((stages, microbatches), -1.0)
    left = stages * passes
    while left > 0:
        before = left
        for s in range(stages):
            while done[s] < passes:
                position = done[s]
                is_forward, m = pass_at(position, warmup[s], microbatches)
                start = ends[s, position - 1] if position > 0 else 0.0
                # A blocking send of the pass before must have been taken by its receiver.
                if position > 0:
                    was_forward, last = pass_at(position - 1, warmup[s], microbatches)
                    if was_forward and s + 1 < stages and blocking[s]:
                        sent = _resolve_forward(
                            s, last, done, ends, warmup, latency, serial_forward, free_forward, arrival_forward
                        )
                        if sent < 0:
                            break
                        start = max(start, sent)
                    elif not was_forward and s > 0 and blocking[s - 1]:
                        sent = _resolve_backward(
                            s,
                            last,
                            microbatches,
                            done,
                            ends,
                            warmup,
                            latency,
                            serial_backward,
                            free_forward,
                            arrival_backward,
                        )
                        if sent < 0:
                            break
                        start = max(start, sent)
                if is_forward:
                    if s > 0:
                        arrived = arrival_forward[s, m]
                        if arrived < 0 and blocking[s - 1]:
                            arrived = _resolve_forward(
                                s - 1, m, done, ends, warmup, latency, serial_forward, free_forward, arrival_forward
                            )
                        if arrived < 0:
                            break
                        start = max(start, arrived)
                    end = start + forward[s]
                    if s + 1 < stages and not blocking[s]:
                        sent_at = max(end, free_forward[s])
                        free_forward[s] = sent_at + serial_forward[s]
                        arrival_forward[s + 1, m] = free_forward[s] + latency[s]
                else:
                    if s + 1 < stages:
                        arrived = arrival_backward[s, m]
                        if arrived < 0 and blocking[s]:
                            arrived = _resolve_backward(
                                s + 1,
                                m,
                                microbatches,
                                done,
                                ends,
                                warmup,
                                latency,
                                serial_backward,
                                free_forward,
                                arrival_backward,
                            )
                        if arrived < 0:
                            break
                        start = max(start, arrived)
                    end = start + backward[s]
                    if s > 0 and not blocking[s - 1]:
                        sent_at = max(end, free_backward[s - 1])
                        free_backward[s - 1] = sent_at + serial_backward[s - 1]
                        arrival_backward[s - 1, m] = free_backward[s - 1] + latency[s - 1]
                ends[s, position] = end
                done[s] += 1
                left -= 1
        if left == before:
            raise RuntimeError("the schedule cannot go on")  # cannot happen: orders are consistent between stages


@inner
def _resolve_forward(
    s: int,
    m: int,
    done: Ints,
    ends: Floats,
    warmup: Ints,
    latency: Floats,
    serial: Floats,
    free: Floats,
    arrival: Floats,
) -> float:
    """Arrival at stage s + 1 of microbatch m's activation over a blocking link; −1 while one end is not there yet."""
    known: float = arrival[s + 1, m]
    if known >= 0:
        return known
    sender = forward_position(m, warmup[s])
    receiver = forward_position(m, warmup[s + 1]) - 1
    if done[s] <= sender or done[s + 1] <= receiver:
        return -1.0
    ready = ends[s, sender]
    if receiver >= 0:
        ready = max(ready, ends[s + 1, receiver])
    start = max(ready, free[s])
    arrived: float = start + latency[s] + serial[s]
    free[s] = arrived
    arrival[s + 1, m] = arrived
    return arrived


@inner
def _resolve_backward(
    s: int,
    m: int,
    microbatches: int,
    done: Ints,
    ends: Floats,
    warmup: Ints,
    latency: Floats,
    serial: Floats,
    free: Floats,
    arrival: Floats,
) -> float:
    """Arrival at stage s − 1 of microbatch m's gradient over a blocking link; −1 while one end is not there yet."""
    known: float = arrival[s - 1, m]
    if known >= 0:
        return known
    sender = backward_position(m, warmup[s], microbatches)
    receiver = backward_position(m, warmup[s - 1], microbatches) - 1
    if done[s] <= sender or done[s - 1] <= receiver:
        return -1.0
    start = max(ends[s, sender], ends[s - 1, receiver], free[s - 1])
    arrived: float = start + latency[s - 1] + serial[s - 1]
    free[s - 1] = arrived
    arrival[s - 1, m] = arrived
    return arrived
