"""Every job's pipelines at one moment of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hulk.search.skeleton import Skeleton


@dataclass
class State:
    """Every job's skeleton with its seconds (None: it waits), and who has which machine."""

    skeletons: list[Skeleton | None]
    seconds: list[float | None]
    owner: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, skeletons: Sequence[Skeleton | None], seconds: Sequence[float | None]) -> State:
        """A state with its owners worked out."""
        made = cls(list(skeletons), list(seconds))
        for job, skeleton in enumerate(made.skeletons):
            for machine in skeleton.machines if skeleton else ():
                made.owner[machine] = job
        return made

    def copy(self) -> State:
        """A snapshot."""
        return State(list(self.skeletons), list(self.seconds), dict(self.owner))

    def apply(self, changes: Mapping[int, Skeleton | None], seconds: Mapping[int, float | None]) -> None:
        """Take changes over."""
        for job in changes:
            old = self.skeletons[job]
            for machine in old.machines if old else ():
                if self.owner.get(machine) == job:
                    del self.owner[machine]
        for job, skeleton in changes.items():
            self.skeletons[job] = skeleton
            self.seconds[job] = seconds[job]
            for machine in skeleton.machines if skeleton else ():
                self.owner[machine] = job
