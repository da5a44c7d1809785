"""Where search starts: chains for a job on given machines, tried in many shapes, and machines for every job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hulk.domain.options import Options, Recompute, Schedule, Sharding, Sync, neighbours
from hulk.search.job_space import JobSpace
from hulk.search.order import order_slots
from hulk.search.results import Result
from hulk.search.skeleton import Chain, Skeleton, Slot
from hulk.search.written import arrays_of

_SANDWICH = 64
_FEW = 10
_BREADS = 4
_MIDDLE = True

Found = tuple[Skeleton, Result]
"""A skeleton, and what is known of it."""


def tour(space: JobSpace, machines: Sequence[int], start: int | None = None) -> list[int]:
    """The machines in an order of short hops: always on to the nearest place, machines of a place together."""
    by_place: dict[int, list[int]] = {}
    for machine in machines:
        by_place.setdefault(space.places.of_machine[machine], []).append(machine)
    rows = list(by_place)
    latency = space.latency
    if start is None:
        start = max(rows, key=lambda row: sum(_gpu_weight(space, m) for m in by_place[row]))
    order = [start]
    left = np.array([row for row in rows if row != start], np.int64)
    while left.size:
        nearest = int(np.argmin(latency[order[-1], left]))
        order.append(int(left[nearest]))
        left = np.delete(left, nearest)
    return [machine for row in order for machine in by_place[row]]


def _gpu_weight(space: JobSpace, machine: int) -> float:
    host = space.cluster.machines[machine]
    return host.gpus * host.gpu.rate(space.job.precision)


def slots_of(space: JobSpace, machine: int, degree: int) -> list[Slot]:
    """A machine cut into slots of the largest allowed degree up to `degree`; GPUs that do not fill a slot stay idle."""
    gpus = space.cluster.machines[machine].gpus
    ranks = max(t for t in space.degrees if t <= min(degree, gpus))
    return [Slot(machine, ranks)] * (gpus // ranks)


def chain_shapes(
    slots: Sequence[Slot], most_stages: int, counts: Sequence[int], *, tied: bool
) -> Iterator[tuple[Chain, ...]]:
    """Ways to make pipelines of slots that stand in tour order: blocks (a pipeline stays near, replicas may be far) and
    stripes (a pipeline goes round, replicas of a stage are near), for many numbers of pipelines."""
    count = len(slots)
    for pipelines in counts:
        if -(-count // pipelines) > most_stages:
            continue
        blocks = tuple(blocks_of(slots, pipelines))
        yield blocks
        if tied:
            yield from _sandwiches(blocks)
        if 1 < pipelines < count:
            stripes = tuple(tuple(slots[i::pipelines]) for i in range(pipelines))
            yield stripes
            if tied:
                yield from _sandwiches(stripes)


def blocks_of(slots: Sequence[Slot], pipelines: int) -> list[Chain]:
    """Slots cut into so many pipelines of neighbours, of equal length or nearly so."""
    bounds = [round(i * len(slots) / pipelines) for i in range(pipelines + 1)]
    return [tuple(slots[a:b]) for a, b in pairwise(bounds) if b > a]


def _sandwiches(chains: tuple[Chain, ...]) -> Iterator[tuple[Chain, ...]]:
    """The chains with both ends on one machine, for each machine that has slots for it."""
    tried: set[int] = set()
    for slot in chains[0]:
        if slot.machine in tried or len(tried) == _BREADS:
            continue
        tried.add(slot.machine)
        turned = tuple(_with_ends_on(chain, slot.machine if chain is chains[0] else None) for chain in chains)
        if turned != chains:
            yield turned


def _with_ends_on(chain: Chain, machine: int | None) -> Chain:
    """The chain with a slot of that machine at both ends; of any machine that has two, where None is given."""
    if len(chain) < 3:
        return chain
    for wanted in [machine] if machine is not None else list(dict.fromkeys(slot.machine for slot in chain)):
        own = [i for i, slot in enumerate(chain) if slot.machine == wanted]
        if len(own) > 1:
            first, last = own[0], own[-1]
            inner = tuple(slot for i, slot in enumerate(chain) if i not in (first, last))
            return (chain[first], *inner, chain[last])
    return chain


def in_order(space: JobSpace, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
    """The chains with their slots in an order that the job's rules allow. Those without a slot for their first or last
    layer are left out, unless none would be left."""
    if not space.job.place:
        return chains
    held, layers = space.tables(space.plainest).held_until.ravel(), len(space.job.model.layers)
    kept: list[Chain] = []
    for chain in chains:
        machine, ranks, _ = arrays_of((chain,))
        if order_slots(held, layers, np.array(space.places.of_machine)[machine], machine, ranks, _MIDDLE):
            kept.append(tuple(Slot(m, t) for m, t in zip(machine.tolist(), ranks.tolist(), strict=True)))
    return tuple(kept) or chains


def _pipeline_counts(slots: int, machines: int, *, quick: bool) -> list[int]:
    if quick:
        return sorted({c for c in (1, 2, machines, slots // 8, slots // 4, slots // 2, slots) if 1 <= c <= slots})
    counts = {1, machines, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024}
    counts |= {slots, slots // 2, slots // 3, slots // 4, slots // 6, slots // 8, slots // 16, slots // 12}
    return sorted(c for c in counts if 1 <= c <= slots)


def base_options(space: JobSpace, pipelines: int, stages: int) -> list[Options]:
    """A few options to judge a shape by: a microbatch that leaves each pipeline four times as many microbatches as it
    has stages, and the smallest; with and without recomputation."""
    batch = space.job.global_batch
    good = [b for b in space.microbatches if batch // b >= 4 * stages * pipelines and b <= 16]
    smallest = space.microbatches[0]
    sizes = {good[-1] if good else smallest, smallest}
    if stages == 1:  # without a pipeline to fill, the larger the better
        sizes.add(max(b for b in space.microbatches if batch // b >= pipelines or b == smallest))
    sync = Sync.BY_REGION if pipelines > 2 else Sync.RING
    ahead = Schedule.ahead(2 if stages > 1 else 0)
    usual = replace(space.plainest, sync=sync, sharding=_sharding(pipelines), sequence_parallel=space.splits_sequences)
    made = [
        replace(usual, microbatch_size=size, schedule=ahead, recompute=recompute)
        for size in sorted(sizes, reverse=True)
        for recompute in (Recompute.NONE, Recompute.FULL)
    ]
    if stages > 1:  # many small microbatches in flight hide long links
        made.insert(1, replace(usual, microbatch_size=smallest, schedule=Schedule.ahead(16)))
    return made


def _sharding(pipelines: int) -> Sharding:
    """What so many replicas split at first: what mostly pays."""
    return Sharding.OPTIMIZER if pipelines > 1 else Sharding.NONE


def tune(space: JobSpace, skeleton: Skeleton, *, rounds: int = 9) -> Found:
    """One option after the other to its best value, until none helps."""
    best = space.result(skeleton)
    for _ in range(rounds):
        before = best
        for options in list(neighbours(skeleton.options, space.scope)):
            trial = Skeleton(skeleton.chains, options)
            result = space.result(trial)
            if result < best:
                skeleton, best = trial, result
        if best == before:
            break
    return skeleton, best


def arrange(space: JobSpace, machines: Sequence[int], *, keep: int = 2, quick: bool = False) -> Found | None:
    """The best shape found for a job on these machines, all of them used, or None where the job may use none of them.

    Where no shape fits, the answer is the one closest to fitting. `quick` tries fewer shapes, and first with the
    options that served this job best the last time.
    """
    usable = [machine for machine in machines if machine in space.allowed]
    if not usable:
        return None
    order = tour(space, usable)
    layers = len(space.job.model.layers)
    tied = any(layer.tied for layer in space.job.model.layers)
    found: list[Found] = []
    seen: set[tuple[Chain, ...]] = set()
    degrees = space.degrees
    if quick:
        degrees = tuple(sorted({1, *(t for t in degrees if t in (2, 8)), max(t for t in degrees if t <= 8)}))
    for degree in degrees:
        slots = [slot for machine in order for slot in slots_of(space, machine, degree)]
        counts = _pipeline_counts(len(slots), len(usable), quick=quick)
        for shaped in chain_shapes(slots, layers, counts, tied=tied and len(slots) <= (_FEW if quick else _SANDWICH)):
            chains = in_order(space, shaped)
            if chains in seen:
                continue
            seen.add(chains)
            stages = max(len(chain) for chain in chains)
            tried = base_options(space, len(chains), stages)
            favourite = space.favourites.get(_likeness(chains))
            if quick and favourite is not None:
                tried.insert(0, replace(favourite, sharding=_sharding(len(chains))))
            for options in tried:
                skeleton = Skeleton(chains, options)
                found.append((skeleton, space.result(skeleton)))
                if found[-1][1].runs and (options.recompute is Recompute.FULL or (quick and favourite is not None)):
                    break
    if not found:
        return None
    found.sort(key=lambda entry: entry[1])
    few = 1 if quick else keep
    tuned = [tune(space, skeleton, rounds=1 if quick else 9) for skeleton, _ in found[:few]]
    best = min(tuned, key=lambda entry: entry[1])
    if best[1].runs:
        space.favourites[_likeness(best[0].chains)] = best[0].options
    return best


def _likeness(chains: tuple[Chain, ...]) -> tuple[bool, bool]:
    """Shapes that like the same options: with replicas or without, with stages or without."""
    return len(chains) > 1, max(len(chain) for chain in chains) > 1
