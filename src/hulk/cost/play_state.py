"""What `hulk.cost.play` keeps while it plays: how far everything is, what it fills in, and who is which leaf of the
tree of times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Bools, Floats, Ints
from hulk.cost.compiled import inner, maker
from hulk.cost.flat import Flat
from hulk.cost.fluid import Times, set_time


class State(NamedTuple):
    """How far everything is."""

    done: Ints  # [S] passes; of stages that go by an order, here and in all that follows, the leading one has them
    free: Floats  # [S] when the last pass ended
    sending: Bools  # [S] whether it waits for a blocking message of its own to arrive
    arrived: Floats  # [2, S, most microbatches] when an activation, or a gradient, is there; infinite: not yet sent
    posted: Ints  # [2 S] messages whose sender has done the pass; of a channel, where there is one
    handed: Ints  # [2 S] messages handed to the connection, or through a channel; more than are posted cannot be
    started: Ints  # [2 S] messages that have left the wire
    phase: Ints  # [2 S] of a connection: nothing, before the wire, on the wire, on its way over a blocking link
    queued: Ints  # [S] of a blocking link: which connection is next in turn; −1: none
    waits: Ints  # [T]
    step: Ints  # [T]
    branches_left: Ints  # [T]
    flows_left: Ints  # [B]
    open_tasks: Ints  # [S] sums that a stage still takes part in, and its passes: what its update waits for
    open_after: Ints  # [S] weights that a stage waits for, and its update
    updated: Bools  # [S]
    stages_left: Ints  # [J]
    runs: Ints  # [J] steps done


class Marks(NamedTuple):
    """When a stage's first pass began, its last one ended, its last sum was over and it was done, in its job's first
    step. Seconds."""

    began: Floats  # [S]
    stage_end: Floats  # [S]
    sync_end: Floats  # [S]
    done: Floats  # [S]


# Leaves: passes; connections and flows, as the fluid has them; moments; branches' latencies; updates.
@inner
def first_moment(flat: Flat) -> int:
    """The leaf of the first moment."""
    return 3 * flat.job.shape[0] + flat.flow_size.shape[0]


@inner
def first_branch(flat: Flat) -> int:
    """The leaf of the first branch's latency."""
    return first_moment(flat) + flat.moment_stage.shape[0]


@inner
def first_update(flat: Flat) -> int:
    """The leaf of the first stage's update."""
    return first_branch(flat) + flat.branch_latency.shape[0]


@maker
def empty_state(flat: Flat, jobs: int) -> State:
    """Nothing has begun."""
    stages, tasks = flat.job.shape[0], flat.task_job.shape[0]
    most = 1
    for s in range(stages):
        most = max(most, flat.microbatches[s])
    return State(
        done=np.zeros(stages, np.int64),
        free=np.zeros(stages),
        sending=np.zeros(stages, np.bool_),
        arrived=np.full((2, stages, most), np.inf),
        posted=np.zeros(2 * stages, np.int64),
        handed=np.zeros(2 * stages, np.int64),
        started=np.zeros(2 * stages, np.int64),
        phase=np.zeros(2 * stages, np.int64),
        queued=np.full(stages, -1),
        waits=np.zeros(tasks, np.int64),
        step=np.zeros(tasks, np.int64),
        branches_left=np.zeros(tasks, np.int64),
        flows_left=np.zeros(flat.branch_latency.shape[0], np.int64),
        open_tasks=np.zeros(stages, np.int64),
        open_after=np.zeros(stages, np.int64),
        updated=np.zeros(stages, np.bool_),
        stages_left=np.zeros(jobs, np.int64),
        runs=np.zeros(jobs, np.int64),
    )


@inner
def start_job(flat: Flat, state: State, times: Times, marks: Marks, j: int, now: float, begin: Floats) -> None:
    """A job's step begins, the first one with each stage when it can: `begin` [S]."""
    stages = flat.job.shape[0]
    for s in range(stages):
        if flat.job[s] != j:
            continue
        state.done[s] = 0
        state.free[s] = now + (begin[s] if state.runs[j] == 0 else 0.0)
        state.sending[s] = state.updated[s] = False
        state.arrived[0, s, :] = np.inf
        state.arrived[1, s, :] = np.inf
        for c in (s, stages + s):
            state.posted[c] = state.handed[c] = state.started[c] = 0
        state.open_tasks[s] = state.open_after[s] = 1
        if flat.lead[s] == s:
            state.stages_left[j] += 1
        if s == flat.begin[s]:
            set_time(times, s, state.free[s] + flat.forward[s])
            if state.runs[j] == 0:
                marks.began[s] = state.free[s]
    for task in range(flat.task_job.shape[0]):
        if flat.task_job[task] == j:
            state.waits[task] = flat.waits[task]
            state.step[task] = 0
            for k in range(flat.first_holder[task], flat.first_holder[task + 1]):
                if flat.weights[task]:
                    state.open_after[flat.holders[k]] += 1
                else:
                    state.open_tasks[flat.holders[k]] += 1
