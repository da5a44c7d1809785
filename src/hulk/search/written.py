"""Pipelines written down in arrays, one entry a slot, as compiled code has them, and read back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hulk.search.skeleton import Chain, Slot

Ints = NDArray[np.int64]


def arrays_of(chains: Sequence[Chain]) -> tuple[Ints, Ints, Ints]:
    """The machine and the ranks of every slot, pipeline by pipeline, and the first slot of each pipeline, with the
    number of all slots at the end."""
    slots = np.array([slot for chain in chains for slot in chain], np.int64).T.copy()
    starts = np.zeros(len(chains) + 1, np.int64)
    starts[1:] = np.array([len(chain) for chain in chains]).cumsum()
    return slots[0], slots[1], starts


def write(chains: Sequence[Chain], machine: Ints, ranks: Ints, starts: Ints) -> int:
    """The same at the beginning of longer arrays. Returns how many pipelines there are."""
    for array, values in zip((machine, ranks, starts), arrays_of(chains), strict=True):
        array[: len(values)] = values
    return len(chains)


def read(machine: Ints, ranks: Ints, starts: Ints, pipelines: int) -> tuple[Chain, ...]:
    """The first so many pipelines of what stands in arrays."""
    firsts = starts[: pipelines + 1].tolist()
    slots = [Slot(*pair) for pair in zip(machine[: firsts[-1]].tolist(), ranks[: firsts[-1]].tolist(), strict=True)]
    return tuple(tuple(slots[a:b]) for a, b in pairwise(firsts))
