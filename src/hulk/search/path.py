"""A way through all places whose hops are short, compiled: what a pipeline over many regions goes along."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import kernel, maker

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ROUNDS = 40
_NEARLY = 1 - 1e-12


def positions(seconds: Floats) -> Ints:
    """[P] each place's position on the way. `seconds` [P, P]: what a hop takes. A pipeline is as slow as its slowest
    hop, so long hops count by their cube; blocked ones more than all others together."""
    return _positions(seconds.tobytes(), len(seconds)).copy()


@lru_cache(maxsize=4)
def _positions(content: bytes, places: int) -> Ints:
    """The same, kept: several searches go over one cluster, and a thousand places take a second."""
    seconds = np.frombuffer(content).reshape((places, places))
    reached = np.where(np.isfinite(seconds), seconds, 0.0)
    hops = (reached / (reached.max() or 1.0)) ** 3
    hops[~np.isfinite(seconds)] = 10.0 * (1 + places)
    np.fill_diagonal(hops, 0.0)
    # A closed way with one place more, next to all: without that place it is open, its ends wherever that is best.
    cost = np.zeros((places + 1, places + 1))
    cost[:places, :places] = 0.5 * (hops + hops.T)
    order = shortened(cost).tolist()
    gap = order.index(places)
    found = np.empty(places, np.int64)
    found[order[gap + 1 :] + order[:gap]] = np.arange(places)
    return found


@kernel
def shortened(cost: Floats) -> Ints:
    """A closed way: from the first place on to the nearest, then parts turned round or moved while that helps."""
    places = cost.shape[0]
    order = np.arange(places)
    for i in range(1, places):
        nearest = i
        for k in range(i + 1, places):
            if cost[order[i - 1], order[k]] < cost[order[i - 1], order[nearest]]:
                nearest = k
        order[i], order[nearest] = order[nearest], order[i]
    for _ in range(_ROUNDS):
        if not (_turn_parts(cost, order) | _move_parts(cost, order)):
            break
    return order


@maker
def _turn_parts(cost: Floats, order: Ints) -> bool:
    """Turn round every part for which the way gets shorter."""
    places, is_better = order.shape[0], False
    for i in range(1, places - 1):
        for k in range(i + 1, places):
            a, b, c, d = order[i - 1], order[i], order[k], order[(k + 1) % places]
            if cost[a, c] + cost[b, d] < (cost[a, b] + cost[c, d]) * _NEARLY:
                order[i : k + 1] = order[i : k + 1][::-1].copy()
                is_better = True
    return is_better


@maker
def _move_parts(cost: Floats, order: Ints) -> bool:
    """Move one to three neighbours to wherever the way gets shortest by it."""
    places, is_better = order.shape[0], False
    for size in range(1, min(4, places - 2)):
        for i in range(places - size):
            before, first, last, after = order[i - 1], order[i], order[i + size - 1], order[(i + size) % places]
            gain = cost[before, first] + cost[last, after] - cost[before, after]
            best, to = gain * _NEARLY - 1e-18, -1
            for k in range(places):
                if i - 1 <= k <= i + size - 1 or (i == 0 and k == places - 1):
                    continue
                a, b = order[k], order[(k + 1) % places]
                more = cost[a, first] + cost[last, b] - cost[a, b]
                if more < best:
                    best, to = more, k
            if to >= 0:
                part = order[i : i + size].copy()
                rest = np.concatenate((order[:i], order[i + size :]))
                at = to + 1 if to < i else to + 1 - size
                order[:] = np.concatenate((rest[:at], part, rest[at:]))
                is_better = True
    return is_better
