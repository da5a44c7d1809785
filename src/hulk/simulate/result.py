"""What a simulation says: frozen values. Seconds from the step's start, bytes, bytes/s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class SpanKind(StrEnum):
    """What a stage, or its network, is doing."""

    FORWARD = "forward"
    BACKWARD = "backward"
    WEIGHTS = "weights"
    SEND = "send"
    RECEIVE = "receive"
    SYNC = "sync"
    UPDATE = "update"

    @property
    def computes(self) -> bool:
        """Whether the stage's GPUs are at work; the other kinds can run beside these."""
        return self.is_pass or self is SpanKind.UPDATE

    @property
    def is_pass(self) -> bool:
        """Whether it is a pass of a microbatch: forward, backward, or gradients of weights apart from it."""
        return self in (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.WEIGHTS)


@dataclass(frozen=True, slots=True)
class Span:
    """Something a stage does from `start` to `end`.

    microbatch  of passes and messages; None for sync and update
    peer        the stage of the same pipeline at the other end of a message
    layers      first and last layer, both included, whose gradients are added up, or weights sent; None: of parameters
                that layers share
    """

    job: str
    pipeline: int
    stage: int
    machine: str
    gpus: tuple[int, ...]
    kind: SpanKind
    start: float
    end: float
    microbatch: int | None = None
    peer: int | None = None
    layers: tuple[int, int] | None = None

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class StageTimeline:
    """One stage's step: `at_work` seconds in forward and backward passes; `begin` and `passes_end` are when the first
    of them begins and the last is done, `end` when it has all its new weights; `busy` is the share of the job's step
    that it is at work."""

    pipeline: int
    stage: int
    machine: str
    at_work: float
    begin: float
    passes_end: float
    end: float
    busy: float = 0.0


@dataclass(frozen=True)
class JobTimeline:
    """One job's step: its seconds among other steps, its stages, and everything they did in the first step, by
    start."""

    job: str
    step: float
    stages: tuple[StageTimeline, ...]
    spans: tuple[Span, ...]

    def taking(self, seconds: float) -> JobTimeline:
        """The same, with a step of so many seconds."""
        stages = tuple(replace(s, busy=s.at_work / seconds if seconds else 0.0) for s in self.stages)
        return replace(self, step=seconds, stages=stages)


@dataclass(frozen=True, slots=True)
class MachineUse:
    """A machine's network card over the simulated time: bytes sent and received by all jobs, and the share of what the
    card could have moved in each direction meanwhile."""

    machine: str
    region: str
    sent: float
    received: float
    out_share: float
    in_share: float


@dataclass(frozen=True)
class Simulation:
    """One step of every job, side by side. `machines` are those that some stage is on, in the cluster's order."""

    jobs: Mapping[str, JobTimeline]
    machines: tuple[MachineUse, ...]

    @property
    def steps(self) -> dict[str, float]:
        """Seconds of each job's step."""
        return {name: job.step for name, job in self.jobs.items()}

    @property
    def seconds(self) -> float:
        """Until the slowest job's step is done."""
        return max((job.step for job in self.jobs.values()), default=0.0)
