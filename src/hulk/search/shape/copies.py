"""A job's pipelines, more or fewer of them: no small step makes that change, since every machine is shared out anew."""

from __future__ import annotations

from collections import Counter

from hulk.search.job_space import JobSpace
from hulk.search.skeleton import Chain, Skeleton, Slot


def with_pipelines(space: JobSpace, skeleton: Skeleton, count: int) -> Skeleton:
    """`count` pipelines that all go the way of the longest there is, each with its part of every machine, its slots as
    wide as they then can be. A machine with fewer GPUs than that serves one of them, the next the next one."""
    longest = max(skeleton.chains, key=len)
    lone: dict[int, int] = {}
    for machine in dict.fromkeys(slot.machine for slot in longest):
        if space.cluster.machines[machine].gpus < count:
            lone[machine] = len(lone) % count
    made = (_part(space, longest, count, {m for m, own in lone.items() if own != which}) for which in range(count))
    return Skeleton(tuple(chain for chain in made if chain), skeleton.options)


def _part(space: JobSpace, chain: Chain, count: int, others: set[int]) -> Chain:
    """One of so many pipelines like `chain`, without the machines that serve others alone."""
    slots_on, seen, made = Counter(slot.machine for slot in chain), Counter[int](), []
    for machine, _ in chain:
        gpus = space.cluster.machines[machine].gpus
        own = 0 if machine in others else gpus // count or gpus
        if seen[machine] < own:
            width = own // min(slots_on[machine], own)
            made.append(Slot(machine, max(degree for degree in space.degrees if degree <= width)))
        seen[machine] += 1
    return tuple(made)
