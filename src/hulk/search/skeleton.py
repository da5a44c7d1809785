"""What search changes: which GPUs stand where in which pipeline, and the options. Cuts and shares follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import Options, Recompute, Shape, normal
from hulk.domain.plan import JobPlan, Pipeline, Stage

if TYPE_CHECKING:
    from hulk.cost.arrays import Encoded


class Slot(NamedTuple):
    """`ranks` GPUs of a machine (by its number in the cluster) that hold a stage together."""

    machine: int
    ranks: int


Chain = tuple[Slot, ...]
"""A pipeline's slots, in the order of its stages."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A job's plan before it is cut."""

    chains: tuple[Chain, ...]
    options: Options

    @property
    def stages(self) -> int:
        """Stages of all pipelines together."""
        return sum(len(chain) for chain in self.chains)

    @property
    def normal_options(self) -> Options:
        """Its options, those that have no effect on its pipelines as they normally are."""
        ranks = 2 if any(slot.ranks > 1 for chain in self.chains for slot in chain) else 1  # more are no other case
        return normal(self.options, Shape(len(self.chains), self.stages, ranks))

    @property
    def machines(self) -> set[int]:
        """The machines it uses."""
        return {slot.machine for chain in self.chains for slot in chain}


class Held(NamedTuple):
    """What a stage holds: its first and last layer, and how many of its blocks are computed again (None: all)."""

    first: int
    last: int
    recomputed: int | None = None


def held_by(encoded: Encoded, job: Job) -> list[Held]:
    """What each stage of a plan that is cut holds; no numbers where all blocks are computed again."""
    cuts = list(zip(encoded.first.tolist(), encoded.last.tolist(), encoded.kept.tolist(), strict=True))
    blocks = [job.model.blocks(first, last) for first, last, _ in cuts]
    counts = [job.model.blocks(first, last - kept) for first, last, kept in cuts]
    if counts == blocks:
        return [Held(first, last) for first, last, _ in cuts]
    return [
        Held(first, last, None if count == own > 0 else count)
        for (first, last, _), own, count in zip(cuts, blocks, counts, strict=True)
    ]


def to_job_plan(
    skeleton: Skeleton, names: tuple[str, ...], held: Sequence[Held], microbatches: Sequence[int]
) -> JobPlan:
    """The plan: GPUs of a machine are handed out in the order of the stages that ask for them. With several chunks a
    stage, cuts are those of all rounds. Where no stage computes anything again, the options say so."""
    taken: dict[int, int] = {}
    options = skeleton.normal_options
    if held and all(each.recomputed == 0 for each in held):
        options, held = replace(options, recompute=Recompute.NONE), [Held(each.first, each.last) for each in held]
    pipelines = []
    row = 0
    for chain, share in zip(skeleton.chains, microbatches, strict=True):
        places = []
        for slot in chain:
            start = taken.get(slot.machine, 0)
            taken[slot.machine] = start + slot.ranks
            places.append((names[slot.machine], tuple(range(start, start + slot.ranks))))
        stages = []
        for machine, gpus in places * options.chunks:
            first, last, recomputed = held[row]
            stages.append(Stage(machine, gpus, first, last, recomputed=recomputed))
            row += 1
        pipelines.append(Pipeline(tuple(stages), share))
    return JobPlan(tuple(pipelines), options)


def skeleton_of(plan: JobPlan, cluster: Cluster) -> Skeleton:
    """What search would have changed to get this plan, passes in the order that it knows."""
    number = {machine.name: i for i, machine in enumerate(cluster.machines)}
    chains = tuple(
        tuple(Slot(number[stage.machine], stage.ranks) for stage in pipeline.slots(plan.options.chunks))
        for pipeline in plan.pipelines
    )
    return Skeleton(chains, plan.options.in_turn)
