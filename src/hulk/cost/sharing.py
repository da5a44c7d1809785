"""What messages share on their way, compiled: network cards, each direction of them, and the trunks between regions.

Resources are numbered for one plan of N stages: a machine's card is known by the last stage on that machine, h:

    h           the card of h's machine, outwards
    N + h       the same, inwards
    2 N + k     trunk k of the tables, in one direction
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Durations, Encoded, Floats, Ints, Tables
from hulk.cost.compiled import inner, maker

JOINED = 1.75
"""The exponent k of `hold_back`."""
NEGLIGIBLE = 0.01
"""A resource that is at work for less than this share of a pipeline's time keeps nobody waiting for long."""
_CROWDED = 1 + 1e-9


class Resources(NamedTuple):
    """What a plan's messages share: `host` [N] says which stage a stage's machine is known by.

    Whoever asks what lies on a way has all of it here: a call that is handed whole tables costs more than what it does.
    """

    host: Ints  # [N]
    place: Ints  # [N]
    trunk: Ints  # [M, M]
    rate: Floats  # [2 N + K] bytes/s
    since: Floats  # [2 N + K] when it last began to be busy, seconds
    load: Floats  # [2 N + K] for how long from then on it has something to carry


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
    return Resources(host, plan.place, tables.trunk, rate, np.zeros(2 * count + trunks), np.zeros(2 * count + trunks))


@inner
def resource_at(shared: Resources, a: int, b: int, which: int) -> int:
    """What lies on the way from stage a to stage b: card, card, trunk; −1: nothing, or the two are on one machine."""
    if shared.host[a] == shared.host[b]:
        return -1
    count = shared.host.shape[0]
    if which == 0:
        return shared.host[a]
    if which == 1:
        return count + shared.host[b]
    trunk = shared.trunk[shared.place[a], shared.place[b]]
    return 2 * count + trunk if trunk >= 0 else -1


@inner
def pass_through(shared: Resources, a: int, b: int, size: float, at: float) -> float:
    """When `size` bytes that set out from stage a to stage b are through all that they share with others at work then:
    their own rate not counted. `at` where they share nothing."""
    end = at
    for which in range(3):
        r = resource_at(shared, a, b, which)
        if r < 0:
            continue
        own = size / shared.rate[r]
        if at >= shared.since[r] + shared.load[r]:  # it has nothing to do
            shared.since[r], shared.load[r] = at, own
            end = max(end, at + own)
        elif at + own <= shared.since[r]:  # through before others begin
            end = max(end, at + own)
        else:
            shared.since[r] = min(shared.since[r], at)
            shared.load[r] += own
            end = max(end, shared.since[r] + shared.load[r])
    return end


@maker
def hold_back(tables: Tables, plan: Encoded, out: Durations, shared: Resources, stage_end: Floats) -> None:
    """Move on the ends of pipelines whose messages keep each other waiting.

    Where the messages on a resource together want more than it carries, a pipeline that takes T seconds with the way to
    itself, and whose busiest such resource has L seconds of messages to carry, takes (T^k + L^k)^(1/k): L, where that
    is much more, T, where messages are few, and more than either in between, since a stage that waits for a message
    sends none. `hulk.cost.play` has no such formula; k is fitted to it.
    """
    total = shared.rate.shape[0]
    wanted, load = np.zeros(total), np.zeros(total)
    for p in range(plan.microbatches.shape[0]):
        for n in range(plan.starts[p], plan.starts[p + 1] - 1):
            if shared.host[n] == shared.host[n + 1]:
                continue
            size = plan.microbatches[p] * tables.cut[plan.last[n]]
            for way in range(2):
                a, b = (n, n + 1) if way == 0 else (n + 1, n)
                for which in range(3):
                    r = resource_at(shared, a, b, which)
                    if r >= 0:
                        wanted[r] += out.rate[n]
                        load[r] += size
    crowded = False
    for r in range(total):
        if wanted[r] > shared.rate[r] * _CROWDED:
            load[r] /= shared.rate[r]
            crowded = True
        else:
            load[r] = 0.0
    if not crowded:
        return
    for p in range(plan.microbatches.shape[0]):
        first, end = plan.starts[p], plan.starts[p + 1]
        longest = 0.0
        for n in range(first, end - 1):
            for way in range(2):
                a, b = (n, n + 1) if way == 0 else (n + 1, n)
                for which in range(3):
                    r = resource_at(shared, a, b, which)
                    if r >= 0:
                        longest = max(longest, load[r])
        alone = stage_end[first]
        if longest > NEGLIGIBLE * alone:
            stage_end[first:end] += (alone**JOINED + longest**JOINED) ** (1.0 / JOINED) - alone
