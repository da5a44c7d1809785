"""Room that the compiled search works in: a job's pipelines as slots and stages, and what has been priced."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Durations, empty_durations
from hulk.search.price_cache import PriceCache, empty_cache
from hulk.search.tables import OPTIONS, SearchTables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Workspace(NamedTuple):
    """Arrays to work in. N: GPUs of the cluster. The pipelines at hand are `machine`, `ranks` and `starts`."""

    slot_machine: Ints
    slot_ranks: Ints
    order: Ints  # places along a tour
    power: Floats  # [P]
    starts: Ints
    machine: Ints
    place: Ints
    kind: Ints
    ranks: Ints
    first: Ints
    last: Ints
    microbatches: Ints
    warmup: Ints
    kept: Ints
    options: Ints  # [F] as compiled code has them
    places: Ints  # [F] where their values stand among those tried
    scratch: Floats
    out: Durations
    pipelines: Ints  # [1] how many the last skeleton has
    twins: Ints  # [1] how many pipelines each of those at hand stands for
    aside_machine: Ints  # the pipelines that are not at hand meanwhile
    aside_ranks: Ints
    aside_starts: Ints
    aside: Ints  # [1] how many those are
    memo: PriceCache


def make_workspace(packed: SearchTables) -> Workspace:
    """Room for the largest group there can be."""
    slots = int(packed.gpus.sum())

    def ints(n: int = slots) -> Ints:
        return np.zeros(n, np.int64)

    places = packed.latency.shape[0]
    return Workspace(
        slot_machine=ints(),
        slot_ranks=ints(),
        order=ints(places),
        power=np.zeros(places),
        starts=ints(slots + 2),
        machine=ints(),
        place=ints(),
        kind=ints(),
        ranks=ints(),
        first=ints(),
        last=ints(),
        microbatches=ints(),
        warmup=ints(),
        kept=ints(),
        options=ints(OPTIONS),
        places=ints(OPTIONS),
        scratch=np.zeros(2 * slots),
        out=empty_durations(slots),
        pipelines=ints(1),
        twins=np.ones(1, np.int64),
        aside_machine=ints(),
        aside_ranks=ints(),
        aside_starts=ints(slots + 2),
        aside=ints(1),
        memo=empty_cache(len(packed.gpus)),
    )
