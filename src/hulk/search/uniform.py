"""The best regular plan: every set of degrees and options that the machines, the batch and the engine allow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np

from hulk.cost.arrays import Encoded
from hulk.cost.step import seconds_of
from hulk.domain.joined import taken_apart
from hulk.domain.model import LayerKind
from hulk.domain.options import COLUMN, SPACE, Options, Schedule, ScheduleKind, Shape, Sync, Within, normal
from hulk.domain.plan import JobPlan, Plan, idle_machines, rounds_problem
from hulk.domain.regular import even_layers
from hulk.search.form import ANY, Form
from hulk.search.job_space import JobSpace
from hulk.search.least import UNCOUNTED, counting, recompute_least
from hulk.search.request import Request
from hulk.search.skeleton import Chain, Skeleton, Slot, held_by, skeleton_of, to_job_plan
from hulk.search.spanning import joined_spaces

_SCHEDULES = (Schedule(), Schedule.ahead(4), Schedule(ScheduleKind.ZERO_BUBBLE))
"""Those that regular plans are tried with: few, since a hall's links are short."""
_AT_ONCE = 64  # plans between two looks at the clock
_MOST_NUMBERS = 2  # of replicas that are tried for a number of stages
_ORDERED = 8  # regular plans whose passes are tried in other orders
_FEWER = 2  # forwards ahead less than a free plan has, up to which backward is tried split
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
    best = _first_few(_everywhere(space, machines, form, wide=not in_turn), is_over, in_turn=in_turn)
    if in_turn:
        space.regular = [one.skeleton for one in best]
    if form.uneven:
        best = sorted((_recut(plan, is_over) for plan in best), key=lambda plan: plan.seconds)
    return best[0] if best else None


def _first_few(
    skeletons: Iterable[tuple[JobSpace, Skeleton]], is_over: Callable[[], bool], *, in_turn: bool
) -> list[Uniform]:
    """The quickest of them, cut evenly, as far as they fit; one of each shape: of many that differ in what hardly
    matters, all but one would be in the way."""
    best: dict[tuple[int, ...], Uniform] = {}
    for number, (space, skeleton) in enumerate(skeletons):
        if in_turn and skeleton.options != skeleton.options.in_turn:
            continue
        if number % _AT_ONCE == 0 and is_over():
            break
        key = _shape(space, skeleton)
        found = _uniform(space, skeleton)
        if found is not None and (key not in best or found.seconds < best[key].seconds):
            best[key] = found
    return sorted(best.values(), key=lambda plan: plan.seconds)[:_RECUT]


def _shape(space: JobSpace, skeleton: Skeleton) -> tuple[int, ...]:
    """What tells regular pipelines apart that are worth a look each."""
    chains, options = skeleton.chains, skeleton.options
    sizes = (len(space.cluster.machines), len(chains), len(chains[0]), chains[0][0].ranks)
    return (*sizes, options.microbatch_size, options.context, options.expert)


def _recut(uniform: Uniform, is_over: Callable[[], bool]) -> Uniform:
    """The same pipelines with blocks moved from stage to stage as long as that makes steps shorter."""
    stages = len(uniform.skeleton.chains[0]) * uniform.skeleton.options.chunks
    pairs = [(a, b) for a, b in permutations(range(stages), 2) if stages <= _FEW_STAGES or abs(a - b) == 1]
    blocks = [
        uniform.space.job.model.layers[i].kind is LayerKind.BLOCK for i in range(len(uniform.space.job.model.layers))
    ]
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
            found = _cut(best.space, best.skeleton, counts)
            if found is not None and found[0] < best.seconds:
                best, better = replace(best, encoded=found[1], seconds=found[0]), True
    return best


def best_regular(space: JobSpace, machines: Sequence[int], is_over: Callable[[], bool] = _never) -> list[JobPlan]:
    """Good regular plans of what free searches do not know: with passes of other orders where these machines are all
    alike, and with stages on several of them as far as that may pay; cut evenly or with cuts of their own. The quickest
    first."""
    found: dict[JobPlan, float] = {}
    alone = [(space, machines)] if _has_other_orders(space) and _are_alike(space, machines) else []
    several = ((one, range(len(one.cluster.machines))) for one in joined_spaces(space, machines))
    known = [one for skeleton in space.regular if alone and (one := _uniform(space, skeleton)) is not None]
    for joined, its in (*alone, *several) if known else (*several, *alone):
        ways = ((joined, skeleton) for skeleton in uniform_skeletons(joined, its))
        few = known if joined is space and known else _first_few(ways, is_over, in_turn=True)
        for best in few[:_ORDERED]:
            found[best.plan] = best.seconds
            if is_over():
                break
            counts = (best.encoded.last - best.encoded.first + 1)[: len(best.skeleton.chains[0])]
            found |= dict(_reordered(joined, best.skeleton, {tuple(counts.tolist())}))
            own, seconds = joined.plan(best.skeleton, rounds=2)
            found[taken_apart(own, joined.cluster)] = seconds
    return sorted(found, key=found.__getitem__)


def _has_other_orders(space: JobSpace) -> bool:
    """Whether the engine has passes of orders that free searches leave out."""
    named = (SPACE[COLUMN[name]] for name in ("schedule", "chunks"))
    return any(choice.possible(space.scope, regular=True) != choice.possible(space.scope) for choice in named)


def _are_alike(space: JobSpace, machines: Sequence[int]) -> bool:
    hosts = [space.cluster.machines[machine] for machine in machines]
    return len({(host.gpu.name, host.gpus, host.region) for host in hosts}) == 1


def uniform_plans(space: JobSpace, machines: Sequence[int]) -> Iterator[Uniform]:
    """Every regular plan that fits."""
    for its, skeleton in _everywhere(space, machines, ANY, wide=True):
        found = _uniform(its, skeleton)
        if found is not None:
            yield found


def _everywhere(
    space: JobSpace, machines: Sequence[int], form: Form, *, wide: bool
) -> Iterator[tuple[JobSpace, Skeleton]]:
    """Regular pipelines on these machines and, where they may be `wide`, on several of them joined."""
    yield from ((space, skeleton) for skeleton in uniform_skeletons(space, machines, form))
    for joined in joined_spaces(space, machines) if wide else ():
        everything = range(len(joined.cluster.machines))
        yield from ((joined, skeleton) for skeleton in uniform_skeletons(joined, everything, form))


def uniform_skeletons(space: JobSpace, machines: Sequence[int], form: Form = ANY) -> Iterator[Skeleton]:
    """Regular pipelines with all options, in either order of GPUs."""
    usable = [machine for machine in machines if machine in space.allowed]
    blocks = sum(layer.kind is LayerKind.BLOCK for layer in space.job.model.layers)
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
                listed = list(_options(space, Shape(replicas, stages * replicas, degree), uneven=form.uneven))
                for chains in _orders(slots[: stages * replicas], stages):
                    if not form.fits(Skeleton(chains, Options(1))):
                        continue
                    yield from filter(form.takes, (Skeleton(chains, options) for options in listed))


def _replicas(batch: int, most: int) -> tuple[int, ...]:
    """The largest numbers of replicas that divide the batch."""
    return tuple(replicas for replicas in range(most, 0, -1) if batch % replicas == 0)[:_MOST_NUMBERS]


def _orders(slots: Sequence[Slot], stages: int) -> Iterator[tuple[Chain, ...]]:
    """The stages of a pipeline beside each other, or the replicas of a stage."""
    replicas = len(slots) // stages
    near = tuple(tuple(slots[r * stages : (r + 1) * stages]) for r in range(replicas))
    yield near
    far = tuple(tuple(slots[r::replicas]) for r in range(replicas))
    if far != near:
        yield far


def _options(space: JobSpace, shape: Shape, *, uneven: bool) -> Iterator[Options]:
    """All that have an effect on such pipelines, each replica with as many microbatches as the others."""
    replicas, degree, stages = shape.replicas, shape.ranks, shape.stages // shape.replicas
    possible = {  # what has none is left out here already: all by all would be too many
        choice.name: choice.possible(space.scope, regular=True)
        if choice.needs.met(shape, degree)
        else choice.values[:1]
        for choice in SPACE
    }
    possible["schedule"] = tuple(each for each in _SCHEDULES if each in possible["schedule"])
    possible["sync"] = (Sync.RING,)
    possible["context"] = tuple(parts for parts in possible["context"] if _shares(space, degree, parts))
    if any(machine.span for machine in space.cluster.machines):
        possible["expert"] = (1,)  # experts are split inside of machines
    if len({space.cluster.machines[machine].region for machine in space.allowed}) == 1:
        near = (within for within in possible["shard_within"] if within is not Within.REGION)
        possible["shard_within"] = tuple(near) or possible["shard_within"]  # in one region that is everywhere
    batch = space.job.global_batch
    possible["microbatch_size"] = tuple(b for b in possible["microbatch_size"] if batch % (b * replicas) == 0)
    possible["chunks"] = tuple(n for n in possible["chunks"] if _divides(space, stages * n, uneven=uneven))
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


def _divides(space: JobSpace, pieces: int, *, uneven: bool) -> bool:
    """Whether blocks can be divided into so many pieces."""
    blocks = sum(layer.kind is LayerKind.BLOCK for layer in space.job.model.layers)
    return pieces <= blocks if uneven else blocks % pieces == 0


def _goes_round(space: JobSpace, stages: int, replicas: int, options: Options, *, uneven: bool) -> bool:
    """Whether blocks and microbatches can be divided over all chunks."""
    share = space.job.global_batch // (options.microbatch_size * replicas)
    fits = _divides(space, stages * options.chunks, uneven=uneven)
    return fits and rounds_problem(stages, options.chunks, share) is None


def _uniform(space: JobSpace, skeleton: Skeleton) -> Uniform | None:
    """The regular plan of a skeleton; None where it does not fit."""
    found = _even(space, skeleton)
    return None if found is None else Uniform(space, skeleton, found[1], found[0])


def _even(space: JobSpace, skeleton: Skeleton) -> tuple[float, Encoded] | None:
    """Seconds of a step with an even cut, and the plan in numbers; None where it does not fit."""
    kinds = [layer.kind for layer in space.job.model.layers]
    counts = even_layers(kinds, len(skeleton.chains[0]), skeleton.options.chunks)
    return _cut(space, skeleton, np.array(counts))


def _cut(space: JobSpace, skeleton: Skeleton, counts: np.ndarray) -> tuple[float, Encoded] | None:
    """The same with so many layers on each stage of every pipeline, in all rounds."""
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
    encoded = space.encode(Skeleton(tuple(chain * options.chunks for chain in skeleton.chains), options))
    stages, replicas = len(skeleton.chains[0]), len(skeleton.chains)
    ends = np.cumsum(counts)
    encoded.last[:] = np.tile(ends - 1, replicas)
    encoded.first[:] = np.tile(ends - counts, replicas)
    encoded.microbatches[:] = share
    warmup = [options.schedule.warmup(s, stages, share, options.chunks) for s in range(stages)]
    encoded.warmup[:] = np.tile(warmup, replicas * options.chunks)
    return encoded


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
        made = [_even(space, trial)] if _divides(space, stages * chunks, uneven=True) else []
        made += [_cut(space, trial, np.array(own)) for own in cuts if len(own) == stages * chunks]
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
