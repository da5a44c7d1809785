"""The network as a fluid, compiled: flows that share a network card or a trunk share it max-min fairly.

The rules of `hulk.simulate.network`, for prices. A flow has a limit of its own and up to three resources on its way. A
resource that its flows cannot fill even at their limits changes nothing; the others are crowded. When flows start or
end, all rates are found anew by water-filling (Bertsekas and Gallager, Data Networks, 6.5.2), unless nothing crowded is
on their way.

Times are kept as the leaves of a tree whose root knows the earliest one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Floats, Ints
from hulk.cost.compiled import inner, maker

_CROWDED = 1 + 1e-9
_RUNNING, _CHANGED = 0, 1


class Times(NamedTuple):
    """When something happens next, by its number; infinite: not."""

    at: Floats
    winner: Ints


class Fluid(NamedTuple):
    """F flows over R resources. Flow f's end is leaf `first_leaf` + f of the times."""

    limit: Floats  # [F] bytes/s
    way: Ints  # [F, 3] resources; −1: none
    left: Floats  # [F] bytes, at the time `since`
    since: Floats  # [F]
    rate: Floats  # [F] bytes/s; 0: has not been given one yet
    running: Ints  # [F] which flows are on their way: the first `state[0]` of it
    place: Ints  # [F] where a flow stands in `running`
    capacity: Floats  # [R] bytes/s
    wanted: Floats  # [R] bytes/s that the flows on it would have without it
    room: Floats  # [R] to work in
    rising: Ints  # [R] to work in: flows on it whose rate still rises
    level: Floats  # [F] to work in: a flow's new rate, below zero while it rises
    state: Ints  # [2] how many run; whether rates must be found anew


@maker
def empty_times(count: int) -> Times:
    """Nothing happens."""
    leaves = 1
    while leaves < count:
        leaves *= 2
    winner = np.empty(2 * leaves, np.int64)
    for i in range(leaves):
        winner[leaves + i] = i
    for node in range(leaves - 1, 0, -1):
        winner[node] = winner[2 * node]
    return Times(np.full(leaves, np.inf), winner)


@inner
def set_time(times: Times, leaf: int, at: float) -> None:
    """Something happens at another time, or, where that is infinite, does not."""
    times.at[leaf] = at
    node = (leaf + times.at.shape[0]) >> 1
    while node >= 1:
        a, b = times.winner[2 * node], times.winner[2 * node + 1]
        earliest = a if times.at[a] <= times.at[b] else b
        if earliest == times.winner[node] and earliest != leaf:  # above, nothing can be another than it was
            return
        times.winner[node] = earliest
        node >>= 1


@maker
def empty_fluid(flows: int, capacity: Floats) -> Fluid:
    """Room for so many flows; limits and ways are filled in by the caller."""
    resources = capacity.shape[0]
    return Fluid(
        limit=np.empty(flows),
        way=np.full((flows, 3), -1),
        left=np.zeros(flows),
        since=np.zeros(flows),
        rate=np.zeros(flows),
        running=np.empty(flows, np.int64),
        place=np.full(flows, -1),
        capacity=capacity,
        wanted=np.zeros(resources),
        room=np.zeros(resources),
        rising=np.zeros(resources, np.int64),
        level=np.zeros(flows),
        state=np.zeros(2, np.int64),
    )


@inner
def _meets_crowd(fluid: Fluid, f: int) -> bool:
    for i in range(3):
        r = fluid.way[f, i]
        if r >= 0 and fluid.wanted[r] > fluid.capacity[r] * _CROWDED:
            return True
    return False


@inner
def start_flow(fluid: Fluid, times: Times, first_leaf: int, f: int, size: float, now: float) -> None:
    """Flow f sets out with so many bytes. `share_out` gives it its rate where it meets a crowd."""
    fluid.left[f] = size
    fluid.since[f] = now
    fluid.rate[f] = 0.0
    fluid.place[f] = fluid.state[_RUNNING]
    fluid.running[fluid.state[_RUNNING]] = f
    fluid.state[_RUNNING] += 1
    for i in range(3):
        if fluid.way[f, i] >= 0:
            fluid.wanted[fluid.way[f, i]] += fluid.limit[f]
    if _meets_crowd(fluid, f):
        fluid.state[_CHANGED] = 1
    else:
        fluid.rate[f] = fluid.limit[f]
        set_time(times, first_leaf + f, now + size / fluid.limit[f])


@inner
def end_flow(fluid: Fluid, f: int) -> None:
    """Flow f is over."""
    if _meets_crowd(fluid, f):
        fluid.state[_CHANGED] = 1
    last = fluid.state[_RUNNING] - 1
    moved = fluid.running[last]
    fluid.running[fluid.place[f]] = moved
    fluid.place[moved] = fluid.place[f]
    fluid.place[f] = -1
    fluid.state[_RUNNING] = last
    for i in range(3):
        r = fluid.way[f, i]
        if r >= 0:
            fluid.wanted[r] = fluid.wanted[r] - fluid.limit[f] if last > 0 else 0.0  # rounding must not add up


@inner
def share_out(fluid: Fluid, times: Times, first_leaf: int, now: float) -> None:
    """New rates for all flows, where something changed since the last time."""
    if fluid.state[_CHANGED] == 0:
        return
    fluid.state[_CHANGED] = 0
    running = fluid.state[_RUNNING]
    for k in range(running):
        f = fluid.running[k]
        fluid.level[f] = -1.0
        for i in range(3):
            r = fluid.way[f, i]
            if r >= 0:
                fluid.room[r] = fluid.capacity[r]
                fluid.rising[r] = 0
    for k in range(running):
        f = fluid.running[k]
        for i in range(3):
            if fluid.way[f, i] >= 0:
                fluid.rising[fluid.way[f, i]] += 1
    rising = running
    while rising > 0:
        level = np.inf
        for k in range(running):
            f = fluid.running[k]
            if fluid.level[f] >= 0:
                continue
            level = min(level, fluid.limit[f])
            for i in range(3):
                r = fluid.way[f, i]
                if r >= 0 and fluid.room[r] < level * fluid.rising[r]:
                    level = fluid.room[r] / fluid.rising[r]
        # All that end at this level stop at once: on alike machines that is nearly all of them.
        for k in range(running):
            f = fluid.running[k]
            if fluid.level[f] < 0 and (fluid.limit[f] <= level * _CROWDED or _is_full(fluid, f, level)):
                _stop_rising(fluid, f, level)
                rising -= 1
    for k in range(running):
        f = fluid.running[k]
        rate = max(fluid.level[f], 1e-9 * fluid.limit[f])
        if abs(rate - fluid.rate[f]) <= 1e-12 * rate:
            continue
        fluid.left[f] = max(fluid.left[f] - fluid.rate[f] * (now - fluid.since[f]), 0.0)
        fluid.since[f] = now
        fluid.rate[f] = rate
        set_time(times, first_leaf + f, now + fluid.left[f] / rate)


@inner
def _is_full(fluid: Fluid, f: int, level: float) -> bool:
    """Whether something on a flow's way has no more for those that still rise."""
    for i in range(3):
        r = fluid.way[f, i]
        if r >= 0 and fluid.room[r] <= level * fluid.rising[r] * _CROWDED:
            return True
    return False


@inner
def _stop_rising(fluid: Fluid, f: int, rate: float) -> None:
    fluid.level[f] = rate
    for i in range(3):
        r = fluid.way[f, i]
        if r >= 0:
            fluid.room[r] = max(fluid.room[r] - rate, 0.0)
            fluid.rising[r] -= 1
