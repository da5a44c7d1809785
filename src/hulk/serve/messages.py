"""What requests hold: read by pydantic, and described by the page's OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Word = Annotated[str, Field(max_length=200)]
_Line = Annotated[str, Field(max_length=1000)]
_Several = Annotated[list[_Line], Field(max_length=200)]


class Message(BaseModel):
    """What every message has in common: nothing unknown, and no changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Source(Message):
    """A bundled file by its name, or the text of a file (YAML or JSON): one of the two. Never a path."""

    name: _Word | None = None
    text: Annotated[str, Field(max_length=17 * 2**20)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Source:
        if (self.name is None) == (self.text is None):
            raise ValueError("give the name of a bundled file or a text, one of the two")
        return self


class Change(Message):
    """Something that happens: a machine is lost, goes to another job, or joins; a link changes."""

    kind: Literal["lose", "move", "link", "join"]
    machine: _Word | None = None
    job: _Word | None = None
    a: _Word | None = None
    b: _Word | None = None
    factor: Annotated[float, Field(gt=0, le=1000)] | None = None
    """The link's bandwidth times this."""
    setting: Annotated[str, Field(max_length=200)] | None = None
    """As `--set` has it after the link's ends: "bandwidth=1 Gbit/s latency=90 ms"."""
    text: Annotated[str, Field(max_length=2**20)] | None = None
    """Machines that join, as `hulk replan --joined` reads them."""

    @model_validator(mode="after")
    def _whole(self) -> Change:
        needs = {"lose": ("machine",), "move": ("machine",), "link": ("a", "b"), "join": ("text",)}[self.kind]
        missing = [name for name in needs if getattr(self, name) is None]
        if missing:
            raise ValueError(f"a change of kind {self.kind!r} needs {missing[0]!r}")
        if self.kind == "link" and (self.factor is None) == (self.setting is None):
            raise ValueError("a link changes by 'factor' or by 'setting', one of the two")
        return self


class Changes(Message):
    """Several changes, one after the other."""

    changes: Annotated[list[Change], Field(max_length=200)]


class ReplanRequest(Changes):
    """Changes, within which time a new plan must pay back, and how long to look for it."""

    horizon: Annotated[str, Field(max_length=40)] = "24 h"
    seconds: Annotated[float, Field(ge=0.1, le=120)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class PlanOptions(Message):
    """How to plan; the same as the options of `hulk plan`. `seconds`: the most time for the search."""

    seconds: Annotated[float, Field(ge=0.1, le=120)] = 10.0
    evaluations: Annotated[int, Field(ge=1, le=10_000_000)] = 150_000
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    max_cost: Annotated[str, Field(max_length=40)] | None = None
    cheapest: bool = False
    pin: _Several = []
    avoid: _Several = []


class Inputs(Message):
    """A cluster and jobs; the jobs may be left out where only the cluster is looked at."""

    cluster: Source
    jobs: Source | None = None


class Case(Message):
    """A cluster and jobs."""

    cluster: Source
    jobs: Source


class PlanRequest(Case):
    """What to plan, and how."""

    options: PlanOptions = PlanOptions()


class PlannedCase(Case):
    """A cluster, jobs and a plan file's JSON."""

    plan: dict[str, Any]


class CompareRequest(Message):
    """Which baselines stand beside Hulk: the paper's systems, or all that `hulk compare` has."""

    baselines: Literal["paper", "all"] = "paper"


class Empty(Message):
    """Nothing."""


class Recipe(Case):
    """What a saved plan stands on: the sources, and what has happened to the cluster since."""

    settings: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()


class TaskStarted(Message):
    """A task that was taken on."""

    task: str


class PlanSaved(Message):
    """A plan in the history."""

    plan: str


class TaskState(Message):
    """Where a task stands; `ahead`: tasks that come before it."""

    id: str
    kind: Literal["plan", "replan", "timeline", "explain", "compare", "trace"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    ahead: int = 0
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Problem(Message):
    """Why a request was refused."""

    message: str
    where: str | None = None
    hint: str | None = None


class Refusal(Message):
    """The answer to a request that was refused."""

    error: Problem
