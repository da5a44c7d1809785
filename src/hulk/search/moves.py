"""A machine leaves a skeleton, or enters one, or takes another's place: what replanning tries first."""

from __future__ import annotations

import numpy as np

from hulk.search.evaluate import JobSpace
from hulk.search.seeds import slots_of
from hulk.search.skeleton import Chain, Skeleton, Slot

Rng = np.random.Generator


def without(skeleton: Skeleton, machine: int) -> Skeleton | None:
    """The skeleton with a machine's slots taken out; None where nothing is left."""
    chains = tuple(
        kept for chain in skeleton.chains if (kept := tuple(slot for slot in chain if slot.machine != machine))
    )
    return Skeleton(chains, skeleton.options) if chains else None


def without_chains_of(skeleton: Skeleton, machine: int) -> Skeleton | None:
    """The skeleton without the pipelines that a machine is part of; their other machines are set free."""
    chains = tuple(chain for chain in skeleton.chains if all(slot.machine != machine for slot in chain))
    return Skeleton(chains, skeleton.options) if chains else None


def substitute(space: JobSpace, skeleton: Skeleton, old: int, new: int) -> Skeleton | None:
    """Another machine takes a machine's stages, as far as its GPUs go: with the same ranks, or with as many as it
    has."""
    gpus = space.cluster.machines[new].gpus
    chains: list[Chain] = []
    for chain in skeleton.chains:
        changed: list[Slot] = []
        for slot in chain:
            if slot.machine != old:
                changed.append(slot)
                continue
            ranks = max(t for t in space.degrees if t <= min(slot.ranks, space.cluster.machines[new].gpus))
            if gpus >= ranks:
                changed.append(Slot(new, ranks))
                gpus -= ranks
        if changed:
            chains.append(tuple(changed))
    if gpus == space.cluster.machines[new].gpus:
        return None
    return Skeleton(tuple(chains), skeleton.options)


def insertions(space: JobSpace, skeleton: Skeleton, machine: int, rng: Rng) -> list[Skeleton]:
    """Several ways to take a machine in: as replicas of its own, as one more replica, as stages of a pipeline (beside
    its nearest neighbours), or spread over several pipelines."""
    ranks_in_use = [slot.ranks for chain in skeleton.chains for slot in chain]
    degree = ranks_in_use[int(rng.integers(len(ranks_in_use)))]
    if rng.random() < 0.3:
        degree = int(rng.choice(space.degrees))
    slots = slots_of(space, machine, degree)
    chains, options = skeleton.chains, skeleton.options
    made = [Skeleton((*chains, *((slot,) for slot in slots)), options)]
    if len(slots) > 1:
        made.append(Skeleton((*chains, tuple(slots)), options))
        length = len(chains[int(rng.integers(len(chains)))])
        if 1 < length < len(slots):
            pieces = tuple(tuple(slots[i : i + length]) for i in range(0, len(slots) - length + 1, length))
            made.append(Skeleton((*chains, *pieces), options))
    at = int(rng.integers(len(chains)))
    place = _nearest_position(space, chains[at], machine)
    grown = (*chains[at][:place], *slots, *chains[at][place:])
    made.append(Skeleton((*chains[:at], grown, *chains[at + 1 :]), options))
    if len(slots) > 1 and len(chains) > 1:
        spread = list(chains)
        targets = rng.permutation(len(chains))[: len(slots)]
        for slot, target in zip(slots, targets, strict=False):
            chain = spread[target]
            place = _nearest_position(space, chain, machine)
            spread[target] = (*chain[:place], slot, *chain[place:])
        made.append(Skeleton(tuple(spread), options))
    return made


def _nearest_position(space: JobSpace, chain: Chain, machine: int) -> int:
    """Beside the slot that is nearest."""
    latency = space.latency
    rows = space.places.of_machine
    ways = [0.0 if slot.machine == machine else latency[rows[slot.machine], rows[machine]] for slot in chain]
    at = int(np.argmin(ways))
    before = ways[at - 1] if at > 0 else np.inf
    after = ways[at + 1] if at + 1 < len(chain) else np.inf
    return at if before < after else at + 1
