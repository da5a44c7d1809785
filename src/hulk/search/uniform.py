"""The best regular plan: every set of degrees and options that the machines, the batch and the engine allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, permutations, product

import numpy as np

from hulk.cost.arrays import Encoded
from hulk.cost.step import seconds_of
from hulk.domain.joined import taken_apart
from hulk.domain.model import LayerKind
from hulk.domain.options import SPACE, Options, Schedule, ScheduleKind, Shape, Sync, Within, normal
from hulk.domain.plan import JobPlan, Plan, idle_machines, rounds_problem
from hulk.domain.regular import even_layers
from hulk.search.form import ANY, Form
from hulk.search.job_space import JobSpace
from hulk.search.least import UNCOUNTED, counting, recompute_least
from hulk.search.request import Request
from hulk.search.skeleton import Chain, Skeleton, Slot, held_by, to_job_plan
from hulk.search.spanning import joined_spaces

_SCHEDULES = (Schedule(), Schedule.ahead(4), Schedule(ScheduleKind.ZERO_BUBBLE))
"""Those that regular plans are tried with: few, since a hall's links are short."""
_AT_ONCE = 64  # plans between two looks at the clock
_APART = 17  # plans, every so manyth of which comes before all: lists of options have other lengths
_MOST_NUMBERS = 2  # of replicas that are tried for a number of stages
_RECUT = 12  # plans with an even cut whose cut is changed
_FEW_STAGES = 16  # up to which blocks move between any two stages, not only between neighbours


@dataclass(frozen=True)
class Uniform:
    """A regular plan: its pipelines and options, its even cut in numbers, and the seconds of a step, as a search takes
    them."""

    space: JobSpace
    skeleton: Skeleton
    encoded: Encoded
    seconds: float

    @property
    def plan(self) -> JobPlan:
        """The plan itself."""
        names = tuple(machine.name for machine in self.space.cluster.machines)
        held = held_by(self.encoded, self.space.job)
        made = to_job_plan(self.skeleton, names, held, self.encoded.microbatches.tolist())
        return taken_apart(made, self.space.cluster)


def _never() -> bool:
    return False


def best_uniform(
    space: JobSpace,
    machines: Sequence[int],
    form: Form = ANY,
    *,
    is_over: Callable[[], bool] = _never,
    in_turn: bool = False,
) -> Uniform | None:
    """The regular plan with the shortest step on these machines in their order, of all, or of those that were looked at
    when it `is_over`; None where none fits. `in_turn`: of those that free searches know, which are stages on one
    machine and passes of one order."""
    best = first_few(lambda: _everywhere(space, machines, form, in_turn=in_turn), is_over)
    if in_turn:
        space.regular = [one.skeleton for one in best]
    if form.uneven:
        best = sorted((_recut(plan, is_over) for plan in best[:_RECUT]), key=lambda plan: plan.seconds)
    return best[0] if best else None


def first_few(
    skeletons: Callable[[], Iterator[tuple[JobSpace, Skeleton]]], is_over: Callable[[], bool]
) -> list[Uniform]:
    """The quickest of them, cut evenly, as far as they fit; one of each shape: of many that differ in what hardly
    matters, all but one would be in the way. Every so many come before all: when it is over, something was seen of
    every shape."""
    best: dict[tuple[int, ...], Uniform] = {}
    for number, (space, skeleton) in enumerate(chain(islice(skeletons(), 0, None, _APART), skeletons())):
        if number % _AT_ONCE == 0 and is_over():
            break
        key = shape_of(space, skeleton)
        found = uniform_of(space, skeleton)
        if found is not None and (key not in best or found.seconds < best[key].seconds):
            best[key] = found
    return sorted(best.values(), key=lambda plan: plan.seconds)


def shape_of(space: JobSpace, skeleton: Skeleton) -> tuple[int, ...]:
    """What tells regular pipelines apart that are worth a look each."""
    chains, options = skeleton.chains, skeleton.options
    sizes = (len(space.cluster.machines), len(chains), len(chains[0]), chains[0][0].ranks)
    return (*sizes, options.microbatch_size, options.context, options.expert)


def _recut(uniform: Uniform, is_over: Callable[[], bool]) -> Uniform:
    """The same pipelines with blocks moved from stage to stage as long as that makes steps shorter."""
    stages = len(uniform.skeleton.chains[0]) * uniform.skeleton.options.chunks
    pairs = [(a, b) for a, b in permutations(range(stages), 2) if stages <= _FEW_STAGES or abs(a - b) == 1]
    blocks = [kind is LayerKind.BLOCK for kind in uniform.space.job.model.kinds]
    best, better = uniform, True
    while better and not is_over():
        better = False
        for source, target in pairs:
            counts = (best.encoded.last - best.encoded.first + 1)[:stages].copy()
            first = int(counts[:source].sum())
            if sum(blocks[first : first + int(counts[source])]) < 2:
                continue
            counts[source] -= 1
            counts[target] += 1
            found = cut_alike(best.space, best.skeleton, counts)
            if found is not None and found[0] < best.seconds:
                best, better = replace(best, encoded=found[1], seconds=found[0]), True
    return best


def uniform_plans(space: JobSpace, machines: Sequence[int]) -> Iterator[Uniform]:
    """Every regular plan that fits."""
    for its, skeleton in _everywhere(space, machines, ANY):
        found = uniform_of(its, skeleton)
        if found is not None:
            yield found


def _everywhere(
    space: JobSpace, machines: Sequence[int], form: Form, *, in_turn: bool = False
) -> Iterator[tuple[JobSpace, Skeleton]]:
    """Regular pipelines on these machines; of what free searches do not know, unless all passes shall be `in_turn`,
    those on several of them joined."""
    yield from ((space, skeleton) for skeleton in uniform_skeletons(space, machines, form, in_turn=in_turn))
    for joined in () if in_turn else joined_spaces(space, machines):
        everything = range(len(joined.cluster.machines))
        yield from ((joined, skeleton) for skeleton in uniform_skeletons(joined, everything, form))


def uniform_skeletons(
    space: JobSpace, machines: Sequence[int], form: Form = ANY, *, in_turn: bool = False
) -> Iterator[Skeleton]:
    """Regular pipelines with all options, or with all whose passes are `in_turn`, in either order of GPUs."""
    usable = [machine for machine in machines if machine in space.allowed]
    blocks = _blocks(space)
    for degree in space.degrees:
        if form.tensor is not None and degree > form.tensor:
            continue
        slots = [
            Slot(machine, degree) for machine in usable for _ in range(space.cluster.machines[machine].gpus // degree)
        ]
        for stages in range(1, min(blocks, len(slots), form.stages or blocks) + 1):
            if blocks % stages and not form.uneven:
                continue
            for replicas in _replicas(space.job.global_batch, len(slots) // stages):
                shape = Shape(replicas, stages * replicas, degree)
                listed = list(options_on(space, shape, uneven=form.uneven, in_turn=in_turn))
                for chains in orders_of(slots[: stages * replicas], stages):
                    if not form.fits(Skeleton(chains, Options(1))):
                        continue
                    yield from filter(form.takes, (Skeleton(chains, options) for options in listed))


def _blocks(space: JobSpace) -> int:
    model = space.job.model
    return model.blocks(0, len(model.layers) - 1)


def _replicas(batch: int, most: int) -> tuple[int, ...]:
    """The largest numbers of replicas that divide the batch."""
    return tuple(replicas for replicas in range(most, 0, -1) if batch % replicas == 0)[:_MOST_NUMBERS]


def orders_of(slots: Sequence[Slot], stages: int) -> Iterator[tuple[Chain, ...]]:
    """The stages of a pipeline beside each other, or the replicas of a stage."""
    replicas = len(slots) // stages
    near = tuple(tuple(slots[r * stages : (r + 1) * stages]) for r in range(replicas))
    yield near
    far = tuple(tuple(slots[r::replicas]) for r in range(replicas))
    if far != near:
        yield far


def options_on(space: JobSpace, shape: Shape, *, uneven: bool = False, in_turn: bool = False) -> Iterator[Options]:
    """All that have an effect on such pipelines, each replica with as many microbatches as the others."""
    replicas, degree, stages = shape.replicas, shape.ranks, shape.stages // shape.replicas
    possible = {  # what has none is left out here already: all by all would be too many
        choice.name: choice.possible(space.scope, regular=True)
        if choice.needs.met(shape, degree)
        else choice.values[:1]
        for choice in SPACE
    }
    possible["schedule"] = tuple(each for each in _SCHEDULES if each in possible["schedule"])
    if in_turn:
        possible["schedule"] = tuple(each for each in possible["schedule"] if not each.splits_backward)
        possible["chunks"] = (1,)
    possible["sync"] = (Sync.RING,)
    possible["context"] = tuple(parts for parts in possible["context"] if _shares(space, degree, parts))
    if any(machine.span for machine in space.cluster.machines):
        possible["expert"] = (1,)  # experts are split inside of machines
    if len({space.cluster.machines[machine].region for machine in space.allowed}) == 1:
        near = (within for within in possible["shard_within"] if within is not Within.REGION)
        possible["shard_within"] = tuple(near) or possible["shard_within"]  # in one region that is everywhere
    batch = space.job.global_batch
    possible["microbatch_size"] = tuple(b for b in possible["microbatch_size"] if batch % (b * replicas) == 0)
    possible["chunks"] = tuple(n for n in possible["chunks"] if divides(space, stages * n, uneven=uneven))
    for values in product(*possible.values()):
        options = Options(**dict(zip(possible, values, strict=True)))
        alone = degree == options.context and options.sequence_parallel
        if (
            not alone
            and options == normal(options, shape)
            and _goes_round(space, stages, replicas, options, uneven=uneven)
        ):
            yield options


def _shares(space: JobSpace, ranks: int, parts: int) -> bool:
    """Whether so many GPUs can share sequences so many by so many, and each part of them all heads."""
    widths = [layer.head_width for layer in space.job.model.layers if layer.head_width]
    return ranks % parts == 0 and all(heads % (ranks // parts) == 0 for heads in widths)


def divides(space: JobSpace, pieces: int, *, uneven: bool) -> bool:
    """Whether blocks can be divided into so many pieces."""
    blocks = _blocks(space)
    return pieces <= blocks if uneven else blocks % pieces == 0


def _goes_round(space: JobSpace, stages: int, replicas: int, options: Options, *, uneven: bool) -> bool:
    """Whether blocks and microbatches can be divided over all chunks."""
    share = space.job.global_batch // (options.microbatch_size * replicas)
    fits = divides(space, stages * options.chunks, uneven=uneven)
    return fits and rounds_problem(stages, options.chunks, share) is None


def uniform_of(space: JobSpace, skeleton: Skeleton) -> Uniform | None:
    """The regular plan of a skeleton; None where it does not fit."""
    found = cut_evenly(space, skeleton)
    return None if found is None else Uniform(space, skeleton, found[1], found[0])


def cut_evenly(space: JobSpace, skeleton: Skeleton) -> tuple[float, Encoded] | None:
    """Seconds of a step with an even cut, and the plan in numbers; None where it does not fit."""
    counts = even_layers(space.job.model.kinds, len(skeleton.chains[0]), skeleton.options.chunks)
    return cut_alike(space, skeleton, np.array(counts))


def cut_alike(space: JobSpace, skeleton: Skeleton, counts: np.ndarray) -> tuple[float, Encoded] | None:
    """The same with so many layers on each stage of every pipeline, in all rounds."""
    assert counts.sum() == len(space.job.model.layers), "compiled code reads all layers"
    options = skeleton.normal_options
    share = space.job.global_batch // (options.microbatch_size * len(skeleton.chains))
    encoded = written_alike(space, skeleton, counts, share)
    book, way = space.book(options), counting(options, space.engine)
    tables = book.tables
    ruled = tables.held_until.shape[0] > 0
    if ruled and (tables.held_until[encoded.place, encoded.first] < encoded.last).any():
        return None  # a layer where it must not be
    seconds = float(seconds_of(tables, encoded))
    if seconds >= 0 and way != UNCOUNTED:
        recompute_least(tables, encoded, space.room(len(encoded.kept))[0], book.blocks, way)
        seconds = float(seconds_of(tables, encoded))
    return (seconds, encoded) if seconds >= 0 else None


def written_alike(space: JobSpace, skeleton: Skeleton, counts: np.ndarray, share: int) -> Encoded:
    """A plan of pipelines that are all alike in numbers: so many layers on each stage of every one, in all rounds, and
    `share` microbatches for each."""
    options = skeleton.normal_options
    rounds = skeleton.chains if options.chunks == 1 else tuple(chain * options.chunks for chain in skeleton.chains)
    encoded = space.encode(Skeleton(rounds, options))
    stages, replicas = len(skeleton.chains[0]), len(skeleton.chains)
    ends = np.cumsum(counts)
    encoded.last[:] = np.tile(ends - 1, replicas)
    encoded.first[:] = np.tile(ends - counts, replicas)
    encoded.microbatches[:] = share
    warmup = [options.schedule.warmup(s, stages, share, options.chunks) for s in range(stages)]
    encoded.warmup[:] = np.tile(warmup, replicas * options.chunks)
    return encoded


def made_uniform(request: Request, plan: Plan, form: Form = ANY, *, is_over: Callable[[], bool] = _never) -> Plan:
    """Every job of a plan with the best regular plan on the machines it has there; a job that is alone may use all it
    is allowed to. A job that no regular plan fits waits."""
    rows = {machine.name: i for i, machine in enumerate(request.cluster.machines)}
    jobs, waiting = dict[str, JobPlan](), dict(plan.waiting)
    for space in request.spaces():
        name = space.job.name
        if name not in plan.jobs and len(request.jobs) > 1:
            continue
        groups = [sorted(rows[machine] for machine in plan.jobs[name].machines)] if name in plan.jobs else []
        if len(request.jobs) == 1:
            groups.append(sorted(space.allowed))
        found = [
            uniform for group in groups if (uniform := best_uniform(space, group, form, is_over=is_over)) is not None
        ]
        if found:
            jobs[name] = min(found, key=lambda uniform: uniform.seconds).plan
            waiting.pop(name, None)
        else:
            waiting.setdefault(name, "no regular plan fits its machines: pipelines all alike, cut evenly")
    idle = idle_machines(jobs.values(), [machine.name for machine in request.cluster.machines])
    return replace(plan, jobs=jobs, waiting=waiting, idle=idle)
