"""A step of all jobs of a plan side by side, compiled: passes, messages and sums, over the cards and trunks they share.

What `hulk.simulate` plays event by event with a timeline and jitter, and `hulk.cost.step` approximates in closed forms,
here for the numbers alone, in milliseconds. `hulk.cost.flat` writes jobs down as arrays.

Jobs go on with further steps until every job has done one, so that those with short steps stay in the others' way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hulk.cost.arrays import Floats
from hulk.cost.compiled import is_cached, kernel
from hulk.cost.flat import Flat, apart, flatten, in_each_others_way
from hulk.cost.fluid import empty_fluid, empty_times, end_flow, set_time, share_out
from hulk.cost.play_passes import connection_moves, pass_done
from hulk.cost.play_state import Marks, empty_state, first_branch, first_moment, first_update, start_job
from hulk.cost.play_sums import next_step, one_less
from hulk.cost.prepared import Prepared
from hulk.cost.rolling import Stretch, steady_seconds
from hulk.cost.traffic import Fabric

MOST_AGAIN = 30
"""Steps that a job does at most while others are at their first."""


@dataclass(frozen=True)
class Played:
    """One job's step: seconds, as `hulk.cost.step` has them; when each stage's passes end; when its last sum does;
    whether any flow, its own or of a job in its way, had to share its way."""

    seconds: float
    stage_end: Floats
    sync_end: Floats
    shared: bool


def play(prepared: Sequence[Prepared], *, sharing: bool = True) -> list[Played]:
    """A step of every job, side by side; without `sharing`, each flow with its way to itself."""
    found: dict[int, Played] = {}
    for group in apart(prepared):
        found |= zip(group, _play([prepared[index] for index in group], sharing), strict=True)
    return [found[index] for index in range(len(prepared))]


def _play(prepared: Sequence[Prepared], sharing: bool) -> list[Played]:
    """A step of jobs that may be in each other's way."""
    flat = flatten(prepared, Fabric.of(prepared))
    if not sharing:
        flat = flat._replace(way=np.full_like(flat.way, -1))
    stages, jobs = len(flat.job), len(prepared)
    again = MOST_AGAIN if in_each_others_way(flat) else 1

    shared = False

    def step(begin: Floats) -> Marks:
        nonlocal shared
        marks = Marks(*np.zeros((4, stages)))
        shared |= run(flat, jobs, again, begin, marks)
        lead = flat.lead  # which begins, adds up and ends for all stages on its GPUs
        sync_end = np.maximum(marks.sync_end[lead], marks.stage_end)
        return Marks(marks.began[lead], marks.stage_end, sync_end, marks.done[lead])

    def stretch(marks: Marks) -> Stretch:
        return Stretch(marks.began, marks.done)

    first = step(np.zeros(stages))
    seconds = steady_seconds(prepared, stretch(first), lambda begin: stretch(step(begin)))
    own = [flat.job == index for index in range(jobs)]
    return [
        Played(its, first.stage_end[rows], first.sync_end[rows], shared) for its, rows in zip(seconds, own, strict=True)
    ]


@kernel
def run(flat: Flat, jobs: int, most_again: int, begin: Floats, marks: Marks) -> bool:
    """Play, every job up to `most_again` steps; `begin` [S] says when a stage can begin with the first. Fills in the
    marks. Returns whether any flow had to share its way."""
    stages = flat.job.shape[0]
    times = empty_times(first_update(flat) + stages)
    fluid = empty_fluid(2 * stages + flat.flow_size.shape[0], flat.capacity)
    fluid.limit[:] = flat.limit
    fluid.way[:] = flat.way
    state = empty_state(flat, jobs)
    for j in range(jobs):
        start_job(flat, state, times, marks, j, 0.0, begin)
    now, finished, shared = 0.0, 0, False
    while finished < jobs:
        leaf = times.winner[1]
        following = times.at[leaf]
        if following > now and fluid.state[1]:
            share_out(fluid, times, stages, now)
            shared = True
            continue
        if following == np.inf:
            raise RuntimeError("the step cannot go on")  # cannot happen: orders are consistent between stages
        now = following
        set_time(times, leaf, np.inf)
        if leaf < stages:
            pass_done(flat, state, times, marks, leaf, now)
        elif leaf < 3 * stages:
            connection_moves(flat, state, fluid, times, marks, leaf - stages, now)
        elif leaf < first_moment(flat):
            f = leaf - 3 * stages
            end_flow(fluid, 2 * stages + f)
            b = flat.flow_branch[f]
            state.flows_left[b] -= 1
            if state.flows_left[b] == 0:
                set_time(times, first_branch(flat) + b, now + flat.branch_latency[b])
        elif leaf < first_branch(flat):
            task = flat.moment_task[leaf - first_moment(flat)]
            one_less(flat, state, fluid, times, marks, task, now)
        elif leaf < first_update(flat):
            task = flat.branch_task[leaf - first_branch(flat)]
            state.branches_left[task] -= 1
            if state.branches_left[task] == 0:
                state.step[task] += 1
                next_step(flat, state, fluid, times, marks, task, now)
        else:
            s = leaf - first_update(flat)
            if not state.updated[s]:  # the second time, this leaf says that the others' weights are there
                state.updated[s] = True
                for k in range(flat.first_waiter[s], flat.first_waiter[s + 1]):
                    one_less(flat, state, fluid, times, marks, flat.waiters[k], now)
            state.open_after[s] -= 1
            if state.open_after[s] > 0:
                continue
            j = flat.job[s]
            if state.runs[j] == 0:
                marks.done[s] = now
            state.stages_left[j] -= 1
            if state.stages_left[j] == 0:
                if state.runs[j] == 0:
                    finished += 1
                state.runs[j] += 1
                if finished < jobs and state.runs[j] < most_again:
                    start_job(flat, state, times, marks, j, now, begin)
    return shared


def is_compiled() -> bool:
    """Whether the compiled code of this very version lies in numba's cache."""
    return is_cached(run)
