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
    """One rank. `local_rank` counts the ranks of its machine, `slot` the slices of its stage (tensor parallel), `part`
    the parts of a sequence where the stage's GPUs share them: its GPUs are part by part, in each slice by slice. Where
    a plan's stages go round its GPUs, `stage` is the first one that the GPU holds."""

    rank: int
    machine: str
    gpu: int
    local_rank: int
    pipeline: int
    stage: int
    slot: int
    part: int = 0

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for its stage: it sends to and receives from other stages."""
        return self.slot == 0 and self.part == 0


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
        found: dict[tuple[int, int], list[Seat]] = {}
        for seat in self.seats:
            found.setdefault((seat.pipeline, seat.stage), []).append(seat)
        return {
            place: tuple(seat.rank for seat in sorted(seats, key=lambda seat: (seat.part, seat.slot)))
            for place, seats in found.items()
        }

    def everyone(self, pipeline: int, stage: int) -> tuple[int, ...]:
        """The ranks of a stage, part by part, in each by slot."""
        return self._ranks[pipeline, stage]

    def ranks(self, pipeline: int, stage: int, part: int = 0) -> tuple[int, ...]:
        """The ranks of a stage that have one part of a sequence, by slot. Those of the first part hold what is added
        up, updated and saved; the others have copies of their weights."""
        ranks = self.everyone(pipeline, stage)
        slots = len(ranks) // self.plan.options.context
        return ranks[part * slots : (part + 1) * slots]

    def sharers(self, pipeline: int, stage: int, slot: int) -> tuple[int, ...]:
        """The ranks of a stage that share sequences and have the same slice."""
        return tuple(self.ranks(pipeline, stage, part)[slot] for part in range(self.plan.options.context))

    def stage(self, pipeline: int, stage: int) -> Stage:
        """The stage of the plan."""
        return self.plan.pipelines[pipeline].stages[stage]

    def parts(self, pipeline: int, stage: int) -> tuple[tuple[int, Stage], ...]:
        """All stages on the GPUs of one, with their numbers: itself, and those of later rounds."""
        stages = self.plan.pipelines[pipeline].stages
        return tuple((k, stages[k]) for k in range(stage, len(stages), self.slots(pipeline)))

    def slots(self, pipeline: int) -> int:
        """Stages of a pipeline, those on the same GPUs counted once."""
        return len(self.plan.pipelines[pipeline].slots(self.plan.options.chunks))

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """All stages as (pipeline, stage), those on the same GPUs once, in the plan's order."""
        return tuple((p, s) for p in range(len(self.plan.pipelines)) for s in range(self.slots(p)))

    def on(self, machine: str) -> tuple[Seat, ...]:
        """The ranks of a machine."""
        return tuple(seat for seat in self.seats if seat.machine == machine)


def seat(plan: JobPlan) -> Seating:
    """Give every GPU of a plan its rank."""
    places = [
        (machine, gpu, p, s, slot)
        for p, pipeline in enumerate(plan.pipelines)
        for s, stage in enumerate(pipeline.slots(plan.options.chunks))
        for slot, (machine, gpu) in enumerate((part.machine, gpu) for part in stage.parts for gpu in part.gpus)
    ]
    order = {machine: i for i, machine in enumerate(dict.fromkeys(place[0] for place in places))}
    places.sort(key=lambda place: (order[place[0]], place[1]))
    seats: list[Seat] = []
    seen: dict[str, int] = {}
    for rank, (machine, gpu, p, s, place) in enumerate(places):
        part, slot = divmod(place, plan.tensor(plan.pipelines[p].stages[s]))
        seats.append(Seat(rank, machine, gpu, seen.setdefault(machine, 0), p, s, slot, part))
        seen[machine] += 1
    return Seating(plan, tuple(seats))
