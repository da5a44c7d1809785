"""Kinds of stage: GPUs of one type, so many of them, on one machine or on several; and what these do together.

A stage's GPUs have ranks machine by machine. Those with the same part of a sequence follow one another: tensor parallel
groups are as near as they can be, and those that share a sequence are as far apart as a group has ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hulk.cost.collectives import Between, Operation, collective_time
from hulk.cost.engine import Engine
from hulk.domain.cluster import Machine, Span
from hulk.domain.gpu import GpuType
from hulk.domain.job import Job
from hulk.domain.options import Options

Key = tuple[str, int, Span | None]
"""What tells kinds apart: GPU type, GPUs, and what lies between their machines."""


@dataclass(frozen=True, slots=True)
class StageKind:
    """Stages of one kind take the same time for the same layers. `share`: of the bandwidth between machines, what
    their GPUs reach together."""

    gpu: GpuType
    ranks: int
    span: Span | None = None
    share: float = 1.0

    @property
    def key(self) -> Key:
        """What tells it apart."""
        return self.gpu.name, self.ranks, self.span

    def tensor(self, options: Options) -> int:
        """Its tensor parallel degree; 0: so many GPUs cannot share sequences as the options say."""
        return 0 if self.ranks % options.context else self.ranks // options.context

    def together(self, group: int, apart: int = 1) -> Between | None:
        """What lies between the machines of `group` of its GPUs, of which one has the rank of the one before plus
        `apart`; None where all are on one machine. All GPUs of a machine are at it, in as many groups as there are, and
        share its cards."""
        if self.span is None:
            return None
        own = max(1, self.ranks // self.span.machines)
        machines = group // max(1, own // max(1, apart))
        rail = self.share * min(self.span.flow, self.span.network / own)
        return Between(machines, self.span.latency, rail) if machines > 1 else None

    def slices(self, options: Options) -> Between | None:
        """What lies between its tensor parallel ranks."""
        return self.together(self.tensor(options))

    def sharers(self, options: Options) -> Between | None:
        """What lies between its GPUs that share a sequence and have the same slice."""
        return self.together(options.context, self.tensor(options))


def kind_of(machine: Machine, ranks: int) -> Key:
    """The kind of a stage with so many GPUs of a machine."""
    return machine.gpu.name, ranks, machine.span


def gather_line(kind: StageKind, options: Options, engine: Engine) -> tuple[float, float]:
    """Putting an activation together from its slices, as a line over its size: (seconds, seconds a byte). Ranks that
    split along the sequence keep their slices, and those that share one their part of it; Hulk's own runtime gathers
    these for whoever sends, and hands all of it to all who receive."""
    if options.sequence_parallel:
        return 0.0, 0.0
    parts, ranks, times, between = options.context, kind.tensor(options), 1.0, kind.slices(options)
    if engine.lean and parts > 1:
        parts, ranks, times, between = 1, kind.ranks, 2.0, kind.together(kind.ranks)

    def seconds(size: float) -> float:
        return times * collective_time(Operation.ALL_GATHER, size / parts, kind.gpu, ranks, between=between)

    return _line(seconds, 1e6)


def join_seconds(job: Job, kind: StageKind, options: Options, engine: Engine) -> float:
    """Seconds a parameter: an all-reduce among the GPUs that share a sequence, of what each has of a stage's gradients,
    after the last backward. Its latency is nothing beside it."""

    def seconds(size: float) -> float:
        between = kind.sharers(options)
        return collective_time(Operation.ALL_REDUCE, size, kind.gpu, options.context, between=between)

    return engine.wire_bytes(job.precision) * _line(seconds, 1e9)[1]


def _line(seconds: Callable[[float], float], small: float) -> tuple[float, float]:
    """Seconds that grow evenly with a size, known from `small` on: (seconds at none, seconds a byte)."""
    large = 2 * small
    a, b = seconds(small), seconds(large)
    slope = (b - a) / (large - small)
    return a - slope * small, slope
