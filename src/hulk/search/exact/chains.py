"""Chains: pipelines with their cuts, that is slots in the order of the stages and the last layer of each."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

from hulk.cost.arrays import Bools, Encoded, Ints
from hulk.cost.compiled import inner
from hulk.search.exact.case import Offer

FOUND, NOTHING, GAVE_UP = 0, 1, 2
"""How a compiled search ended: with something faster, with nothing faster, or before it was through."""

Rows = TypeVar("Rows", bound=tuple[Any, ...])


class Chains(NamedTuple):
    """C chains of up to L stages; slots are numbers in an `Offer`."""

    stages: Ints  # [C]
    slot: Ints  # [C, L]
    last: Ints  # [C, L]
    usage: Ints  # [C] GPUs, as one number
    most: Ints  # [C] microbatches it can do in time, at most


def empty_chains(count: int, layers: int) -> Chains:
    """Room for `count` chains."""
    return Chains(
        np.zeros(count, np.int64),
        np.zeros((count, layers), np.int64),
        np.zeros((count, layers), np.int64),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )


def rows_of(arrays: Rows, which: Ints | Bools | slice) -> Rows:
    """The same of some chains only: these rows of every array."""
    return type(arrays)(*(array[which] for array in arrays))


@inner
def write_stage(offer: Offer, q: int, plan: Encoded, n: int, first: int, last: int) -> None:
    """Write slot q with its layers into a plan as stage n."""
    plan.machine[n], plan.place[n] = offer.machine[q], offer.place[q]
    plan.kind[n], plan.ranks[n] = offer.kind[q], offer.ranks[q]
    plan.first[n], plan.last[n] = first, last


@inner
def write_chain(offer: Offer, chains: Chains, c: int, plan: Encoded, begin: int) -> int:
    """Write chain c into a plan as its stages from `begin`. Returns the stage after its last."""
    first, n = 0, begin
    for s in range(chains.stages[c]):
        last = chains.last[c, s]
        write_stage(offer, chains.slot[c, s], plan, n, first, last)
        first, n = last + 1, n + 1
    return n
