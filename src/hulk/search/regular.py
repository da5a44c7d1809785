"""Good regular plans of what free searches do not know, for machines that are all alike: passes of other orders,
chunks, stages on several machines. Going through all regular plans takes several times as long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from hulk.domain.joined import taken_apart
from hulk.domain.options import COLUMN, SPACE, Schedule, ScheduleKind, Shape
from hulk.domain.plan import JobPlan, rounds_problem
from hulk.search.job_space import JobSpace
from hulk.search.skeleton import Skeleton, skeleton_of
from hulk.search.spanning import joined_spaces
from hulk.search.uniform import (
    Uniform,
    cut_alike,
    cut_evenly,
    divides,
    first_few,
    options_on,
    orders_of,
    shape_of,
    uniform_of,
    uniform_skeletons,
)

_ORDERED = 8  # regular plans whose passes are tried in other orders
_PROMISING = 24  # of which all options are tried: those that are good without a bubble
_FEWER = 2  # forwards ahead less than a free plan has, up to which backward is tried split


def _never() -> bool:
    return False


def best_regular(space: JobSpace, machines: Sequence[int], is_over: Callable[[], bool] = _never) -> list[JobPlan]:
    """Good regular plans of what free searches do not know: with passes of other orders where these machines are all
    alike, and with stages on several of them as far as that may pay; cut evenly or with cuts of their own. The quickest
    first."""
    found: dict[JobPlan, float] = {}
    alone = [(space, machines)] if _has_other_orders(space) and _are_alike(space, machines) else []
    several = ((one, range(len(one.cluster.machines))) for one in joined_spaces(space, machines))
    known = [one for skeleton in space.regular if alone and (one := uniform_of(space, skeleton)) is not None]
    for joined, its in (*alone, *several) if known else (*several, *alone):

        def ways(joined: JobSpace = joined, its: Sequence[int] = its) -> Iterator[tuple[JobSpace, Skeleton]]:
            return ((joined, skeleton) for skeleton in uniform_skeletons(joined, its, in_turn=True))

        few = known if joined is space and known else first_few(ways, is_over)
        for one in _with_all_options(few, is_over):
            found[one.plan] = one.seconds
            found |= _in_any_order(one)
        for best in few[:_ORDERED]:
            found[best.plan] = best.seconds
            if is_over():
                break
            found |= _in_any_order(best)
            if joined.result(best.skeleton).runs:  # a free cut is sought from another side, and not always found
                own, seconds = joined.plan(best.skeleton, rounds=2)
                found[taken_apart(own, joined.cluster)] = seconds
    return sorted(found, key=found.__getitem__)


def _in_any_order(uniform: Uniform) -> dict[JobPlan, float]:
    """Its pipelines with passes of other orders, cut evenly or as they are, and the seconds of their steps."""
    encoded, options = uniform.encoded, uniform.skeleton.options
    counts = (encoded.last - encoded.first + 1)[: len(uniform.skeleton.chains[0]) * options.chunks]
    return dict(_reordered(uniform.space, uniform.skeleton, {tuple(counts.tolist())}))


def _without_bubble(uniform: Uniform) -> float:
    """Seconds of a step, were as much of its pipelines' bubble away as passes of another order can take."""
    space, options = uniform.space, uniform.skeleton.options
    replicas, stages = len(uniform.skeleton.chains), len(uniform.skeleton.chains[0])
    schedules, chunks = (SPACE[COLUMN[name]].possible(space.scope, regular=True) for name in ("schedule", "chunks"))
    most = max(number for number in chunks if divides(space, stages * number, uneven=False) or number == 1)
    left = 0.0 if any(each.splits_backward for each in schedules) else (stages - 1) / most
    share = space.job.global_batch // (options.microbatch_size * replicas)
    return uniform.seconds * (share + left) / (share + stages - 1)


def _with_all_options(few: Sequence[Uniform], is_over: Callable[[], bool]) -> Iterator[Uniform]:
    """The quickest of all regular plans with the pipelines, the microbatches and the degrees of one of these, for those
    which are good without a bubble; then of all with the pipelines of the best one. What else is best often differs
    with the order of passes, which changes what is in memory."""
    best: Uniform | None = None
    for one in sorted(few, key=_without_bubble)[:_PROMISING]:
        if is_over() or (best is not None and _without_bubble(one) >= best.seconds):
            break
        found = min(_on_its_machines(one, alike=True), key=lambda each: each.seconds, default=one)
        best = found if best is None or found.seconds < best.seconds else best
        yield found
    if best is not None and not is_over():
        yield min(_on_its_machines(best), key=lambda each: each.seconds)


def _on_its_machines(uniform: Uniform, *, alike: bool = False) -> Iterator[Uniform]:
    """All regular plans that fit and have as many pipelines of as many stages on the same GPUs; those alone that are
    `alike` in microbatches and degrees."""
    space, chains = uniform.space, uniform.skeleton.chains
    shape = Shape(len(chains), len(chains) * len(chains[0]), chains[0][0].ranks)
    listed = list(options_on(space, shape))
    for either in orders_of(sorted(slot for chain in chains for slot in chain), len(chains[0])):
        for each in (Skeleton(either, options) for options in listed):
            if alike and shape_of(space, each) != shape_of(space, uniform.skeleton):
                continue
            found = uniform_of(space, each)
            if found is not None:
                yield found


def _has_other_orders(space: JobSpace) -> bool:
    """Whether the engine has passes of orders that free searches leave out."""
    named = (SPACE[COLUMN[name]] for name in ("schedule", "chunks"))
    return any(choice.possible(space.scope, regular=True) != choice.possible(space.scope) for choice in named)


def _are_alike(space: JobSpace, machines: Sequence[int]) -> bool:
    hosts = [space.cluster.machines[machine] for machine in machines]
    return len({(host.gpu.name, host.gpus, host.region) for host in hosts}) == 1


def in_other_orders(space: JobSpace, plan: JobPlan) -> list[tuple[JobPlan, float]]:
    """Plans of the same pipelines, if they are all alike, with passes of orders that free searches do not know, as far
    as the engine has them and they fit, cut evenly or as the plan is; with the seconds of a step. The quickest
    first."""
    counts = {tuple(len(stage.layers) for stage in pipeline.stages) for pipeline in plan.pipelines}
    return _reordered(space, skeleton_of(plan, space.cluster), counts)


def _reordered(space: JobSpace, skeleton: Skeleton, cuts: Collection[tuple[int, ...]]) -> list[tuple[JobPlan, float]]:
    """The same of a skeleton; besides an even cut, with so many layers on each stage."""
    replicas, stages, options = len(skeleton.chains), len(skeleton.chains[0]), skeleton.normal_options
    ranks = [[slot.ranks for slot in chain] for chain in skeleton.chains]
    alike = all(own == ranks[0] for own in ranks)
    if stages == 1 or not alike or space.job.global_batch % (options.microbatch_size * replicas):
        return []
    share = space.job.global_batch // (options.microbatch_size * replicas)
    found = []
    for schedule, chunks in product(*_other_orders(space, options.schedule, share)):
        trial = Skeleton(skeleton.chains, replace(options, schedule=schedule, chunks=chunks))
        if trial.options == options or rounds_problem(stages, chunks, share):
            continue
        made = [cut_evenly(space, trial)] if divides(space, stages * chunks, uneven=True) else []
        made += [cut_alike(space, trial, np.array(own)) for own in cuts if len(own) == stages * chunks]
        found += [Uniform(space, trial, one[1], one[0]) for one in made if one is not None]
    return [(one.plan, one.seconds) for one in sorted(found, key=lambda one: one.seconds)]


def _other_orders(space: JobSpace, schedule: Schedule, share: int) -> tuple[list[Schedule], tuple[int, ...]]:
    """The schedules and numbers of chunks to try in place of a schedule for so many microbatches: itself among them,
    and those that split backward, with about as many forwards ahead too."""
    listed, chunks = (SPACE[COLUMN[name]].possible(space.scope, regular=True) for name in ("schedule", "chunks"))
    split = [each for each in listed if each.splits_backward]
    most = share - 1 if schedule.kind is ScheduleKind.GPIPE else min(schedule.extra, share - 1)
    ahead = [replace(each, extra=most - fewer) for each in split[:1] for fewer in range(min(most, _FEWER) + 1)]
    return [schedule, *dict.fromkeys(split + ahead)], chunks
