"""The plan: which layers of which job run on which GPUs. Values only; `hulk.domain.check` holds the invariants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hulk.domain.options import Options, Shape


@dataclass(frozen=True, slots=True)
class Part:
    """GPUs of one machine."""

    machine: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers `first` to `last`, both included, on GPUs of one machine and, where one is not enough, of as many of each
    of the machines `beside` it: tensor parallel over all of them, or, where they share sequences (`Options.context`),
    over those with the same part of one. `recomputed`: how many of its blocks, from its first on, backward computes
    again as `Options.recompute` says; None: all of them."""

    machine: str
    gpus: tuple[int, ...]
    first: int
    last: int
    beside: tuple[Part, ...] = ()
    recomputed: int | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Its GPUs machine by machine, in the order of their ranks."""
        return (Part(self.machine, self.gpus), *self.beside)

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that hold it."""
        return (self.machine, *(part.machine for part in self.beside))

    @property
    def ranks(self) -> int:
        """Its GPUs."""
        return len(self.gpus) + sum(len(part.gpus) for part in self.beside)

    def with_parts(self, parts: Sequence[Part]) -> Stage:
        """The same layers on other GPUs."""
        return replace(self, machine=parts[0].machine, gpus=parts[0].gpus, beside=tuple(parts[1:]))

    @property
    def layers(self) -> range:
        """The layer indices."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One replica: its stages in order, and its share of the global batch in microbatches. With `Options.chunks` the
    stages go round the same GPUs that many times: of S groups of GPUs, stage k is on the one of stage k − S."""

    stages: tuple[Stage, ...]
    microbatches: int

    def slots(self, chunks: int) -> tuple[Stage, ...]:
        """The stages of the first round, one for each group of GPUs. Where stages do not go round so many times, all
        of them."""
        slots, rest = divmod(len(self.stages), max(chunks, 1))
        return self.stages[:slots] if slots > 1 and not rest else self.stages


@dataclass(frozen=True, slots=True)
class JobPlan:
    """How one job trains: its pipelines, and everything else that is chosen."""

    pipelines: tuple[Pipeline, ...]
    options: Options

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of all pipelines, one after the other."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline.stages)

    @property
    def counts_blocks(self) -> bool:
        """Whether any of its stages says how many of its blocks are computed again."""
        return any(stage.recomputed is not None for stage in self.stages)

    @property
    def uncounted(self) -> JobPlan:
        """The same where `recompute` holds for all blocks of every stage."""
        if not self.counts_blocks:
            return self
        pipelines = (
            replace(pipeline, stages=tuple(replace(stage, recomputed=None) for stage in pipeline.stages))
            for pipeline in self.pipelines
        )
        return replace(self, pipelines=tuple(pipelines))

    def tensor(self, stage: Stage) -> int:
        """The tensor parallel degree of a stage: in how many slices its GPUs hold every layer in it."""
        return stage.ranks // self.options.context

    def slices(self, stage: Stage) -> int:
        """Over how many machines the slices of a layer are spread: 1 where every machine of the stage has all of them.
        The machines have them in turn."""
        return max(1, self.tensor(stage) // len(stage.gpus))

    @property
    def leaders(self) -> tuple[str, ...]:
        """The machines it uses, each once, of those that hold stages together the first."""
        return tuple(dict.fromkeys(stage.machine for stage in self.stages))

    @property
    def spans(self) -> bool:
        """Whether any stage is on several machines."""
        return any(stage.beside for stage in self.stages)

    @property
    def slots(self) -> tuple[Stage, ...]:
        """The same, those on the same GPUs once: the first round of each pipeline."""
        return tuple(stage for pipeline in self.pipelines for stage in pipeline.slots(self.options.chunks))

    @property
    def leads(self) -> list[int]:
        """For each of the stages, counted over all pipelines, the first one on the same GPUs."""
        found: list[int] = []
        for pipeline in self.pipelines:
            begin, slots = len(found), len(pipeline.slots(self.options.chunks))
            found += [begin + s % slots for s in range(len(pipeline.stages))]
        return found

    @property
    def shape(self) -> Shape:
        """What its pipelines are like as far as options go by it."""
        stages = self.slots
        return Shape(len(self.pipelines), len(stages), max((stage.ranks for stage in stages), default=1))

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines it uses, each once, in the plan's order."""
        return tuple(dict.fromkeys(name for stage in self.stages for name in stage.machines))


@dataclass(frozen=True)
class Plan:
    """Every job's plan, the jobs that must wait with the reason, and the machines left idle."""

    jobs: Mapping[str, JobPlan]
    idle: tuple[str, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)


def machines_used(plans: Iterable[JobPlan]) -> set[str]:
    """The machines that these plans use."""
    return {name for plan in plans for name in plan.machines}


def idle_machines(plans: Iterable[JobPlan], machines: Iterable[str]) -> tuple[str, ...]:
    """Those of the machines that no job's plan uses, in their order."""
    used = machines_used(plans)
    return tuple(name for name in machines if name not in used)


def layer_holders(pipelines: Sequence[Pipeline]) -> Iterator[tuple[range, tuple[Stage, ...]]]:
    """Runs of layers that none of the pipelines cuts, with the stage that holds them in each pipeline. The pipelines
    are of one model, each complete."""
    starts = sorted({stage.first for pipeline in pipelines for stage in pipeline.stages})
    at = [0] * len(pipelines)
    for first, after in pairwise((*starts, pipelines[0].stages[-1].last + 1)):
        for index, pipeline in enumerate(pipelines):
            while pipeline.stages[at[index]].last < first:
                at[index] += 1
        yield range(first, after), tuple(pipeline.stages[i] for pipeline, i in zip(pipelines, at, strict=True))


def rounds_problem(slots: int, chunks: int, microbatches: int) -> str | None:
    """What is wrong with a pipeline on so many groups of GPUs that each hold so many chunks; None: nothing.
    Microbatches go through a chunk in groups of as many as there are stages (Megatron-LM's rule for interleaving)."""
    if chunks == 1:
        return None
    if slots < 2:
        return f"{chunks} chunks on one stage are one stage: there is nothing to interleave"
    if microbatches % slots:
        return f"interleaved stages take microbatches {slots} at a time, and {microbatches} are no multiple of that"
    return None
