"""The baselines by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.errors import InputError, nearest
from hulk.search.baselines.result import BaselineResult


class Baseline(Protocol):
    """Plans jobs in one fixed way, as well as that way allows.

    Every plan in the result passes `hulk.domain.check.check_plan` and has the seconds that `hulk.cost.price` gives it;
    a job without a plan waits with a reason. The same seed gives the same result unless the time limit cuts it short.
    """

    def __call__(
        self,
        cluster: Cluster,
        jobs: Iterable[Job],
        *,
        compute: ComputeModel,
        engine: Engine,
        seed: int,
        time_limit: float,
    ) -> BaselineResult:
        """Plan all jobs."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A baseline with what people call it."""

    name: str
    title: str
    run: Baseline


class Registry:
    """Baselines in the order they were added; refuses a name that is taken."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, title: str, run: Baseline) -> None:
        """Make a baseline known."""
        if name in self._entries:
            raise ValueError(f"there is a baseline {name!r} already")
        self._entries[name] = Entry(name, title, run)

    def get(self, name: str) -> Entry:
        """The baseline of that name; InputError with the nearest known one otherwise."""
        if name not in self._entries:
            raise InputError(f"no baseline {name!r}", hint=nearest(name, self._entries))
        return self._entries[name]

    def entries(self) -> tuple[Entry, ...]:
        """All of them."""
        return tuple(self._entries.values())
