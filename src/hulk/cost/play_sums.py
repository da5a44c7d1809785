"""Sums and updates as `hulk.cost.play` plays them: a task's flows start when nothing is left that it waits for, and a
stage updates when all its sums are over."""

from __future__ import annotations

from hulk.cost.compiled import inner, maker
from hulk.cost.flat import Flat
from hulk.cost.fluid import Fluid, Times, set_time, start_flow
from hulk.cost.play_state import Marks, State, first_update


@maker
def one_less(flat: Flat, state: State, fluid: Fluid, times: Times, marks: Marks, task: int, now: float) -> None:
    """Something that a task waits for has come about."""
    state.waits[task] -= 1
    if state.waits[task] == 0:
        next_step(flat, state, fluid, times, marks, task, now)


@maker
def next_step(flat: Flat, state: State, fluid: Fluid, times: Times, marks: Marks, task: int, now: float) -> None:
    """Start the flows of a task's step, the first that has any; where none has, the task is over, and those that wait
    for nothing else follow."""
    stages = flat.job.shape[0]
    todo = [task]
    while len(todo) > 0:
        t = todo.pop()
        first, end = flat.task_branches[t], flat.task_branches[t + 1]
        left = 0
        for b in range(first, end):
            if flat.branch_step[b] != state.step[t]:
                continue
            left += 1
            state.flows_left[b] = flat.branch_flows[b + 1] - flat.branch_flows[b]
            for f in range(flat.branch_flows[b], flat.branch_flows[b + 1]):
                start_flow(fluid, times, stages, 2 * stages + f, flat.flow_size[f], now)
        state.branches_left[t] = left
        if left > 0:
            continue
        if first < end and state.step[t] <= flat.branch_step[end - 1]:  # nothing in this step
            state.step[t] += 1
            todo.append(t)
            continue
        for k in range(flat.first_holder[t], flat.first_holder[t + 1]):
            s = flat.holders[k]
            if flat.weights[t]:
                _done_soon(flat, state, times, s, now)
                continue
            if state.runs[flat.job[s]] == 0:
                marks.sync_end[s] = max(marks.sync_end[s], now)
            update_soon(flat, state, times, s, now)
        for k in range(flat.first_follower[t], flat.first_follower[t + 1]):
            follower = flat.followers[k]
            state.waits[follower] -= 1
            if state.waits[follower] == 0:
                todo.append(follower)


@inner
def update_soon(flat: Flat, state: State, times: Times, s: int, now: float) -> None:
    """Something that a stage's update waits for is over."""
    state.open_tasks[s] -= 1
    if state.open_tasks[s] == 0:
        set_time(times, first_update(flat) + s, now + flat.update[s])


@inner
def _done_soon(flat: Flat, state: State, times: Times, s: int, now: float) -> None:
    """A stage has weights that it waited for, after its update or before."""
    if state.open_after[s] == 1:
        set_time(times, first_update(flat) + s, now)
    else:
        state.open_after[s] -= 1
