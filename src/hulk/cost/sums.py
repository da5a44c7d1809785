"""What a job adds up in a step: which stages, how many bytes, and when each has its part.

The one description of gradient sync in names: messages (`hulk.cost.traffic`), dollars (`hulk.cost.money`) and what-ifs
are made of it. `hulk.cost.sync` has the same in compiled closed forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hulk.cost.arrays import Durations, Encoded, Tables
from hulk.cost.compiled import plain
from hulk.cost.sync import is_apart, set_bytes, shared_holders


@dataclass(frozen=True, slots=True)
class Share:
    """`size` bytes of gradients that the stages `members` add up; stages are rows of the job's arrays.

    layers  first and last layer whose gradients it is; None: of parameters that layers share
    lowest  for each member, the layer that its last backward must have passed
    """

    members: tuple[int, ...]
    size: float
    layers: tuple[int, int] | None
    lowest: tuple[int, ...]


def shares(tables: Tables, plan: Encoded, durations: Durations, sets: int) -> list[Share]:
    """What is added up in a step, in the order in which every stage goes through it: gradient sets, the last layers
    first, then what layers share: once among all who have it or, pipeline by pipeline, each stage that has it with the
    first."""
    apart = plain(is_apart)(tables, plan)
    result = []
    for i in reversed(range(sets)):
        first, last = int(durations.set_first[i]), int(durations.set_last[i])
        members = holders(plan, first)
        size = float(plain(set_bytes)(tables, first, last, apart))
        result.append(Share(members, size, (first, last), (first,) * len(members)))
    if apart:
        tied = [0, *(int(layer) for layer in np.flatnonzero(np.diff(tables.tied) > 0))]
        members = tuple(int(n) for n in plain(shared_holders)(tables, plan))
        lowest = tuple(min(layer for layer in tied if layer >= plan.first[n]) for n in members)
        result.append(Share(members, tables.shared * tables.wire_bytes, None, lowest))
    if not tables.rules.shares_once:
        for first, end in zip(plan.starts[:-1].tolist(), plan.starts[1:].tolist(), strict=True):
            for n in range(first + 1, end):
                shared = float(tables.tied[plan.last[n] + 1] - tables.tied[plan.first[n]])
                if shared > 0:
                    result.append(Share((n, first), shared * tables.wire_bytes, None, (int(plan.first[n]), 0)))
    return result


def holders(plan: Encoded, layer: int) -> tuple[int, ...]:
    """The stages with a layer, in the plan's order."""
    return tuple(int(n) for n in np.flatnonzero((plan.first <= layer) & (layer <= plan.last)))


def owned(tables: Tables, plan: Encoded, wanted: Sequence[Share]) -> list[dict[int, float]]:
    """For each share, the bytes that each member updates for all where the optimizer is sharded. As
    `hulk.runtime.entries.owners` deals parameters out, each to the holder with the least so far; here in pieces of a
    layer."""
    load = np.zeros(len(plan.first))
    result: list[dict[int, float]] = [{} for _ in wanted]

    def give(index: int, size: float) -> None:
        n = min(wanted[index].members, key=lambda member: (load[member], member))
        load[n] += size
        result[index][n] = result[index].get(n, 0.0) + size

    by_members = {share.members: index for index, share in enumerate(wanted) if share.layers is not None}
    if tables.shared and wanted:
        give(len(wanted) - 1, tables.shared * tables.wire_bytes)  # apart, or with the first layers: the last either way
    for layer in range(len(tables.cut)):
        index = by_members.get(holders(plan, layer))
        if index is None:
            continue
        tied = tables.shared if layer == 0 else float(tables.tied[layer + 1] - tables.tied[layer])
        split = float(tables.split[layer + 1] - tables.split[layer]) - tied
        for part in (split, float(tables.whole[layer + 1] - tables.whole[layer])):
            if part > 0:
                give(index, part * tables.wire_bytes)
    return result
