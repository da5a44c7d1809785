"""What a price says: frozen values, no formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hulk.cost.compute import TimeOrigin


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where a step's seconds go; the parts add up to the step.

    compute    the busiest stage of the slowest replica at work
    bubble     that stage waiting while the pipeline fills and drains or others are slower in turn
    transfer   what moving activations and gradients between stages adds
    sync       adding up gradients over replicas and shared parameters, as far as it is not hidden
    update     the optimizer
    """

    compute: float
    bubble: float
    transfer: float
    sync: float
    update: float

    @property
    def step(self) -> float:
        """Seconds of the whole step."""
        return self.compute + self.bubble + self.transfer + self.sync + self.update


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes of one GPU of a stage at the peak."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    workspace: float
    reserved: float
    capacity: float

    @property
    def used(self) -> float:
        """All of it, what the engine reserves included."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.workspace + self.reserved

    @property
    def headroom(self) -> float:
        """What is left."""
        return self.capacity - self.used


@dataclass(frozen=True, slots=True)
class StagePrice:
    """One stage: seconds of one microbatch's passes, the share of the step it computes, and its GPUs' memory.

    `send_latency` and `send_wire` are the seconds of one activation's way to the next stage (0 for the last). `beside`
    are the other machines that hold it, where it is on several. `recomputed`: how many of its blocks are computed
    again; None: the plan has no such numbers, and `recompute` holds for all blocks."""

    machine: str
    region: str
    gpu: str
    ranks: int
    first: int
    last: int
    forward: float
    backward: float
    busy: float
    send_latency: float
    send_wire: float
    memory: StageMemory
    beside: tuple[str, ...] = ()
    recomputed: int | None = None

    @property
    def where(self) -> str:
        """The machines that hold it, in words."""
        if len(self.beside) > 1:
            return f"{self.machine} and {len(self.beside)} more machines"
        return " and ".join((self.machine, *self.beside))


@dataclass(frozen=True, slots=True)
class Money:
    """Dollars of one step."""

    gpus: float
    egress: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.gpus + self.egress


@dataclass(frozen=True)
class JobPrice:
    """A job that runs: seconds, bytes, dollars. `finish` is the seconds to use up the token budget (None: no budget).
    `alone` is the seconds of a step if its messages shared no network card and no trunk, neither with each other nor
    with other jobs'. `times` counts the stages' layers by where their times come from."""

    job: str
    breakdown: Breakdown
    pipelines: tuple[tuple[StagePrice, ...], ...]
    money: Money
    tokens_per_second: float
    alone: float
    finish: float | None
    finish_money: float | None
    bottleneck: str
    times: Mapping[TimeOrigin, int]

    @property
    def step(self) -> float:
        """Seconds of one step."""
        return self.breakdown.step


class Obstacle(StrEnum):
    """What keeps a plan from running."""

    MEMORY = "memory"
    BLOCKED = "blocked link"
    ENGINE = "engine"
    UNLIKE = "pipelines that differ"


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A job that cannot run by this plan, and why, in words a person can act on."""

    job: str
    obstacle: Obstacle
    reason: str


@dataclass(frozen=True)
class PlanPrice:
    """All jobs of a plan, each alone on its machines."""

    jobs: Mapping[str, JobPrice | Infeasible]
    waiting: Mapping[str, str]
    idle: tuple[str, ...]

    @property
    def feasible(self) -> bool:
        """Whether every job of the plan runs."""
        return all(isinstance(price, JobPrice) for price in self.jobs.values())
