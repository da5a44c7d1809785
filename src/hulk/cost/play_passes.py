"""Passes and messages as `hulk.cost.play` plays them: the rules of `hulk.cost.pipeline`, over cards and trunks that
others use too."""

from __future__ import annotations

import numpy as np

from hulk.cost.compiled import inner
from hulk.cost.flat import Flat
from hulk.cost.fluid import Fluid, Times, end_flow, set_time, start_flow
from hulk.cost.pipeline import pass_at
from hulk.cost.play_orders import channel_moves, has_order, pass_in_order_done
from hulk.cost.play_state import Marks, State, first_moment
from hulk.cost.play_sums import update_soon

_IDLE, _BEFORE, _WIRE, _UNDERWAY = 0, 1, 2, 3


@inner
def pass_done(flat: Flat, state: State, times: Times, marks: Marks, s: int, now: float) -> None:
    """A stage has done a pass: its message sets out, and the next pass begins if it can."""
    if has_order(flat, s):
        pass_in_order_done(flat, state, times, marks, s, now)
        return
    stages = flat.job.shape[0]
    m = flat.microbatches[s]
    is_forward, _ = pass_at(state.done[s], flat.warmup[s], m)
    state.free[s] = now
    state.done[s] += 1
    if state.done[s] == 2 * m:
        if state.runs[flat.job[s]] == 0:
            marks.stage_end[s] = now
            marks.sync_end[s] = max(marks.sync_end[s], now)
        update_soon(flat, state, times, s, now)
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
    _begin(flat, state, times, marks, s, now)


@inner
def _send_ready(flat: Flat, state: State, times: Times, c: int, now: float) -> None:
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
def connection_moves(flat: Flat, state: State, fluid: Fluid, times: Times, marks: Marks, c: int, now: float) -> None:
    """A message is ready for the wire, or off it, or, over a blocking link, there."""
    stages = flat.job.shape[0]
    is_forward = c < stages
    s = c if is_forward else c - stages
    if has_order(flat, s):
        channel_moves(flat, state, fluid, times, marks, c, now)
        return
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
        _begin(flat, state, times, marks, to, now)
        return
    state.phase[c] = _IDLE
    state.sending[s] = False
    _begin(flat, state, times, marks, s, now)
    _begin(flat, state, times, marks, to, now)
    following = state.queued[link]
    if following >= 0:
        state.queued[link] = -1
        state.phase[following] = _BEFORE
        set_time(times, stages + following, now + flat.before_wire[following])


@inner
def _begin(flat: Flat, state: State, times: Times, marks: Marks, s: int, now: float) -> None:
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
        marks.began[s] = start
    if state.done[s] + 1 == 2 * m:
        for k in range(flat.first_moment[s], flat.first_moment[s + 1]):
            set_time(times, first_moment(flat) + k, max(end - flat.moment_before[k], start))
