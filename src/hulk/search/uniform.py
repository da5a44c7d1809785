"""The best regular plan: every set of degrees and options that the machines, the batch and the engine allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np

from hulk.cost.arrays import Encoded
from hulk.cost.step import seconds_of
from hulk.domain.model import LayerKind
from hulk.domain.options import COLUMN, SPACE, Options, Schedule, ScheduleKind, Shape, Sync, normal
from hulk.domain.plan import JobPlan, Plan, idle_machines, rounds_problem
from hulk.domain.regular import even_layers
from hulk.search.form import ANY, Form
from hulk.search.job_space import JobSpace
from hulk.search.request import Request
from hulk.search.skeleton import Chain, Skeleton, Slot, to_job_plan

_SCHEDULES = (Schedule(), Schedule.ahead(4), Schedule(ScheduleKind.ZERO_BUBBLE))
"""Those that regular plans are tried with: few, since a hall's links are short."""
_AT_ONCE = 64  # plans between two looks at the clock
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
        cut = self.encoded
        return to_job_plan(self.skeleton, names, cut.first.tolist(), cut.last.tolist(), cut.microbatches.tolist())


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
    when it `is_over`; None where none fits. `in_turn`: with passes of the order that free searches know alone."""
    best: list[Uniform] = []
    for number, skeleton in enumerate(uniform_skeletons(space, machines, form)):
        if in_turn and skeleton.options != skeleton.options.in_turn:
            continue
        if number % _AT_ONCE == 0 and is_over():
            break
        found = _even(space, skeleton)
        if found is not None and (len(best) < _RECUT or found[0] < best[-1].seconds):
            best = sorted([*best, Uniform(space, skeleton, found[1], found[0])], key=lambda plan: plan.seconds)[:_RECUT]
    if form.uneven:
        best = sorted((_recut(plan, is_over) for plan in best), key=lambda plan: plan.seconds)
    return best[0] if best else None


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


def uniform_plans(space: JobSpace, machines: Sequence[int]) -> Iterator[Uniform]:
    """Every regular plan that fits."""
    for skeleton in uniform_skeletons(space, machines):
        found = _even(space, skeleton)
        if found is not None:
            yield Uniform(space, skeleton, found[1], found[0])


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
    possible["context"] = tuple(parts for parts in possible["context"] if degree % parts == 0)
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


def _divides(space: JobSpace, pieces: int, *, uneven: bool) -> bool:
    """Whether blocks can be divided into so many pieces."""
    blocks = sum(layer.kind is LayerKind.BLOCK for layer in space.job.model.layers)
    return pieces <= blocks if uneven else blocks % pieces == 0


def _goes_round(space: JobSpace, stages: int, replicas: int, options: Options, *, uneven: bool) -> bool:
    """Whether blocks and microbatches can be divided over all chunks."""
    share = space.job.global_batch // (options.microbatch_size * replicas)
    fits = _divides(space, stages * options.chunks, uneven=uneven)
    return fits and rounds_problem(stages, options.chunks, share) is None


def _even(space: JobSpace, skeleton: Skeleton) -> tuple[float, Encoded] | None:
    """Seconds of a step with an even cut, and the plan in numbers; None where it does not fit."""
    kinds = [layer.kind for layer in space.job.model.layers]
    counts = even_layers(kinds, len(skeleton.chains[0]), skeleton.options.chunks)
    return _cut(space, skeleton, np.array(counts))


def _cut(space: JobSpace, skeleton: Skeleton, counts: np.ndarray) -> tuple[float, Encoded] | None:
    """The same with so many layers on each stage of every pipeline, in all rounds."""
    options = skeleton.normal_options
    encoded = space.encode(Skeleton(tuple(chain * options.chunks for chain in skeleton.chains), options))
    stages, replicas = len(skeleton.chains[0]), len(skeleton.chains)
    ends = np.cumsum(counts)
    share = space.job.global_batch // (options.microbatch_size * replicas)
    encoded.last[:] = np.tile(ends - 1, replicas)
    encoded.first[:] = np.tile(ends - counts, replicas)
    encoded.microbatches[:] = share
    warmup = [options.schedule.warmup(s, stages, share, options.chunks) for s in range(stages)]
    encoded.warmup[:] = np.tile(warmup, replicas * options.chunks)
    tables = space.tables(options)
    ruled = tables.held_until.shape[0] > 0
    if ruled and (tables.held_until[encoded.place, encoded.first] < encoded.last).any():
        return None  # a layer where it must not be
    seconds = float(seconds_of(tables, encoded))
    return (seconds, encoded) if seconds >= 0 else None


def in_other_orders(space: JobSpace, skeleton: Skeleton) -> list[tuple[JobPlan, float]]:
    """Plans of the same pipelines, if they are all alike, with passes of orders that free searches do not know, as far
    as the engine has them and they fit, cut evenly; with the seconds of a step. The quickest first."""
    replicas, stages = len(skeleton.chains), len(skeleton.chains[0])
    options = skeleton.normal_options
    ranks = [[slot.ranks for slot in chain] for chain in skeleton.chains]
    alike = all(own == ranks[0] for own in ranks)
    if stages == 1 or not alike or space.job.global_batch % (options.microbatch_size * replicas):
        return []
    schedules, chunks = (SPACE[COLUMN[name]].possible(space.scope, regular=True) for name in ("schedule", "chunks"))
    split = [schedule for schedule in schedules if schedule.splits_backward]
    found = []
    for schedule, count in product((options.schedule, *split), chunks):
        trial = Skeleton(skeleton.chains, replace(options, schedule=schedule, chunks=count))
        if trial.options == options or not _goes_round(space, stages, replicas, trial.options, uneven=True):
            continue
        made = _even(space, trial)
        if made is not None:
            found.append(Uniform(space, trial, made[1], made[0]))
    return [(one.plan, one.seconds) for one in sorted(found, key=lambda one: one.seconds)]


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
