"""What a search has seen so far and goes by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import lean
from hulk.search.deals import COLUMNS
from hulk.search.tables import SearchTables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BUCKETS = 48


class Learned(NamedTuple):
    """Sums along rows, to draw from; all zero where nothing is known yet."""

    served: Ints  # [J, BUCKETS, COLUMNS] the recipe that served a job last on groups of about a size
    takers: Floats  # [P, J + 1] sums over who has a place's machines in good deals; the last is nobody
    homes: Floats  # [J, P] sums over where a job's machines are in good deals


def nothing_learned(packed: SearchTables) -> Learned:
    """As a search begins."""
    jobs, places = len(packed.need), packed.latency.shape[0]
    served = np.zeros((jobs, BUCKETS, COLUMNS), np.int64)
    return Learned(served, np.zeros((places, jobs + 1)), np.zeros((jobs, places)))


@lean
def bucket_of(gpus: int) -> int:
    """Groups of about this size share what served them."""
    return min(BUCKETS - 1, int(2 * np.log2(gpus) + 0.5))
