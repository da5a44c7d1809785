"""What messages share on their way, compiled: network cards, each direction of them, and the trunks between regions.

Resources are numbered for one plan of N stages: a machine's card is known by the last stage on that machine, h:

    h           the card of h's machine, outwards
    N + h       the same, inwards
    2 N + k     trunk k of the tables, in one direction
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, maker

if TYPE_CHECKING:
    from hulk.cost.step import Durations, Encoded, Tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEGLIGIBLE = 0.002
"""A resource that is at work for less than this share of the passes' time keeps nobody waiting for long."""


class Resources(NamedTuple):
    """What a plan's messages share: `host` [N] says which stage a stage's machine is known by."""

    host: Ints  # [N]
    rate: Floats  # [2 N + K] bytes/s
    busy: Floats  # [2 N + K] until when it has something to carry, seconds


@maker
def resources_of(tables: Tables, plan: Encoded) -> Resources:
    """The cards and trunks of a plan."""
    count = plan.starts[-1]
    trunks = tables.trunk_rate.shape[0]
    most = 0
    for n in range(count):
        most = max(most, plan.machine[n])
    known = np.empty(most + 1, np.int64)  # only what is written is read
    for n in range(count):
        known[plan.machine[n]] = n
    host = np.empty(count, np.int64)
    rate = np.empty(2 * count + trunks)
    for n in range(count):
        host[n] = known[plan.machine[n]]
        rate[n] = rate[count + n] = tables.card[plan.place[n]]
    rate[2 * count :] = tables.trunk_rate
    return Resources(host, rate, np.zeros(2 * count + trunks))


@inner
def resource_at(tables: Tables, plan: Encoded, shared: Resources, a: int, b: int, which: int) -> int:
    """What lies on the way from stage a to stage b: card, card, trunk; −1: nothing, or the two are on one machine."""
    if shared.host[a] == shared.host[b]:
        return -1
    count = plan.starts[-1]
    if which == 0:
        return shared.host[a]
    if which == 1:
        return count + shared.host[b]
    trunk = tables.trunk[plan.place[a], plan.place[b]]
    return 2 * count + trunk if trunk >= 0 else -1


@inner
def pass_through(tables: Tables, plan: Encoded, shared: Resources, a: int, b: int, size: float, at: float) -> float:
    """When `size` bytes that set out from stage a to stage b are through all that they share with others, who go first
    if they set out before: their own rate not counted. `at` where they share nothing."""
    end = at
    for which in range(3):
        r = resource_at(tables, plan, shared, a, b, which)
        if r >= 0:
            shared.busy[r] = max(shared.busy[r], at) + size / shared.rate[r]
            end = max(end, shared.busy[r])
    return end


@maker
def is_crowded(tables: Tables, plan: Encoded, out: Durations, shared: Resources) -> bool:
    """Whether messages between stages can keep each other waiting: some resource has messages that together want more
    than it carries, and enough of them to count."""
    total = shared.rate.shape[0]
    wanted, load = np.zeros(total), np.zeros(total)
    longest = 0.0
    for p in range(plan.microbatches.shape[0]):
        microbatches = plan.microbatches[p]
        for n in range(plan.starts[p], plan.starts[p + 1]):
            longest = max(longest, microbatches * (out.forward[n] + out.backward[n]))
            if n + 1 == plan.starts[p + 1] or shared.host[n] == shared.host[n + 1]:
                continue
            bytes_of_all = microbatches * tables.cut[plan.last[n]]
            for way in range(2):
                a, b = (n, n + 1) if way == 0 else (n + 1, n)
                for which in range(3):
                    r = resource_at(tables, plan, shared, a, b, which)
                    if r >= 0:
                        wanted[r] += out.rate[n]
                        load[r] += bytes_of_all
    for r in range(total):
        if wanted[r] > shared.rate[r] * (1 + 1e-9) and load[r] > NEGLIGIBLE * longest * shared.rate[r]:
            return True
    return False


@maker
def slowed_down(tables: Tables, plan: Encoded, out: Durations, shared: Resources) -> tuple[Floats, Floats]:
    """Seconds of each message forward and backward as if all pipelines on a resource sent theirs at the same time: for
    engines whose messages block, which keep pipelines in step."""
    count = plan.starts[-1]
    users, last_user = np.zeros(shared.rate.shape[0]), np.full(shared.rate.shape[0], -1)
    forward, backward = out.send_forward[:count].copy(), out.send_backward[:count].copy()
    for counting in (True, False):
        for p in range(plan.microbatches.shape[0]):
            for n in range(plan.starts[p], plan.starts[p + 1] - 1):
                if shared.host[n] == shared.host[n + 1]:
                    continue
                size = tables.cut[plan.last[n]]
                for way in range(2):
                    a, b = (n, n + 1) if way == 0 else (n + 1, n)
                    slowest = size / out.rate[n]
                    for which in range(3):
                        r = resource_at(tables, plan, shared, a, b, which)
                        if r < 0:
                            continue
                        if counting and last_user[r] != p:
                            users[r] += 1.0
                            last_user[r] = p
                        slowest = max(slowest, users[r] * size / shared.rate[r])
                    if not counting:
                        times = forward if way == 0 else backward
                        times[n] += slowest - size / out.rate[n]
    return forward, backward


@maker
def hold_back(tables: Tables, plan: Encoded, out: Durations, shared: Resources, stage_end: Floats) -> None:
    """Move the ends of pipelines to where the resources they use have carried all messages: the first is there after a
    forward pass, and a backward pass follows the last."""
    replicas = plan.microbatches.shape[0]
    load = np.zeros(shared.rate.shape[0])
    around = np.full(shared.rate.shape[0], np.inf)
    for counting in (True, False):
        for p in range(replicas):
            head, late = 0.0, 0.0
            for n in range(plan.starts[p], plan.starts[p + 1] - 1):
                head += out.forward[n] + out.backward[n]
                seconds = plan.microbatches[p] * tables.cut[plan.last[n]]
                for way in range(2):
                    a, b = (n, n + 1) if way == 0 else (n + 1, n)
                    for which in range(3):
                        r = resource_at(tables, plan, shared, a, b, which)
                        if r < 0:
                            continue
                        if counting:
                            load[r] += seconds / shared.rate[r]
                            around[r] = min(around[r], head)
                        else:
                            late = max(late, load[r] + around[r])
            if counting:
                continue
            first = plan.starts[p]
            if late > stage_end[first]:
                stage_end[first : plan.starts[p + 1]] += late - stage_end[first]
