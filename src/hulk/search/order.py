"""The slots of a pipeline in an order that rules about layers allow, compiled. Where a job has rules, most orders
cannot run: the first slot must be where the first layer may be, the last one where the last layer may be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inner, lean

Ints = NDArray[np.int64]


@lean
def order_slots(held: Ints, layers: int, place: Ints, machine: Ints, ranks: Ints, middle: bool) -> bool:
    """Bring a pipeline's slots into an order that rules allow, in place, and change no more than that needs. The ends
    first; with `middle`, also a slot for each layer at which a stage would begin if all held as many.

    False where no slot may be the first or the last. `held`: `Tables.held_until`, row after row.
    """
    count = machine.shape[0]
    if count > layers:
        return True  # it does not run in any order
    first = -1
    for i in range(count - 1, -1, -1):
        if held[place[i] * layers] >= 0:
            first = i
    if first < 0:
        return False
    if count == 1:
        return bool(held[place[0] * layers] == layers - 1)
    _move(place, machine, ranks, first, 0)
    last = -1
    for i in range(1, count):
        if held[place[i] * layers + layers - 1] >= 0:
            last = i
    if last < 0:
        return False
    _move(place, machine, ranks, last, count - 1)
    for i in range(1, count - 1 if middle else 0):
        layer = i * layers // count
        for k in range(i, count - 1):
            if held[place[k] * layers + layer] >= 0:
                _move(place, machine, ranks, k, i)
                break
    return True


@inner
def _move(place: Ints, machine: Ints, ranks: Ints, old: int, new: int) -> None:
    """A slot to another position; those between move up."""
    step = 1 if new > old else -1
    its_place, its_machine, its_ranks = place[old], machine[old], ranks[old]
    for i in range(old, new, step):
        place[i], machine[i], ranks[i] = place[i + step], machine[i + step], ranks[i + step]
    place[new], machine[new], ranks[new] = its_place, its_machine, its_ranks
