"""Plans of single jobs put together: one for each job, with machines enough of each kind, for the least in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hulk.domain.plan import JobPlan

_MOST_LOOKS = 20_000


@dataclass(frozen=True)
class Choice:
    """A plan for a job, how it came about, what it costs, and how many machines of each kind it uses."""

    job: str
    plan: JobPlan
    how: str
    cost: float
    uses: Counter[int]


def best_ways(choices: Sequence[Sequence[Choice]], room: Mapping[int, int], *, most: int) -> list[tuple[Choice, ...]]:
    """The cheapest ways to take one choice of each list (none of an empty one) beside each other. Exact, unless there
    are too many to look at: then the cheapest of those that take the cheaper choices first."""
    lists = [sorted(_undominated(own), key=lambda choice: choice.cost) for own in choices if own]
    lists.sort(key=len)
    least = [0.0] * (len(lists) + 1)  # what the lists from here on cost at least
    for i in reversed(range(len(lists))):
        least[i] = lists[i][0].cost + least[i + 1]
    found: list[tuple[float, tuple[Choice, ...]]] = []
    looks = 0

    def go(i: int, cost: float, taken: tuple[Choice, ...], left: Counter[int]) -> None:
        nonlocal looks
        if i == len(lists):
            found.append((cost, taken))
            found.sort(key=lambda way: way[0])
            del found[most:]
            return
        for choice in lists[i]:
            looks += 1
            full = len(found) == most and cost + choice.cost + least[i + 1] >= found[-1][0]
            if full or looks > _MOST_LOOKS:
                return
            if choice.uses <= left:
                go(i + 1, cost + choice.cost, (*taken, choice), left - choice.uses)

    if lists:
        go(0, 0.0, (), Counter(room))
    return [way for _, way in found]


def _undominated(choices: Sequence[Choice]) -> list[Choice]:
    """Without those that another beats with no more machines of any kind."""
    return [
        choice
        for i, choice in enumerate(choices)
        if not any(
            other.uses <= choice.uses and (other.cost, j) < (choice.cost, i)
            for j, other in enumerate(choices)
            if j != i
        )
    ]
