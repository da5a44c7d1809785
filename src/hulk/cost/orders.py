"""Orders of passes beyond `hulk.cost.pipeline`'s, compiled: stages that hold several chunks of the model (interleaved
1F1B), and gradients of weights as passes of their own (zero bubble). Stages here are those of a plan, which go round
its GPUs `chunks` times; the GPUs of one stage, and of those a round on, are a slot.

A slot's passes, of R rounds over S slots:

- forwards go through a group of microbatches of a chunk, S of them, then through the same ones of the next chunk; after
  the last chunk comes the next group. Backwards do the same from the last chunk to the first (Narayanan et al., SC21;
  Megatron-LM and torch.distributed.pipelining have this order). More warm-up makes groups larger, as Megatron-LM's
  --microbatch-group-size-per-virtual-pipeline-stage does: over long links, the first of a group is then back at the
  first slot when the last has left it. The last group has what is left over as well, since one smaller than S would
  have slots wait for each other;
- `warmup` forwards, then one backward and one forward in turn, then the backwards that are left;
- with backward split, a slot that is the s-th of its pipeline leaves gradients of weights s backwards behind, so that
  none of them makes another slot wait, and does what is left at the end (ZB-H1; Qi et al., Zero Bubble Pipeline
  Parallelism, 2023).

A message leaves when its pass is done and the way is free: what a slot sends to another goes one after the other, in
the order of its passes, whichever chunks it belongs to. Messages never block: engines with these orders send beside
their passes (Megatron-LM refuses to interleave otherwise).
"""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import CHUNKS, SCHEDULE, Durations, Encoded, Floats, Ints
from hulk.cost.compiled import inlined, inner, kernel, lean
from hulk.cost.pipeline import Passes
from hulk.domain.options import ALL_AHEAD, SPLIT

FORWARD, BACKWARD, WEIGHTS = 0, 1, 2
"""Kinds of passes. With backward split, BACKWARD is the gradients of inputs alone."""


@inlined
def is_split(plan: Encoded) -> bool:
    """Whether gradients of weights are passes of their own."""
    return bool(plan.options[SCHEDULE] >= SPLIT)


@inlined
def is_ordered(plan: Encoded) -> bool:
    """Whether passes go by an order of this file."""
    return bool(plan.options[CHUNKS] > 1 or plan.options[SCHEDULE] >= SPLIT)


@lean
def slots_of(plan: Encoded, p: int) -> int:
    """Groups of GPUs that pipeline p's stages go round; where they do not go round `chunks` times, its stages."""
    stages, chunks = plan.starts[p + 1] - plan.starts[p], plan.options[CHUNKS]
    slots: int = stages // chunks
    if slots < 2 or stages % chunks > 0:
        slots = stages
    return slots


@lean
def group_of(plan: Encoded, p: int) -> int:
    """Microbatches of a group of pipeline p, as `hulk.domain.switches.Schedule.group` says it."""
    extra, microbatches = plan.options[SCHEDULE], plan.microbatches[p]
    group: int = microbatches
    if extra != ALL_AHEAD:
        group = min(microbatches, slots_of(plan, p) + (extra - SPLIT if extra >= SPLIT else extra))
    return group


@inner
def pass_of(kind: int, index: int, group: int, chunks: int, microbatches: int) -> tuple[int, int]:
    """(Chunk, microbatch) of a slot's pass of a kind with that number."""
    number, groups = index // (group * chunks), max(microbatches // group, 1)
    number = min(number, groups - 1)
    size = group if number + 1 < groups else microbatches - number * group
    within = index - number * group * chunks
    chunk, microbatch = within // size, number * group + within % size
    return chunk if kind == FORWARD else chunks - 1 - chunk, microbatch


@inner
def following(done: Ints, warmup: int, total: int, behind: int) -> int:
    """The kind of a slot's next pass, which has done so many of each kind, of `total` each; −1: it has done all.
    `behind`: backwards that gradients of weights are left behind; −1: backward is not split."""
    forwards, backwards, weights = done[FORWARD], done[BACKWARD], done[WEIGHTS]
    if forwards < min(warmup, total):
        return FORWARD
    if behind >= 0 and weights + behind < backwards:
        return WEIGHTS
    if backwards < total and (forwards == total or forwards - warmup >= backwards):
        return BACKWARD
    if forwards < total:
        return FORWARD
    return WEIGHTS if behind >= 0 and weights < total else -1


@kernel
def order_of(slot: int, slots: int, chunks: int, microbatches: int, warmup: int, group: int, split: bool) -> Ints:
    """[passes, 3] kind, stage of the pipeline, and microbatch of each pass of a slot."""
    total = microbatches * chunks
    order = np.empty((total * (3 if split else 2), 3), np.int64)
    done = np.zeros(3, np.int64)
    for position in range(order.shape[0]):
        kind = following(done, warmup, total, slot if split else -1)
        chunk, microbatch = pass_of(kind, done[kind], group, chunks, microbatches)
        order[position, 0], order[position, 1], order[position, 2] = kind, chunk * slots + slot, microbatch
        done[kind] += 1
    return order


@kernel
def run_orders(
    passes: Passes, weights: Floats, slots: int, microbatches: int, group: int, split: bool, ends: Floats
) -> None:
    """Fill `ends` [stages] with when a stage's gradients are all made, in seconds from the step's start. `weights`
    [stages]: seconds of a microbatch's gradients of weights, where backward is split."""
    stages = passes.forward.shape[0]
    chunks = stages // slots
    total = microbatches * chunks
    done, now = np.zeros((slots, 3), np.int64), np.zeros(slots)
    free = np.zeros((2, slots))  # when the way to the next slot, or the one before, is free again
    there = np.full((2, stages, microbatches), np.inf)  # when an activation, or a gradient, has come
    left = slots * total * (3 if split else 2)
    while left > 0:
        before = left
        for s in range(slots):
            while True:
                kind = following(done[s], passes.warmup[s], total, s if split else -1)
                if kind < 0:
                    break
                chunk, m = pass_of(kind, done[s, kind], group, chunks, microbatches)
                n = chunk * slots + s
                start = max(now[s], _came(there, kind, n, m))
                if start == np.inf:
                    break
                if kind == WEIGHTS:
                    now[s] = start + weights[n]
                else:
                    now[s] = start + (passes.forward[n] if kind == FORWARD else passes.backward[n])
                    _leave(passes, kind, n, m, now[s], free, there)
                if kind == WEIGHTS or (kind == BACKWARD and not split):
                    ends[n] = now[s]
                done[s, kind] += 1
                left -= 1
        if left == before:
            raise RuntimeError("the schedule cannot go on")  # cannot happen: orders are consistent between slots


@inner
def _came(there: Floats, kind: int, n: int, m: int) -> float:
    """When what a pass of stage n needs has come; infinite: not yet."""
    came = 0.0
    if kind == FORWARD and n > 0:
        came = there[0, n, m]
    elif kind == BACKWARD and n + 1 < there.shape[1]:
        came = there[1, n, m]
    return came


@inner
def _leave(passes: Passes, kind: int, n: int, m: int, now: float, free: Floats, there: Floats) -> None:
    """Send on what a pass of stage n has made."""
    slots = free.shape[1]
    s = n % slots
    if kind == FORWARD and n + 1 < there.shape[1]:
        free[0, s] = max(now, free[0, s]) + passes.send_forward[n]
        there[0, n + 1, m] = free[0, s] + passes.latency[n]
    elif kind == BACKWARD and n > 0:
        way = 0 if slots == 2 else 1  # of two slots, the next one is the one before
        free[way, s] = max(now, free[way, s]) + passes.send_backward[n - 1]
        there[1, n - 1, m] = free[way, s] + passes.latency[n - 1]


@lean
def most_held(plan: Encoded, out: Durations, p: int, slot: int) -> float:
    """Bytes of activations that a slot holds at most, of all its chunks; `out.held` has what each stage keeps of one
    microbatch, until its last gradients are made."""
    begin, slots = plan.starts[p], slots_of(plan, p)
    chunks, split = (plan.starts[p + 1] - begin) // slots, is_split(plan)
    microbatches, group, warmup = plan.microbatches[p], group_of(plan, p), plan.warmup[begin + slot]
    total = microbatches * chunks
    forwards = backwards = weights = 0
    held = most = 0.0
    while forwards < total:  # after the last forward nothing is added
        if forwards < warmup or forwards - warmup < backwards:
            chunk, _ = pass_of(FORWARD, forwards, group, chunks, microbatches)
            held += out.held[begin + chunk * slots + slot]
            most = max(most, held)
            forwards += 1
            continue
        backwards += 1
        given = backwards - 1
        if split:
            if weights + slot >= backwards:
                continue
            given = weights
            weights += 1
        chunk, _ = pass_of(BACKWARD, given, group, chunks, microbatches)
        held -= out.held[begin + chunk * slots + slot]
    return most
