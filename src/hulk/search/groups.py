"""Who gets which machines, searched as such: a group is judged by the best shape that a quick look finds for it.

Small changes to pipelines cannot show what a quite different group would be worth, since its best shape is another one.
Here every group is arranged anew. Machines of one place are interchangeable, so a group is known by how many it has of
each place, and is looked at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from hulk.search.anneal import State
from hulk.search.evaluate import JobSpace
from hulk.search.objective import job_cost
from hulk.search.seeds import arrange
from hulk.search.skeleton import Skeleton

Group = frozenset[int]
_HOT, _COLD = 0.05, 2e-4


class GroupSearch:
    """Annealing over groups. Progress is counted in groups looked at."""

    def __init__(self, spaces: Sequence[JobSpace], rng: np.random.Generator) -> None:
        self.spaces = list(spaces)
        self.rng = rng
        self.looked = 0
        self._places = spaces[0].places.of_machine
        self._known: dict[tuple[int, tuple[tuple[int, int], ...]], float] = {}
        self._by_place: dict[int, list[int]] = {}
        for machine, row in enumerate(self._places):
            self._by_place.setdefault(row, []).append(machine)
        regions: dict[str, list[int]] = {}
        for machine, host in enumerate(spaces[0].cluster.machines):
            regions.setdefault(host.region, []).append(machine)
        self._regions = list(regions.values())

    def cost(self, job: int, group: Group) -> float:
        """The job's part of the objective on a group; that of waiting where it does not fit."""
        key = (job, tuple(sorted(Counter(self._places[machine] for machine in group).items())))
        if key not in self._known:
            self.looked += 1
            found = arrange(self.spaces[job], sorted(group), quick=True) if group else None
            seconds = found[1] if found and found[1] >= 0 else None
            self._known[key] = job_cost(self.spaces[job].job, seconds)
        return self._known[key]

    def run(self, state: State, *, looks: int, deadline: float) -> list[Group]:
        """Better groups than those of a state, after so many looks or at the deadline."""
        groups = [frozenset(skeleton.machines) if skeleton else frozenset() for skeleton in state.skeletons]
        costs = [self.cost(job, group) for job, group in enumerate(groups)]
        best, least, begin = list(groups), sum(costs), self.looked
        total, tries = least, 0
        while self.looked - begin < looks and tries < 20 * looks and time.monotonic() < deadline:
            done = max((self.looked - begin) / looks, tries / (20 * looks))
            tries += 1
            changed = self._propose(groups)
            if not changed:
                continue
            after = {job: self.cost(job, group) for job, group in changed.items()}
            loss = sum(after[job] - costs[job] for job in changed)
            heat = _HOT * (_COLD / _HOT) ** done * total
            if loss <= 0 or self.rng.random() < np.exp(-loss / heat):
                for job, group in changed.items():
                    groups[job], costs[job] = group, after[job]
                total = sum(costs)
                if total < least * (1 - 1e-9):
                    best, least = list(groups), total
        return best

    def shape(self, job: int, group: Group, *, wide: bool) -> tuple[Skeleton | None, float | None]:
        """The shape a group is judged by, or, with `wide`, the best of a longer look."""
        found = arrange(self.spaces[job], sorted(group), quick=not wide) if group else None
        if found is None or found[1] < 0:
            return None, None
        return found

    def _propose(self, groups: list[Group]) -> dict[int, Group] | None:
        draw = self.rng.random()
        if draw < 0.15 and len(groups) > 1:
            return self._exchange(groups)
        if draw < 0.45:
            return self._swap(groups)
        return self._give(groups)

    def _give(self, groups: list[Group]) -> dict[int, Group] | None:
        """Some machines of a place, or all of a region that one holder has, go to another job or stay idle."""
        owner = {machine: job for job, group in enumerate(groups) for machine in group}
        machine = int(self.rng.integers(len(self._places)))
        giver = owner.get(machine, -1)
        taker = int(self.rng.integers(-1, len(groups)))
        if taker == giver:
            return None
        pool = self._by_place[self._places[machine]]
        if self.rng.random() < 0.3:
            pool = next(region for region in self._regions if machine in region)
        members = [other for other in pool if owner.get(other, -1) == giver]
        draw = self.rng.random()
        count = 1 if draw < 0.35 else len(members) if draw > 0.8 else int(self.rng.integers(1, len(members) + 1))
        moved = frozenset([machine, *[other for other in members if other != machine][: count - 1]])
        if taker >= 0:
            moved &= self.spaces[taker].allowed
        if not moved:
            return None
        changed: dict[int, Group] = {}
        if giver >= 0:
            changed[giver] = groups[giver] - moved
        if taker >= 0:
            changed[taker] = groups[taker] | moved
        return changed

    def _swap(self, groups: list[Group]) -> dict[int, Group] | None:
        """Two machines of different places change hands."""
        owner = {machine: job for job, group in enumerate(groups) for machine in group}
        one, two = (int(x) for x in self.rng.integers(len(self._places), size=2))
        a, b = owner.get(one, -1), owner.get(two, -1)
        if a == b or self._places[one] == self._places[two]:
            return None
        changed: dict[int, Group] = {}
        for job, old, new in ((a, one, two), (b, two, one)):
            if job >= 0:
                if new not in self.spaces[job].allowed:
                    return None
                changed[job] = (groups[job] - {old}) | {new}
        return changed

    def _exchange(self, groups: list[Group]) -> dict[int, Group] | None:
        """Two jobs change groups."""
        i, j = (int(x) for x in self.rng.choice(len(groups), 2, replace=False))
        one, two = groups[i], groups[j]
        if not one <= self.spaces[j].allowed or not two <= self.spaces[i].allowed:
            return None
        return {i: two, j: one}
