"""Which rank is what: one process a GPU of a job's plan.

Ranks count machine by machine, in the order in which the plan first names the machines (pipeline by pipeline, stage by
stage), and on a machine by GPU number. So a machine's ranks are consecutive, as torchrun hands them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hulk.domain.plan import JobPlan, Stage


@dataclass(frozen=True, slots=True)
class Seat:
    """One rank. `local_rank` counts the ranks of its machine, `slot` its GPU among the stage's (tensor parallel)."""

    rank: int
    machine: str
    gpu: int
    local_rank: int
    pipeline: int
    stage: int
    slot: int

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for its stage: it sends to and receives from other stages."""
        return self.slot == 0


@dataclass(frozen=True)
class Seating:
    """All ranks of a job."""

    plan: JobPlan
    seats: tuple[Seat, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.seats)

    @cached_property
    def machines(self) -> tuple[str, ...]:
        """The machines in rank order."""
        return tuple(dict.fromkeys(seat.machine for seat in self.seats))

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], tuple[int, ...]]:
        found: dict[tuple[int, int], dict[int, int]] = {}
        for seat in self.seats:
            found.setdefault((seat.pipeline, seat.stage), {})[seat.slot] = seat.rank
        return {place: tuple(slots[i] for i in range(len(slots))) for place, slots in found.items()}

    def ranks(self, pipeline: int, stage: int) -> tuple[int, ...]:
        """The ranks of a stage, by slot."""
        return self._ranks[pipeline, stage]

    def stage(self, pipeline: int, stage: int) -> Stage:
        """The stage of the plan."""
        return self.plan.pipelines[pipeline].stages[stage]

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """All stages as (pipeline, stage), in the plan's order."""
        return tuple((p, s) for p, pipeline in enumerate(self.plan.pipelines) for s in range(len(pipeline.stages)))

    def on(self, machine: str) -> tuple[Seat, ...]:
        """The ranks of a machine."""
        return tuple(seat for seat in self.seats if seat.machine == machine)


def seat(plan: JobPlan) -> Seating:
    """Give every GPU of a plan its rank."""
    places = [
        (stage.machine, gpu, p, s, slot)
        for p, pipeline in enumerate(plan.pipelines)
        for s, stage in enumerate(pipeline.stages)
        for slot, gpu in enumerate(stage.gpus)
    ]
    order = {machine: i for i, machine in enumerate(dict.fromkeys(place[0] for place in places))}
    places.sort(key=lambda place: (order[place[0]], place[1]))
    seats: list[Seat] = []
    seen: dict[str, int] = {}
    for rank, (machine, gpu, p, s, slot) in enumerate(places):
        seats.append(Seat(rank, machine, gpu, seen.setdefault(machine, 0), p, s, slot))
        seen[machine] += 1
    return Seating(plan, tuple(seats))
