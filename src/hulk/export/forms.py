"""What targets ask of pipelines that are all alike, for the search of regular plans."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hulk.search.skeleton import Skeleton


def machines_follow(skeleton: Skeleton) -> bool:
    """Whether a machine's ranks follow one another where ranks go stage by stage, in each replica by replica."""
    order = [chain[stage].machine for stage in range(len(skeleton.chains[0])) for chain in skeleton.chains]
    return len(list(groupby(order))) == len(set(order))


def machines_alike(skeleton: Skeleton) -> bool:
    """Whether as many GPUs of every machine are used."""
    used = Counter[int]()
    for chain in skeleton.chains:
        for slot in chain:
            used[slot.machine] += slot.ranks
    return len(set(used.values())) == 1
