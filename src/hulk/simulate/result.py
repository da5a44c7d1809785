"""What a simulation says: frozen values. Seconds from the step's start, bytes, bytes/s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class SpanKind(StrEnum):
    """What a stage, or its network, is doing."""

    FORWARD = "forward"
    BACKWARD = "backward"
    SEND = "send"
    RECEIVE = "receive"
    SYNC = "sync"
    UPDATE = "update"

    @property
    def computes(self) -> bool:
        """Whether the stage's GPUs are at work; the other kinds can run beside these."""
        return self in (SpanKind.FORWARD, SpanKind.BACKWARD, SpanKind.UPDATE)


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
    """One stage's step: `busy` is the share of the job's step in forward and backward passes, `passes_end` when the
    last of them is done, `end` when it has all its new weights."""

    pipeline: int
    stage: int
    machine: str
    busy: float
    passes_end: float
    end: float


@dataclass(frozen=True)
class JobTimeline:
    """One job's step: its seconds (where stages go on with the next one as soon as they are done themselves, those of
    the stage that is longest at it), its stages, and everything they did, by start."""

    job: str
    step: float
    stages: tuple[StageTimeline, ...]
    spans: tuple[Span, ...]


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
