"""What search changes: which GPUs stand where in which pipeline, and the options. Cuts and shares follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hulk.domain.cluster import Cluster
from hulk.domain.options import Options, Shape, normal
from hulk.domain.plan import JobPlan, Pipeline, Stage


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
        widest = max((slot.ranks for chain in self.chains for slot in chain), default=1)
        return normal(self.options, Shape(len(self.chains), self.stages, widest))

    @property
    def machines(self) -> set[int]:
        """The machines it uses."""
        return {slot.machine for chain in self.chains for slot in chain}


def to_job_plan(
    skeleton: Skeleton, names: tuple[str, ...], firsts: list[int], lasts: list[int], microbatches: list[int]
) -> JobPlan:
    """The plan: GPUs of a machine are handed out in the order of the stages that ask for them. With several chunks a
    stage, cuts are those of all rounds."""
    taken: dict[int, int] = {}
    options = skeleton.normal_options
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
            stages.append(Stage(machine, gpus, firsts[row], lasts[row]))
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
