"""Passes and messages of stages that go by an order, as `hulk.cost.play` plays them: the rules of `hulk.cost.orders`,
over cards and trunks that others use too. The leading stage of some GPUs stands for all on them."""

from __future__ import annotations

import numpy as np

from hulk.cost.compiled import inlined, inner
from hulk.cost.flat import Flat
from hulk.cost.fluid import Fluid, Times, end_flow, set_time, start_flow
from hulk.cost.orders import BACKWARD, FORWARD, WEIGHTS
from hulk.cost.play_state import Marks, State, first_moment
from hulk.cost.play_sums import update_soon

_IDLE, _BEFORE, _WIRE = 0, 1, 2


@inlined
def has_order(flat: Flat, s: int) -> bool:
    """Whether a leading stage goes by an order."""
    return bool(flat.first_order[s] < flat.first_order[s + 1])


@inner
def _makes_gradients(flat: Flat, s: int, kind: int) -> bool:
    """Whether such a pass of a leading stage makes gradients of weights: the last pass of its order always does."""
    return bool(kind == flat.order[flat.first_order[s + 1] - 1, 0])


@inner
def pass_in_order_done(flat: Flat, state: State, times: Times, marks: Marks, s: int, now: float) -> None:
    """GPUs have done a pass: its message sets out, and the next pass begins if it can."""
    stages = flat.job.shape[0]
    at = flat.first_order[s] + state.done[s]
    kind, n = flat.order[at, 0], flat.order[at, 1]
    state.free[s] = now
    state.done[s] += 1
    if _makes_gradients(flat, s, kind) and state.runs[flat.job[s]] == 0:
        marks.stage_end[n] = now
    if at + 1 == flat.first_order[s + 1]:
        if state.runs[flat.job[s]] == 0:
            marks.sync_end[s] = max(marks.sync_end[s], now)
        update_soon(flat, state, times, s, now)
    c = -1
    if kind == FORWARD and n + 1 < flat.end[n]:
        c = n
    elif kind == BACKWARD and n > flat.begin[n]:
        c = stages + n
    if c >= 0:
        channel = flat.channel[c]
        state.posted[channel] += 1
        if state.phase[channel] == _IDLE:
            _start_message(flat, state, times, channel, now)
    _begin(flat, state, times, marks, s, now)


@inner
def _start_message(flat: Flat, state: State, times: Times, channel: int, now: float) -> None:
    """A channel that is free takes its next message, which is there."""
    c = flat.message[flat.first_message[channel] + state.handed[channel]]
    state.phase[channel] = _BEFORE
    set_time(times, flat.job.shape[0] + channel, now + flat.before_wire[c])


@inner
def channel_moves(flat: Flat, state: State, fluid: Fluid, times: Times, marks: Marks, channel: int, now: float) -> None:
    """A channel's message is ready for the wire, or off it."""
    stages = flat.job.shape[0]
    c = flat.message[flat.first_message[channel] + state.handed[channel]]
    if state.phase[channel] == _BEFORE and flat.size[c] > 0:
        state.phase[channel] = _WIRE
        start_flow(fluid, times, stages, channel, flat.size[c], now)
        return
    if state.phase[channel] == _WIRE:
        end_flow(fluid, channel)
    way, to = (0, c + 1) if c < stages else (1, c - stages - 1)
    state.arrived[way, to, state.started[c]] = now + flat.latency[c]
    state.started[c] += 1
    state.handed[channel] += 1
    state.phase[channel] = _IDLE
    if state.handed[channel] < state.posted[channel]:
        _start_message(flat, state, times, channel, now)
    _begin(flat, state, times, marks, flat.lead[to], now)


@inner
def _begin(flat: Flat, state: State, times: Times, marks: Marks, s: int, now: float) -> None:
    """Start the next pass of some GPUs if nothing is missing."""
    at = flat.first_order[s] + state.done[s]
    if times.at[s] < np.inf or at == flat.first_order[s + 1]:
        return
    kind, n, microbatch = flat.order[at, 0], flat.order[at, 1], flat.order[at, 2]
    start = state.free[s]
    seconds = flat.forward[n]
    if kind == FORWARD and n > flat.begin[n]:
        start = max(start, state.arrived[0, n, microbatch])
    elif kind == BACKWARD:
        seconds = flat.backward[n]
        if n + 1 < flat.end[n]:
            start = max(start, state.arrived[1, n, microbatch])
    elif kind == WEIGHTS:
        seconds = flat.weights_pass[n]
    if start == np.inf:
        return
    end = start + seconds
    set_time(times, s, end)
    if state.done[s] == 0 and state.runs[flat.job[s]] == 0:
        marks.began[s] = start
    if _makes_gradients(flat, s, kind) and microbatch + 1 == flat.microbatches[n]:
        for k in range(flat.first_moment[n], flat.first_moment[n + 1]):
            set_time(times, first_moment(flat) + k, max(end - flat.moment_before[k], start))
