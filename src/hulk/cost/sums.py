"""What a job adds up in a step, as values: which stages, in which groups, how many bytes, and when each has its part.

`hulk.cost.sync` tells it once, in arrays; here are the same arrays for those who go through it sum by sum: messages
(`hulk.cost.traffic`), dollars (`hulk.cost.money`) and what-ifs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hulk.cost.arrays import BY_REGION, EVERYWHERE, SYNC, WITHIN, Durations, Encoded, Tables
from hulk.cost.compiled import plain
from hulk.cost.sharding import is_near
from hulk.cost.sync import buckets_of, chain_up, holders_of, is_apart, shared_bytes, shared_holders, tied_bytes


@dataclass(frozen=True, slots=True)
class Share:
    """`size` bytes of gradients that the stages `members` add up; stages are rows of the job's arrays.

    layers   first and last layer whose gradients it is; None: of parameters that layers share
    lowest   for each member, the layer that its last backward must have passed
    chains   the members in groups, the first of which leads: chains add up onto their leaders, the leaders do a ring,
             and the chains spread the sum. In a ring of all members everyone leads
    buckets  in how many parts it is added up, one after the other
    """

    members: tuple[int, ...]
    size: float
    layers: tuple[int, int] | None
    lowest: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...]
    buckets: int

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first stage of each chain."""
        return tuple(chain[0] for chain in self.chains)

    def hops(self) -> Iterator[tuple[int, int, float]]:
        """(sender, receiver, bytes) of all that moves for it."""
        for chain in self.chains:
            for a, b in pairwise(chain):
                yield b, a, self.size
                yield a, b, self.size
        ring = self.leaders
        if len(ring) > 1:
            part = 2 * (len(ring) - 1) / len(ring) * self.size
            for a, b in pairwise((*ring, ring[0])):
                yield a, b, part


def shares(tables: Tables, plan: Encoded, durations: Durations, sets: int) -> list[Share]:
    """What is added up in a step, in the order in which every stage goes through it."""

    def share(
        members: tuple[int, ...], size: float, layers: tuple[int, int] | None, lowest: tuple[int, ...], *, pair: bool
    ) -> Share:
        chains = (
            tuple((n,) for n in members)
            if pair or plan.options[SYNC] != BY_REGION
            else by_region(tables, plan, members)
        )
        return Share(members, size, layers, lowest, chains, int(plain(buckets_of)(tables, size)))

    result = []
    holders = holders_of(plan, durations.set_first[:sets])
    for i in reversed(range(sets)):
        first, last = int(durations.set_first[i]), int(durations.set_last[i])
        members = tuple(holders[i].tolist())
        lowest = (first,) * len(members)
        result.append(share(members, float(durations.set_size[i]), (first, last), lowest, pair=False))
    if is_apart(tables, plan):
        tied = [0, *(int(layer) for layer in np.flatnonzero(np.diff(tables.tied) > 0))]
        members = tuple(shared_holders(tables, plan).tolist())
        lowest = tuple(min(layer for layer in tied if layer >= plan.first[n]) for n in members)
        result.append(share(members, float(plain(shared_bytes)(tables)), None, lowest, pair=False))
    if not tables.rules.shares_once:
        for first, end in pairwise(plan.starts.tolist()):
            for n in range(first + 1, end):
                size = float(plain(tied_bytes)(tables, plan, n))
                if size > 0:
                    result.append(share((n, first), size, None, (int(plan.first[n]), 0), pair=True))
    return result


def by_region(tables: Tables, plan: Encoded, members: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The members of each region, in their order."""
    chain, before = np.empty((2, len(members)), np.int64)
    chains: list[list[int]] = [[] for _ in range(chain_up(tables.region[plan.place[list(members)]], chain, before))]
    for n, its in zip(members, chain.tolist(), strict=True):
        chains[its].append(n)
    return tuple(tuple(chain) for chain in chains)


def owned(tables: Tables, plan: Encoded, wanted: Sequence[Share]) -> list[dict[int, float]]:
    """For each share, the bytes that each member updates for all near it where the optimizer is sharded. As
    `hulk.runtime.shards` deals parameters out, each to the holder with the least so far; here in pieces of a layer."""
    load = np.zeros(len(plan.first))
    groups = [_groups(tables, plan, share.members) for share in wanted]
    result: list[dict[int, float]] = [{} for _ in wanted]

    def give(index: int, size: float) -> None:
        for group in groups[index]:
            n = min(group, key=lambda member: (load[member], member))
            load[n] += size
            result[index][n] = result[index].get(n, 0.0) + size

    if tables.shared and wanted:  # apart, or with the first layers: the last share either way
        give(len(wanted) - 1, float(plain(shared_bytes)(tables)))
    sets = [(index, share.layers) for index, share in enumerate(wanted) if share.layers is not None]
    for index, (first, last) in reversed(sets):
        for layer in range(first, last + 1):
            tied = tables.shared if layer == 0 else float(tables.tied[layer + 1] - tables.tied[layer])
            split = float(tables.split[layer + 1] - tables.split[layer]) - tied
            for part in (split, float(tables.whole[layer + 1] - tables.whole[layer])):
                if part > 0:
                    give(index, part * tables.wire_bytes)
    return result


def _groups(tables: Tables, plan: Encoded, members: Sequence[int]) -> list[list[int]]:
    """Members by whom they split with what is sharded."""
    if plan.options[WITHIN] == EVERYWHERE:
        return [list(members)]
    found: list[list[int]] = []
    for n in members:
        group = next((group for group in found if plain(is_near)(tables, plan, group[0], n)), None)
        if group is None:
            found.append([n])
        else:
            group.append(n)
    return found
