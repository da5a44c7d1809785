"""Small changes to skeletons. Each returns new skeletons for the jobs it touches, or None where it does not apply."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from hulk.domain.plan import Recompute, Sync
from hulk.search.evaluate import JobSpace
from hulk.search.seeds import slots_of
from hulk.search.skeleton import Chain, Settings, Skeleton, Slot

T = TypeVar("T")
Rng = np.random.Generator
_EXTRAS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def without(skeleton: Skeleton, machine: int) -> Skeleton | None:
    """The skeleton with a machine's slots taken out; None where nothing is left."""
    chains = tuple(
        kept for chain in skeleton.chains if (kept := tuple(slot for slot in chain if slot.machine != machine))
    )
    return Skeleton(chains, skeleton.settings) if chains else None


def without_chains_of(skeleton: Skeleton, machine: int) -> Skeleton | None:
    """The skeleton without the pipelines that a machine is part of; their other machines are set free."""
    chains = tuple(chain for chain in skeleton.chains if all(slot.machine != machine for slot in chain))
    return Skeleton(chains, skeleton.settings) if chains else None


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
    return Skeleton(tuple(chains), skeleton.settings)


def insertions(space: JobSpace, skeleton: Skeleton, machine: int, rng: Rng) -> list[Skeleton]:
    """Several ways to take a machine in: as replicas of its own, as one more replica, as stages of a pipeline (beside
    its nearest neighbours), or spread over several pipelines."""
    ranks_in_use = [slot.ranks for chain in skeleton.chains for slot in chain]
    degree = ranks_in_use[int(rng.integers(len(ranks_in_use)))]
    if rng.random() < 0.3:
        degree = int(rng.choice(space.degrees))
    slots = slots_of(space, machine, degree)
    chains, settings = skeleton.chains, skeleton.settings
    made = [Skeleton((*chains, *((slot,) for slot in slots)), settings)]
    if len(slots) > 1:
        made.append(Skeleton((*chains, tuple(slots)), settings))
        length = len(chains[int(rng.integers(len(chains)))])
        if 1 < length < len(slots):
            pieces = tuple(tuple(slots[i : i + length]) for i in range(0, len(slots) - length + 1, length))
            made.append(Skeleton((*chains, *pieces), settings))
    at = int(rng.integers(len(chains)))
    place = _nearest_position(space, chains[at], machine)
    grown = (*chains[at][:place], *slots, *chains[at][place:])
    made.append(Skeleton((*chains[:at], grown, *chains[at + 1 :]), settings))
    if len(slots) > 1 and len(chains) > 1:
        spread = list(chains)
        targets = rng.permutation(len(chains))[: len(slots)]
        for slot, target in zip(slots, targets, strict=False):
            chain = spread[target]
            place = _nearest_position(space, chain, machine)
            spread[target] = (*chain[:place], slot, *chain[place:])
        made.append(Skeleton(tuple(spread), settings))
    return made


def _nearest_position(space: JobSpace, chain: Chain, machine: int) -> int:
    """Beside the slot that is nearest."""
    latency = space.tables(Settings(space.microbatches[0])).latency
    rows = space.places.of_machine
    ways = [0.0 if slot.machine == machine else latency[rows[slot.machine], rows[machine]] for slot in chain]
    at = int(np.argmin(ways))
    before = ways[at - 1] if at > 0 else np.inf
    after = ways[at + 1] if at + 1 < len(chain) else np.inf
    return at if before < after else at + 1


def reshape(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """One random change inside a job."""
    return _RESHAPES[int(rng.integers(len(_RESHAPES)))](space, skeleton, rng)


def _move_slot(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """A slot to another position, in any pipeline or in one of its own."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    source = int(rng.integers(len(chains)))
    slot = chains[source].pop(int(rng.integers(len(chains[source]))))
    target = int(rng.integers(len(chains) + 1))
    if target == len(chains):
        chains.append([slot])
    else:
        chains[target].insert(int(rng.integers(len(chains[target]) + 1)), slot)
    return _made(chains, skeleton.settings)


def _runs(chain: Chain | list[Slot]) -> list[tuple[int, int]]:
    """Neighbouring slots of one machine, as (begin, end) in the chain."""
    bounds = [0, *(i for i in range(1, len(chain)) if chain[i].machine != chain[i - 1].machine), len(chain)]
    return list(pairwise(bounds))


def _pick(items: list[T], rng: Rng) -> T:
    return items[int(rng.integers(len(items)))]


def _move_run(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """All neighbouring slots of a machine to another place between machines: a long pipeline keeps its few long
    hops."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    source = int(rng.integers(len(chains)))
    begin, end = _pick(_runs(chains[source]), rng)
    run = chains[source][begin:end]
    del chains[source][begin:end]
    target = int(rng.integers(len(chains)))
    places = [0, *(stop for _, stop in _runs(chains[target]))] if chains[target] else [0]
    at = _pick(places, rng)
    chains[target][at:at] = run
    return _made(chains, skeleton.settings)


def _swap_runs(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """Two machines' runs change places."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    spots = [(p, begin, end) for p, chain in enumerate(chains) for begin, end in _runs(chain)]
    if len(spots) < 2:
        return None
    i, j = sorted(int(x) for x in rng.choice(len(spots), 2, replace=False))
    (p, a, b), (q, c, d) = spots[i], spots[j]
    one, two = chains[p][a:b], chains[q][c:d]
    chains[q][c:d] = one  # the later one first, so that the earlier one's place stays where it was
    chains[p][a:b] = two
    return _made(chains, skeleton.settings)


def _split_run(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """One slot of a machine goes to the other end of its pipeline: both ends of a model that shares its embedding like
    to be on one machine."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    at = int(rng.integers(len(chains)))
    chain = chains[at]
    if len(chain) < 3:
        return None
    if rng.random() < 0.5:
        chain.append(chain.pop(0))
    else:
        chain.insert(0, chain.pop())
    return _made(chains, skeleton.settings)


def _drop_slot(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """A slot stays idle."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    source = int(rng.integers(len(chains)))
    chains[source].pop(int(rng.integers(len(chains[source]))))
    return _made(chains, skeleton.settings)


def _use_idle_gpus(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """Idle GPUs of a machine in use get a slot, in a pipeline or as one."""
    used: dict[int, int] = {}
    for chain in skeleton.chains:
        for slot in chain:
            used[slot.machine] = used.get(slot.machine, 0) + slot.ranks
    machines = space.cluster.machines
    spare = [(machine, machines[machine].gpus - ranks) for machine, ranks in used.items()]
    spare = [(machine, count) for machine, count in spare if count >= space.degrees[0]]
    if not spare:
        return None
    machine, count = spare[int(rng.integers(len(spare)))]
    ranks = int(rng.choice([t for t in space.degrees if t <= count]))
    chains = [list(chain) for chain in skeleton.chains]
    target = int(rng.integers(len(chains) + 1))
    if target == len(chains):
        chains.append([Slot(machine, ranks)])
    else:
        chains[target].insert(_nearest_position(space, tuple(chains[target]), machine), Slot(machine, ranks))
    return _made(chains, skeleton.settings)


def _swap_slots(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """Two slots change places."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    spots = [(p, s) for p, chain in enumerate(chains) for s in range(len(chain))]
    if len(spots) < 2:
        return None
    i, j = rng.choice(len(spots), 2, replace=False)
    (a, b), (c, d) = spots[int(i)], spots[int(j)]
    if chains[a][b] == chains[c][d]:
        return None
    chains[a][b], chains[c][d] = chains[c][d], chains[a][b]
    return _made(chains, skeleton.settings)


def _reverse(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """Part of a pipeline the other way round."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    at = int(rng.integers(len(chains)))
    if len(chains[at]) < 2:
        return None
    i, j = sorted(int(x) for x in rng.choice(len(chains[at]) + 1, 2, replace=False))
    chains[at][i:j] = chains[at][i:j][::-1]
    return _made(chains, skeleton.settings)


def _reslice(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """A machine's slots get another tensor parallel degree; what it held goes on in the same places."""
    machines = sorted(skeleton.machines)
    machine = machines[int(rng.integers(len(machines)))]
    fitting = [t for t in space.degrees if t <= space.cluster.machines[machine].gpus]
    ranks = int(rng.choice(fitting))
    spare = space.cluster.machines[machine].gpus
    one_for_one = rng.random() < 0.5
    chains: list[list[Slot]] = []
    for chain in skeleton.chains:
        changed: list[Slot] = []
        for slot in chain:
            if slot.machine != machine:
                changed.append(slot)
                continue
            count = 1 if one_for_one else max(1, slot.ranks // ranks)
            for _ in range(count):
                if spare >= ranks:
                    changed.append(Slot(machine, ranks))
                    spare -= ranks
        chains.append(changed)
    return _made(chains, skeleton.settings)


def _resplit(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """A slot becomes two neighbours, or two neighbours of one machine become one: a machine may be cut unevenly."""
    chains = [list(chain) for chain in skeleton.chains]
    chain = chains[int(rng.integers(len(chains)))]
    at = int(rng.integers(len(chain)))
    machine, ranks = chain[at]
    if at + 1 < len(chain) and chain[at + 1].machine == machine and ranks + chain[at + 1].ranks in space.degrees:
        chain[at : at + 2] = [Slot(machine, ranks + chain[at + 1].ranks)]
        return _made(chains, skeleton.settings)
    parts = [t for t in space.degrees if t < ranks and ranks - t in space.degrees]
    if not parts:
        return None
    part = int(rng.choice(parts))
    chain[at : at + 1] = [Slot(machine, part), Slot(machine, ranks - part)]
    return _made(chains, skeleton.settings)


def _split(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """A pipeline becomes two: cut in the middle, or every other slot."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    at = int(rng.integers(len(chains)))
    chain = chains[at]
    if len(chain) < 2:
        return None
    if rng.random() < 0.5:
        where = int(rng.integers(1, len(chain)))
        chains[at : at + 1] = [chain[:where], chain[where:]]
    else:
        chains[at : at + 1] = [chain[::2], chain[1::2]]
    return _made(chains, skeleton.settings)


def _merge(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """Two pipelines become one."""
    del space
    chains = [list(chain) for chain in skeleton.chains]
    if len(chains) < 2:
        return None
    i, j = (int(x) for x in rng.choice(len(chains), 2, replace=False))
    merged = chains[i] + chains[j]
    return _made([chain for k, chain in enumerate(chains) if k not in (i, j)] + [merged], skeleton.settings)


def _drop_chain(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """A replica less."""
    del space
    if len(skeleton.chains) < 2:
        return None
    at = int(rng.integers(len(skeleton.chains)))
    return Skeleton((*skeleton.chains[:at], *skeleton.chains[at + 1 :]), skeleton.settings)


def _change_settings(space: JobSpace, skeleton: Skeleton, rng: Rng) -> Skeleton | None:
    """One switch, or the microbatch with one."""
    return Skeleton(skeleton.chains, changed_settings(space, skeleton.settings, rng))


def changed_settings(space: JobSpace, settings: Settings, rng: Rng) -> Settings:
    """Settings with one switch changed, or the microbatch and one; the same where there is no such microbatch."""
    which = int(rng.integers(6))
    if which in (0, 5):
        sizes = space.microbatches
        at = sizes.index(settings.microbatch) + int(rng.choice([-2, -1, 1, 2]))
        if not 0 <= at < len(sizes):
            return settings
        settings = replace(settings, microbatch=sizes[at])
    if which in (1, 5):
        other = Recompute.NONE if settings.recompute is Recompute.FULL else Recompute.FULL
        settings = replace(settings, recompute=other)
    if which == 2:
        settings = replace(settings, extra=int(rng.choice(_EXTRAS)), gpipe=bool(rng.random() < 0.1))
    if which == 3:
        settings = replace(settings, sync=Sync.RING if settings.sync is Sync.BY_REGION else Sync.BY_REGION)
    if which == 4:
        settings = replace(settings, shard_optimizer=not settings.shard_optimizer)
    return settings


def _made(chains: list[list[Slot]], settings: Settings) -> Skeleton | None:
    kept = tuple(tuple(chain) for chain in chains if chain)
    return Skeleton(kept, settings) if kept else None


_RESHAPES = (
    _move_slot, _move_run, _move_run, _drop_slot, _use_idle_gpus, _swap_slots, _swap_runs, _swap_runs, _split_run,
    _reverse, _reslice, _reslice, _resplit, _resplit,
    _split, _merge, _drop_chain, _change_settings, _change_settings, _change_settings,
)  # fmt: skip
