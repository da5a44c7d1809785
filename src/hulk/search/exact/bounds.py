"""What every plan of a job on a set of machines needs at least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf

import numpy as np

from hulk.cost.arrays import Floats, Tables
from hulk.search.exact.case import Bounds, Case, Offer
from hulk.search.exact.sync_bounds import first_bytes, last_bytes


def bounds_of(tables: Tables, offer: Offer) -> Bounds:
    """What every plan on these slots needs at least.

    Whatever weights layers are given (they add up to 1), a GPU that is at work on the layer with the most weight a
    second does the most; all GPUs together must do a weight of 1 per microbatch. The weights are the layers' mean
    shares of time.
    """
    both = np.diff(tables.forward[offer.kind] + tables.backward[offer.kind], axis=1)  # [Q, L] seconds
    weight = np.mean(both / both.sum(axis=1, keepdims=True), axis=0)
    speed = np.max(weight / both, axis=1) / offer.ranks
    count = len(offer.gpus)
    rate = np.array([speed[offer.local == i].max() for i in range(count)])
    row = [int(offer.place[offer.local == i][0]) for i in range(count)]
    sync = np.stack([_first_sync(tables, offer, row, size) for size in (last_bytes, first_bytes)])
    return Bounds(
        work=np.append(np.cumsum(both.min(axis=0)[::-1])[::-1], 0.0),
        share=np.append(np.cumsum(weight[::-1])[::-1], 0.0),
        rate=rate,
        sync=sync,
    )


def all_work(case: Case) -> float:
    """Seconds in which all GPUs together can do all microbatches, at least."""
    return case.total / float(case.bounds.rate @ case.offer.gpus)


def _first_sync(tables: Tables, offer: Offer, row: Sequence[int], size: Callable[[Tables, bool], float]) -> Floats:
    """[3, n] seconds to add up what `size` says of the first layer, at least, as `Bounds.sync` has them. `row`: the
    machines' places."""
    trips = 1 if tables.rules.swaps else 2
    flows = int(offer.ranks.max())
    count = len(row)
    all_bytes, own_bytes, shared_bytes = size(tables, False), size(tables, True), tables.shared * tables.wire_bytes
    with_shared, without, one_flow = (np.full((3, count), inf) for _ in range(3))
    for i, j in product(range(count), repeat=2):
        a, b = row[i], row[j]
        if i == j:
            apart, wait, rate = 0, 0.0, float(tables.local[a]) if offer.gpus[i] > 1 else 0.0
        else:
            apart, wait = 1 if tables.region[a] == tables.region[b] else 2, float(tables.latency[a, b])
            rate = float(min(tables.bandwidth[a, b] * flows, tables.ceiling[a, b]))
        if rate == 0.0:
            continue
        kinds = slice(0, apart + 1)
        for found, amount in ((with_shared, all_bytes), (without, own_bytes)):
            found[kinds, i] = np.minimum(found[kinds, i], amount / rate + trips * wait)
        # What layers share comes to each of its holders at least once, from any other, be it of the same pipeline.
        one_flow[:, i] = np.minimum(one_flow[:, i], shared_bytes / rate)
    return np.minimum(with_shared, without + one_flow) if tables.rules.shares_once else with_shared
