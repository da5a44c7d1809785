"""A step of all jobs of a plan side by side, compiled: passes, messages and sums, over the cards and trunks they share.

What `hulk.simulate` plays event by event with a timeline and jitter, and `hulk.cost.step` approximates in closed forms,
here for the numbers alone, in milliseconds. `flatten` writes jobs down as arrays, all stages one after the other:

    connections  from a stage to the next (its number) and to the one before (its number + S)
    tasks        sums: steps one after the other, each of branches side by side, each of flows side by side and a
                 latency after the last of them. A task waits for moments (so many seconds before the end of a stage's
                 last backward), for other tasks and, if it sends weights, for updates.

Jobs go on with further steps until every job has done one, so that those with short steps stay in the others' way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, is_cached, kernel, maker
from hulk.cost.fluid import Fluid, Times, empty_fluid, empty_times, end_flow, set_time, share_out, start_flow
from hulk.cost.pipeline import pass_at
from hulk.cost.prepared import Prepared
from hulk.cost.rolling import Stretch, steady_seconds
from hulk.cost.traffic import Fabric, Sum, Traffic, sums_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST_AGAIN = 30
"""Steps that a job does at most while others are at their first."""


class Flat(NamedTuple):
    """Jobs as arrays: S stages, T tasks, B branches, F flows of tasks, M moments."""

    job: Ints  # [S]
    begin: Ints  # [S] first stage of its pipeline
    end: Ints  # [S] the stage after the last of its pipeline
    forward: Floats  # [S] seconds
    backward: Floats  # [S]
    update: Floats  # [S]
    warmup: Ints  # [S]
    microbatches: Ints  # [S]
    blocking: Bools  # [S] whether messages to and from the next stage block
    before_wire: Floats  # [2 S] seconds that a message costs besides the wire
    size: Floats  # [2 S] bytes
    latency: Floats  # [2 S]
    limit: Floats  # [2 S + F] bytes/s: connections, then flows of tasks
    way: Ints  # [2 S + F, 3]
    capacity: Floats  # [R] bytes/s
    flow_size: Floats  # [F]
    flow_branch: Ints  # [F]
    branch_flows: Ints  # [B + 1] first flow of each branch
    branch_latency: Floats  # [B]
    branch_task: Ints  # [B]
    branch_step: Ints  # [B] which step of its task it belongs to
    task_branches: Ints  # [T + 1] first branch of each task
    task_job: Ints  # [T]
    waits: Ints  # [T] moments and tasks that it waits for
    followers: Ints  # tasks that wait for a task
    first_follower: Ints  # [T + 1]
    holders: Ints  # stages that go on only when a task is over
    first_holder: Ints  # [T + 1]
    weights: Bools  # [T] whether holders wait for it after their update, not before
    waiters: Ints  # tasks that wait for a stage's update
    first_waiter: Ints  # [S + 1]
    moment_stage: Ints  # [M], ascending
    moment_before: Floats  # [M] seconds before the stage's last backward ends
    moment_task: Ints  # [M]
    first_moment: Ints  # [S + 1]


@dataclass(frozen=True)
class Played:
    """One job's step: seconds, as `hulk.cost.step` has them; when each stage's passes end; when its last sum
    does."""

    seconds: float
    stage_end: Floats
    sync_end: Floats


def play(prepared: Sequence[Prepared], *, sharing: bool = True) -> list[Played]:
    """A step of every job, side by side; without `sharing`, each flow with its way to itself."""
    if not prepared:
        return []
    flat = flatten(prepared, Fabric(prepared[0].cluster))
    if not sharing:
        flat = flat._replace(way=np.full_like(flat.way, -1))
    stages, jobs = len(flat.job), len(prepared)
    again = MOST_AGAIN if in_each_others_way(flat) else 1

    def step(begin: Floats) -> tuple[Stretch, Floats, Floats]:
        stage_end, sync_end, began, done = np.zeros((4, stages))
        run(flat, jobs, again, begin, stage_end, sync_end, began, done)
        return Stretch(began, done), stage_end, sync_end

    first, stage_end, sync_end = step(np.zeros(stages))
    seconds = steady_seconds(prepared, first, lambda begin: step(begin)[0])
    own = [flat.job == index for index in range(jobs)]
    return [Played(its, stage_end[rows], sync_end[rows]) for its, rows in zip(seconds, own, strict=True)]


def in_each_others_way(flat: Flat) -> bool:
    """Whether any two jobs share a card or a trunk."""
    stages = len(flat.job)
    of_flow = np.concatenate([flat.job, flat.job, flat.task_job[flat.branch_task[flat.flow_branch]]])
    users = {(int(r), int(of_flow[f])) for f in range(2 * stages + len(flat.flow_size)) for r in flat.way[f] if r >= 0}
    return len({r for r, _ in users}) < len(users)


class _Lists:
    """What grows while jobs are written down."""

    def __init__(self) -> None:
        self.flow_limit: list[float] = []
        self.flow_way: list[tuple[int, ...]] = []
        self.flow_size: list[float] = []
        self.flow_branch: list[int] = []
        self.branch_latency: list[float] = []
        self.branch_task: list[int] = []
        self.branch_step: list[int] = []
        self.task_job: list[int] = []
        self.waits: list[int] = []
        self.follows: list[tuple[int, int]] = []  # (task, the task that waits for it)
        self.holders: list[list[int]] = []
        self.weights: list[bool] = []
        self.waiters: list[tuple[int, int]] = []  # (stage, the task that waits for its update)
        self.moments: list[tuple[int, float, int]] = []

    def add_task(self, job: int, wanted: Sum, at: int) -> None:
        """A sum with its steps; the job's stages are counted from `at` on."""
        task = len(self.task_job)
        self.task_job.append(job)
        self.holders.append([at + n for n in wanted.holders])
        self.weights.append(bool(wanted.updates))
        self.moments += [(at + n, seconds, task) for n, seconds in wanted.moments]
        self.follows += [(task - wanted.number + other, task) for other in wanted.after]
        self.waiters += [(at + n, task) for n in wanted.updates]
        self.waits.append(len(wanted.moments) + len(wanted.after) + len(wanted.updates))
        for step, branches in enumerate(wanted.phases):
            for branch in branches:
                if not branch.hops:
                    continue
                self.branch_latency.append(branch.latency)
                self.branch_task.append(task)
                self.branch_step.append(step)
                for hop in branch.hops:
                    self.flow_branch.append(len(self.branch_latency) - 1)
                    self.flow_limit.append(hop.route.limit)
                    self.flow_way.append(hop.route.resources)
                    self.flow_size.append(hop.size)


def flatten(prepared: Sequence[Prepared], fabric: Fabric) -> Flat:
    """The jobs as arrays."""
    lists = _Lists()
    count = sum(len(one.stages) for one in prepared)
    before_wire, size, latency = np.zeros(2 * count), np.zeros(2 * count), np.zeros(2 * count)
    limit, way = np.ones(2 * count), np.full((2 * count, 3), -1)
    job, begin, end = (np.zeros(count, np.int64) for _ in range(3))
    microbatches, blocking = np.zeros(count, np.int64), np.zeros(count, bool)
    at = 0
    for index, one in enumerate(prepared):
        traffic = Traffic(one, fabric)
        stages = len(one.stages)
        job[at : at + stages] = index
        for p in range(len(one.plan.pipelines)):
            a, b = int(one.encoded.starts[p]), int(one.encoded.starts[p + 1])
            begin[at + a : at + b], end[at + a : at + b] = at + a, at + b
            microbatches[at + a : at + b] = one.encoded.microbatches[p]
            for n in range(a, b - 1):
                blocking[at + n] = one.durations.blocking[n]
                for sender, receiver, c in ((n, n + 1, at + n), (n + 1, n, count + at + n + 1)):
                    wire = traffic.message(sender, receiver)
                    before_wire[c], size[c], latency[c] = wire.fixed, wire.size, wire.latency
                    limit[c] = wire.route.limit
                    way[c, : len(wire.route.resources)] = wire.route.resources
        for wanted in sums_of(one, traffic):
            lists.add_task(index, wanted, at)
        at += stages
    flows = len(lists.flow_size)
    flow_way = np.full((flows, 3), -1)
    for f, resources in enumerate(lists.flow_way):
        flow_way[f, : len(resources)] = resources
    tasks = len(lists.task_job)
    moments = sorted(lists.moments)
    follows, waiters = sorted(lists.follows), sorted(lists.waiters)
    ends = [one.durations for one in prepared]

    def starts(keys: Sequence[int], groups: int) -> Ints:
        return np.searchsorted(np.array(keys, np.int64), np.arange(groups + 1)).astype(np.int64)

    return Flat(
        job=job,
        begin=begin,
        end=end,
        forward=np.concatenate([d.forward for d in ends]),
        backward=np.concatenate([d.backward for d in ends]),
        update=np.concatenate([d.update for d in ends]),
        warmup=np.concatenate([one.encoded.warmup for one in prepared]),
        microbatches=microbatches,
        blocking=blocking,
        before_wire=before_wire,
        size=size,
        latency=latency,
        limit=np.concatenate([limit, np.array(lists.flow_limit, float)]),
        way=np.concatenate([way, flow_way]),
        capacity=np.array(fabric.capacity, float),
        flow_size=np.array(lists.flow_size, float),
        flow_branch=np.array(lists.flow_branch, np.int64),
        branch_flows=starts(lists.flow_branch, len(lists.branch_latency)),
        branch_latency=np.array(lists.branch_latency, float),
        branch_task=np.array(lists.branch_task, np.int64),
        branch_step=np.array(lists.branch_step, np.int64),
        task_branches=starts(lists.branch_task, tasks),
        task_job=np.array(lists.task_job, np.int64),
        waits=np.array(lists.waits, np.int64),
        followers=np.array([b for _, b in follows], np.int64),
        first_follower=starts([a for a, _ in follows], tasks),
        holders=np.array([n for group in lists.holders for n in group], np.int64),
        first_holder=np.cumsum([0, *(len(group) for group in lists.holders)]).astype(np.int64),
        weights=np.array(lists.weights, bool),
        waiters=np.array([task for _, task in waiters], np.int64),
        first_waiter=starts([stage for stage, _ in waiters], count),
        moment_stage=np.array([m[0] for m in moments], np.int64),
        moment_before=np.array([m[1] for m in moments], float),
        moment_task=np.array([m[2] for m in moments], np.int64),
        first_moment=starts([m[0] for m in moments], count),
    )


class _State(NamedTuple):
    """How far everything is."""

    done: Ints  # [S] passes
    free: Floats  # [S] when the last pass ended
    sending: Bools  # [S] whether it waits for a blocking message of its own to arrive
    arrived: Floats  # [2, S, most microbatches] when an activation, or a gradient, is there; infinite: not yet sent
    posted: Ints  # [2 S] messages whose sender has done the pass
    handed: Ints  # [2 S] messages handed to the connection; more than are posted cannot be
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


_IDLE, _BEFORE, _WIRE, _UNDERWAY = 0, 1, 2, 3


@kernel
def run(
    flat: Flat, jobs: int, most_again: int, begin: Floats, stage_end: Floats, sync_end: Floats, began: Floats,
    done: Floats,
) -> None:  # fmt: skip
    """Play, every job up to `most_again` steps; `begin` [S] says when a stage can begin with the first. Fills, of every
    job's first step, when its stages' passes and sums end, when they began, and when they are done [S]."""
    stages = flat.job.shape[0]
    flows, moments, branches = flat.flow_size.shape[0], flat.moment_stage.shape[0], flat.branch_latency.shape[0]
    first_moment = 3 * stages + flows
    first_branch = first_moment + moments
    first_update = first_branch + branches
    # Leaves: passes; connections and flows, as the fluid has them; moments; branches' latencies; updates.
    times = empty_times(first_update + stages)
    fluid = empty_fluid(2 * stages + flows, flat.capacity)
    fluid.limit[:] = flat.limit
    fluid.way[:] = flat.way
    state = _empty_state(flat, jobs)
    for j in range(jobs):
        _start_job(flat, state, times, j, 0.0, begin, began)
    now, finished = 0.0, 0
    while finished < jobs:
        leaf = times.winner[1]
        following = times.at[leaf]
        if following > now and fluid.state[1]:
            share_out(fluid, times, stages, now)
            continue
        if following == np.inf:
            raise RuntimeError("the step cannot go on")  # cannot happen: orders are consistent between stages
        now = following
        set_time(times, leaf, np.inf)
        if leaf < stages:
            _pass_done(flat, state, times, leaf, now, stage_end, sync_end, began, first_moment, first_update)
        elif leaf < 3 * stages:
            _connection_moves(flat, state, fluid, times, leaf - stages, now, first_moment, began)
        elif leaf < first_moment:
            f = leaf - 3 * stages
            end_flow(fluid, 2 * stages + f)
            b = flat.flow_branch[f]
            state.flows_left[b] -= 1
            if state.flows_left[b] == 0:
                set_time(times, first_branch + b, now + flat.branch_latency[b])
        elif leaf < first_branch:
            task = flat.moment_task[leaf - first_moment]
            _one_less(flat, state, fluid, times, task, now, sync_end, first_update)
        elif leaf < first_update:
            task = flat.branch_task[leaf - first_branch]
            state.branches_left[task] -= 1
            if state.branches_left[task] == 0:
                state.step[task] += 1
                _next_step(flat, state, fluid, times, task, now, sync_end, first_update)
        else:
            s = leaf - first_update
            if not state.updated[s]:  # the second time, this leaf says that the others' weights are there
                state.updated[s] = True
                for k in range(flat.first_waiter[s], flat.first_waiter[s + 1]):
                    _one_less(flat, state, fluid, times, flat.waiters[k], now, sync_end, first_update)
            state.open_after[s] -= 1
            if state.open_after[s] > 0:
                continue
            j = flat.job[s]
            if state.runs[j] == 0:
                done[s] = now
            state.stages_left[j] -= 1
            if state.stages_left[j] == 0:
                if state.runs[j] == 0:
                    finished += 1
                state.runs[j] += 1
                if finished < jobs and state.runs[j] < most_again:
                    _start_job(flat, state, times, j, now, begin, began)


@maker
def _empty_state(flat: Flat, jobs: int) -> _State:
    stages, tasks = flat.job.shape[0], flat.task_job.shape[0]
    most = 1
    for s in range(stages):
        most = max(most, flat.microbatches[s])
    return _State(
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
def _start_job(flat: Flat, state: _State, times: Times, j: int, now: float, begin: Floats, began: Floats) -> None:
    """A job's step begins, the first one with each stage when it can."""
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
        state.stages_left[j] += 1
        if s == flat.begin[s]:
            set_time(times, s, state.free[s] + flat.forward[s])
            if state.runs[j] == 0:
                began[s] = state.free[s]
    for task in range(flat.task_job.shape[0]):
        if flat.task_job[task] == j:
            state.waits[task] = flat.waits[task]
            state.step[task] = 0
            for k in range(flat.first_holder[task], flat.first_holder[task + 1]):
                if flat.weights[task]:
                    state.open_after[flat.holders[k]] += 1
                else:
                    state.open_tasks[flat.holders[k]] += 1


@inner
def _pass_done(
    flat: Flat, state: _State, times: Times, s: int, now: float, stage_end: Floats, sync_end: Floats, began: Floats,
    first_moment: int, first_update: int,
) -> None:  # fmt: skip
    stages = flat.job.shape[0]
    m = flat.microbatches[s]
    is_forward, _ = pass_at(state.done[s], flat.warmup[s], m)
    state.free[s] = now
    state.done[s] += 1
    if state.done[s] == 2 * m:
        if state.runs[flat.job[s]] == 0:
            stage_end[s] = now
            sync_end[s] = max(sync_end[s], now)
        _update_soon(flat, state, times, s, now, first_update)
    c = -1
    if is_forward and s + 1 < flat.end[s]:
        c = s
    elif not is_forward and s > flat.begin[s]:
        c = stages + s
    if c >= 0:
        state.posted[c] += 1
        link = s if is_forward else s - 1
        state.sending[s] = flat.blocking[link]
        _send_ready(flat, state, times, c, now)
    # The stage now stands before another pass, which may be what a blocking message to it waits for.
    if s > flat.begin[s] and flat.blocking[s - 1]:
        _send_ready(flat, state, times, s - 1, now)
    if s + 1 < flat.end[s] and flat.blocking[s]:
        _send_ready(flat, state, times, stages + s + 1, now)
    _begin(flat, state, times, s, first_moment, now, began)


@inner
def _send_ready(flat: Flat, state: _State, times: Times, c: int, now: float) -> None:
    """Hand a connection's next message over, if there is one that may start."""
    stages = flat.job.shape[0]
    is_forward = c < stages
    s = c if is_forward else c - stages
    to, link = (s + 1, s) if is_forward else (s - 1, s - 1)
    if state.handed[c] == state.posted[c]:
        return
    if not flat.blocking[link]:
        state.handed[c] += 1
        if state.phase[c] == _IDLE:
            state.phase[c] = _BEFORE
            set_time(times, stages + c, now + flat.before_wire[c])
        return
    if times.at[to] < np.inf or state.done[to] == 2 * flat.microbatches[to]:
        return  # the receiver is at work
    wants, microbatch = pass_at(state.done[to], flat.warmup[to], flat.microbatches[to])
    if wants != is_forward or microbatch != state.handed[c]:
        return
    state.handed[c] += 1
    other = stages + s + 1 if is_forward else s - 1  # the two directions of a blocking link take turns
    if state.phase[c] == _IDLE and state.phase[other] == _IDLE:
        state.phase[c] = _BEFORE
        set_time(times, stages + c, now + flat.before_wire[c])
    else:
        state.queued[link] = c


@inner
def _connection_moves(
    flat: Flat, state: _State, fluid: Fluid, times: Times, c: int, now: float, first_moment: int, began: Floats
) -> None:
    """A message is ready for the wire, or off it, or, over a blocking link, there."""
    stages = flat.job.shape[0]
    is_forward = c < stages
    s = c if is_forward else c - stages
    to, link = (s + 1, s) if is_forward else (s - 1, s - 1)
    if state.phase[c] == _BEFORE and flat.size[c] > 0:
        state.phase[c] = _WIRE
        start_flow(fluid, times, stages, c, flat.size[c], now)
        return
    if state.phase[c] == _WIRE:
        end_flow(fluid, c)
    blocking = flat.blocking[link]
    if state.phase[c] != _UNDERWAY:
        way = 0 if is_forward else 1
        state.arrived[way, to, state.started[c]] = now + flat.latency[c]
        state.started[c] += 1
        if blocking:
            state.phase[c] = _UNDERWAY
            set_time(times, stages + c, now + flat.latency[c])
            return
        state.phase[c] = _IDLE
        if state.handed[c] > state.started[c]:
            state.phase[c] = _BEFORE
            set_time(times, stages + c, now + flat.before_wire[c])
        _begin(flat, state, times, to, first_moment, now, began)
        return
    state.phase[c] = _IDLE
    state.sending[s] = False
    _begin(flat, state, times, s, first_moment, now, began)
    _begin(flat, state, times, to, first_moment, now, began)
    following = state.queued[link]
    if following >= 0:
        state.queued[link] = -1
        state.phase[following] = _BEFORE
        set_time(times, stages + following, now + flat.before_wire[following])


@inner
def _begin(flat: Flat, state: _State, times: Times, s: int, first_moment: int, now: float, began: Floats) -> None:
    """Start a stage's next pass if nothing is missing."""
    m = flat.microbatches[s]
    if times.at[s] < np.inf or state.sending[s] or state.done[s] == 2 * m:
        return
    is_forward, microbatch = pass_at(state.done[s], flat.warmup[s], m)
    start = state.free[s]
    if flat.blocking[s] or (s > flat.begin[s] and flat.blocking[s - 1]):
        start = max(start, now)  # it may have waited for a message of its own
    if is_forward and s > flat.begin[s]:
        start = max(start, state.arrived[0, s, microbatch])
    elif not is_forward and s + 1 < flat.end[s]:
        start = max(start, state.arrived[1, s, microbatch])
    if start == np.inf:
        return
    end = start + (flat.forward[s] if is_forward else flat.backward[s])
    set_time(times, s, end)
    if state.done[s] == 0 and state.runs[flat.job[s]] == 0:
        began[s] = start
    if state.done[s] + 1 == 2 * m:
        for k in range(flat.first_moment[s], flat.first_moment[s + 1]):
            set_time(times, first_moment + k, max(end - flat.moment_before[k], start))


@maker
def _one_less(
    flat: Flat, state: _State, fluid: Fluid, times: Times, task: int, now: float, sync_end: Floats, first_update: int
) -> None:
    """Something that a task waits for has come about."""
    state.waits[task] -= 1
    if state.waits[task] == 0:
        _next_step(flat, state, fluid, times, task, now, sync_end, first_update)


@maker
def _next_step(
    flat: Flat, state: _State, fluid: Fluid, times: Times, task: int, now: float, sync_end: Floats, first_update: int
) -> None:
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
                _done_soon(state, times, s, now, first_update)
                continue
            if state.runs[flat.job[s]] == 0:
                sync_end[s] = max(sync_end[s], now)
            _update_soon(flat, state, times, s, now, first_update)
        for k in range(flat.first_follower[t], flat.first_follower[t + 1]):
            follower = flat.followers[k]
            state.waits[follower] -= 1
            if state.waits[follower] == 0:
                todo.append(follower)


@inner
def _update_soon(flat: Flat, state: _State, times: Times, s: int, now: float, first_update: int) -> None:
    """Something that a stage's update waits for is over."""
    state.open_tasks[s] -= 1
    if state.open_tasks[s] == 0:
        set_time(times, first_update + s, now + flat.update[s])


@inner
def _done_soon(state: _State, times: Times, s: int, now: float, first_update: int) -> None:
    """A stage has weights that it waited for, after its update or before."""
    if state.open_after[s] == 1:
        set_time(times, first_update + s, now)
    else:
        state.open_after[s] -= 1


def is_compiled() -> bool:
    """Whether the compiled code of this very version lies in numba's cache."""
    return is_cached(run)
