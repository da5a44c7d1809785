"""What targets ask of pipelines that are all alike, for the search of regular plans."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hulk.domain.options import Sharding
from hulk.search.skeleton import Skeleton


def machines_follow(skeleton: Skeleton) -> bool:
    """Whether a machine's ranks follow one another where ranks go stage by stage, in each replica by replica."""
    order = [chain[stage].machine for stage in range(len(skeleton.chains[0])) for chain in skeleton.chains]
    return len(list(groupby(order))) == len(set(order))


def experts_follow(skeleton: Skeleton) -> bool:
    """Whether GPUs that split experts follow one another in that order, all of them on one machine."""
    expert, context = skeleton.options.expert, skeleton.options.context
    if expert == 1:
        return True
    for stage in range(len(skeleton.chains[0])):
        machines = [chain[stage].machine for chain in skeleton.chains for _ in range(context)]
        if any(len(set(machines[i : i + expert])) > 1 for i in range(0, len(machines), expert)):
            return False
    return machines_follow(skeleton)


def parts_split(skeleton: Skeleton) -> bool:
    """Whether GPUs that share sequences split what they hold, as FSDP always does."""
    return skeleton.options.context == 1 or skeleton.options.sharding is not Sharding.NONE


def machines_alike(skeleton: Skeleton) -> bool:
    """Whether as many GPUs of every machine are used."""
    used = Counter[int]()
    for chain in skeleton.chains:
        for slot in chain:
            used[slot.machine] += slot.ranks
    return len(set(used.values())) == 1
