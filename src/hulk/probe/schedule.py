"""Which pairs of machines are measured, and which at the same time. Pure: names in, names out.

Between two regions a few pairs are measured, as many as possible without a machine in two of them, and then all of
these at once, which shows what the two regions share; inside a region a few pairs. Two measurements never share a
machine, and two that leave their regions never share a region: the line out of a site is often what limits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hulk.domain.cluster import pair

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement: (source, target) pairs that run at once, the regions they are in, and whether each runs one
    flow and then several (`several`), one flow (neither), or several flows beside the others' (`together`)."""

    pairs: tuple[Pair, ...]
    regions: Pair
    several: bool = False
    together: bool = False

    @property
    def machines(self) -> frozenset[str]:
        """All machines that take part."""
        return frozenset(name for ends in self.pairs for name in ends)

    def disturbs(self, other: Task) -> bool:
        """Whether the two must not run at the same time."""
        if self.machines & other.machines:
            return True
        outside = self.regions[0] != self.regions[1] and other.regions[0] != other.regions[1]
        return outside and bool(set(self.regions) & set(other.regions))


def plan_tasks(
    regions: Mapping[str, str],
    trips: Mapping[Pair, float],
    *,
    samples: int,
    full: bool = False,
    also: Collection[Pair] = (),
) -> list[Task]:
    """What to measure, the most telling first. `regions` has each machine's region, `trips` a round trip in seconds for
    each pair of machines that reach each other. `also` are pairs that must be among those measured."""
    groups: dict[Pair, list[Pair]] = {}
    for ends in sorted(trips):
        groups.setdefault(pair(regions[ends[0]], regions[ends[1]]), []).append(ends)
    ranked: list[tuple[int, Task]] = []
    for between, inside in sorted(groups.items()):
        chosen = choose(inside, trips, samples)
        apart = _apart(chosen)
        chosen += [each for each in inside if (full or each in also) and each not in chosen]
        crosses = between[0] != between[1]
        tasks = [
            Task((_turned(each, number),), between, several=crosses and number == 0)
            for number, each in enumerate(chosen)
        ]
        if crosses and len(chosen) == 1:  # nothing else shows whether both directions are alike
            tasks.append(Task((_turned(chosen[0], 1),), between))
        ranked += [(number if number == 0 else number + 1, task) for number, task in enumerate(tasks)]
        if crosses and len(apart) > 1:
            same_way = tuple((a, b) if regions[a] == between[0] else (b, a) for a, b in apart)
            ranked.append((1, Task(same_way, between, together=True)))
    return [task for _, task in sorted(ranked, key=lambda each: each[0])]


def choose(ends: Sequence[Pair], trips: Mapping[Pair, float], samples: int) -> list[Pair]:
    """Some of these pairs: the one in the middle by round trip, then the slowest and the quickest ones in turn; first
    those that share no machine."""
    ordered = sorted(ends, key=lambda each: (trips[each], each))
    middle = ordered.pop(len(ordered) // 2)
    wanted = [middle]
    while ordered:
        wanted.append(ordered.pop())
        if ordered:
            wanted.append(ordered.pop(0))
    first = _apart(wanted)
    return (first + [each for each in wanted if each not in first])[:samples]


def _apart(ends: Iterable[Pair]) -> list[Pair]:
    """Those of the pairs that share no machine with one before."""
    used: set[str] = set()
    found = []
    for each in ends:
        if not used & set(each):
            found.append(each)
            used |= set(each)
    return found


def _turned(ends: Pair, number: int) -> Pair:
    """Directions take turns."""
    return ends if number % 2 == 0 else (ends[1], ends[0])


@dataclass
class Waiting:
    """Tasks that wait for their turn, and those that run."""

    tasks: list[Task]
    running: list[Task] = field(default_factory=list)

    def take(self) -> Task | None:
        """The first that disturbs none that runs; None where there is none now."""
        for task in self.tasks:
            if not any(task.disturbs(other) for other in self.running):
                self.tasks.remove(task)
                self.running.append(task)
                return task
        return None

    def done(self, task: Task) -> None:
        """It runs no more."""
        self.running.remove(task)

    def without(self, machine: str) -> list[Task]:
        """Give up all that waits and needs a machine; what was given up."""
        lost = [task for task in self.tasks if machine in task.machines]
        self.tasks = [task for task in self.tasks if machine not in task.machines]
        return lost
