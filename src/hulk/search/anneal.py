"""From a start to a better plan: simulated annealing over skeletons, in cycles that double, each from the best so far.

Moves inside one job are judged by that job's own gain, moves between jobs by the whole objective, so that a small job
is polished beside a large one. Progress is counted in evaluations, not seconds: the same seed gives the same plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hulk.search import moves
from hulk.search.evaluate import JobSpace
from hulk.search.money import dollars_per_step
from hulk.search.objective import Objective, Outcome, job_cost
from hulk.search.seeds import arrange, rank
from hulk.search.skeleton import Settings, Skeleton

Changes = dict[int, Skeleton | None]
_HOT, _COLD = 0.03, 1e-6
_SMALL_GROUP = 3
_FIRST_CYCLE = 1500


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

    def apply(self, changes: Changes, seconds: dict[int, float | None]) -> None:
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


class Annealer:
    """One search. `spaces` in the order of the jobs."""

    def __init__(
        self,
        spaces: Sequence[JobSpace],
        objective: Objective,
        rng: np.random.Generator,
        *,
        report: Callable[[State, float], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.spaces = list(spaces)
        self.objective = objective
        self.rng = rng
        self.report = report
        self.stop = stop
        self.jobs = {space.job.name: space.job for space in spaces}
        self.machines = sorted(set().union(*(space.allowed for space in spaces)))
        latency = spaces[0].tables(Settings(spaces[0].microbatches[0])).latency
        self._near = np.argsort(latency, axis=1, kind="stable")
        self._shapes: dict[tuple[int, frozenset[int]], tuple[Skeleton, float] | None] = {}
        self._place_members: dict[int, list[int]] = {}
        for machine, row in enumerate(spaces[0].places.of_machine):
            self._place_members.setdefault(row, []).append(machine)

    def cost(self, state: State) -> float:
        """The objective of a state."""
        if not self.objective.needs_money:
            return sum(job_cost(space.job, s) for space, s in zip(self.spaces, state.seconds, strict=True))
        outcomes = {}
        for space, skeleton, seconds in zip(self.spaces, state.skeletons, state.seconds, strict=True):
            dollars = dollars_per_step(space, skeleton, seconds) if skeleton and seconds is not None else 0.0
            outcomes[space.job.name] = Outcome(seconds, dollars)
        return self.objective.cost(self.jobs, outcomes)

    def run(self, state: State, *, evaluations: int, deadline: float, hot: float = _HOT) -> State:
        """The best state found within so many evaluations, or by the deadline on the monotonic clock. `hot` is the
        loss, relative to the objective, that is taken lightly at first."""
        best, least = state.copy(), self.cost(state)
        used, cycle = 0, _FIRST_CYCLE
        while used < evaluations and time.monotonic() < deadline and not self.stop():
            length = min(cycle, evaluations - used)
            found, cost = self._cycle(best.copy(), least, length, deadline, hot)
            used += length
            cycle *= 2
            if cost < least * (1 - 1e-9):
                best, least = found, cost
        return best

    def _cycle(self, state: State, cost: float, length: int, deadline: float, hot: float) -> tuple[State, float]:
        best, least = state.copy(), cost
        for step in range(length):
            if step % 32 == 0 and (self.stop() or time.monotonic() > deadline):
                break
            heat = hot * (_COLD / hot) ** (step / length)
            changes = self._propose(state)
            if not changes:
                continue
            seconds = {job: self._seconds(job, skeleton) for job, skeleton in changes.items()}
            if any(s is not None and s < 0 for s in seconds.values()):
                continue
            after, gain = self._gain(state, cost, changes, seconds)
            if gain > 0 or self.rng.random() < np.exp(gain / heat):
                state.apply(changes, seconds)
                cost = after
                if cost < least * (1 - 1e-9):
                    best, least = state.copy(), cost
                    if self.report:
                        self.report(best, least)
        return best, least

    def _seconds(self, job: int, skeleton: Skeleton | None) -> float | None:
        return None if skeleton is None else self.spaces[job].seconds(skeleton)

    def _gain(
        self, state: State, cost: float, changes: Changes, seconds: dict[int, float | None]
    ) -> tuple[float, float]:
        """(objective afterwards, relative gain): relative to the jobs that change, for moves inside one job."""
        if self.objective.needs_money:
            trial = state.copy()
            trial.apply(changes, seconds)
            after = self.cost(trial)
            return after, (cost - after) / max(abs(cost), 1e-12)
        before = sum(job_cost(self.spaces[job].job, state.seconds[job]) for job in changes)
        later = sum(job_cost(self.spaces[job].job, seconds[job]) for job in changes)
        scale = before if len(changes) == 1 else max(cost, 1e-12)
        return cost - before + later, (before - later) / max(scale, 1e-12)

    def _propose(self, state: State) -> Changes | None:
        draw = self.rng.random()
        alone = len(self.spaces) == 1
        if draw < (0.75 if alone else 0.55):
            return self._reshape(state)
        if draw < 0.85:
            return self._give(state)
        return self._swap(state)

    def _reshape(self, state: State) -> Changes | None:
        job = self._pick(state)
        skeleton = state.skeletons[job]
        if skeleton is None:
            return None
        changed = moves.reshape(self.spaces[job], skeleton, self.rng)
        if changed is None or changed == skeleton:
            return None
        if self.rng.random() < 0.25:
            # Some shapes only pay with other settings: a second change before judging.
            changed = moves.reshape(self.spaces[job], changed, self.rng) or changed
        return {job: changed}

    def _pick(self, state: State) -> int:
        """Half of the time any job, half of the time one by its part of the objective: there is most to gain."""
        if len(self.spaces) == 1 or self.rng.random() < 0.5:
            return int(self.rng.integers(len(self.spaces)))
        parts = np.array(
            [0.0 if s is None else job_cost(space.job, s) for space, s in zip(self.spaces, state.seconds, strict=True)]
        )
        total = parts.sum()
        return int(np.searchsorted(np.cumsum(parts), self.rng.random() * total)) if total > 0 else 0

    def _give(self, state: State) -> Changes | None:
        """A machine leaves its job, or idleness, for another job, or for idleness."""
        machine = self.machines[int(self.rng.integers(len(self.machines)))]
        giver = state.owner.get(machine, -1)
        taker = self._taker(state, machine, giver)
        if taker == giver:
            return None
        changes: Changes = {}
        if giver >= 0:
            left = self._remove(giver, state.skeletons[giver], machine)
            if left is None:
                return None
            changes[giver] = left
        if taker >= 0:
            if machine not in self.spaces[taker].allowed:
                return None
            taken = self._insert(taker, state.skeletons[taker], machine)
            if taken is None:
                return None
            changes[taker] = taken
        return changes

    def _taker(self, state: State, machine: int, giver: int) -> int:
        """Mostly the owner of a machine near by; sometimes anybody, sometimes nobody."""
        draw = self.rng.random()
        if draw < 0.12:
            return -1
        if draw < 0.35:
            return int(self.rng.integers(len(self.spaces)))
        row = self.spaces[0].places.of_machine[machine]
        for place in self._near[row][: 2 + int(self.rng.integers(6))]:
            members = self._place_members[int(place)]
            other = members[int(self.rng.integers(len(members)))]
            owner = state.owner.get(other, -1)
            if owner not in (giver, -1):
                return owner
        return int(self.rng.integers(len(self.spaces)))

    def _remove(self, job: int, skeleton: Skeleton | None, machine: int) -> Skeleton | None:
        """The better of taking out its slots and taking out its pipelines; None where the job could not go on."""
        assert skeleton is not None
        options = [moves.without(skeleton, machine), moves.without_chains_of(skeleton, machine)]
        rest = skeleton.machines - {machine}
        options.append(self._from_scratch(job, rest))
        return self._best(job, [option for option in options if option is not None])

    def _insert(self, job: int, skeleton: Skeleton | None, machine: int) -> Skeleton | None:
        space = self.spaces[job]
        if skeleton is None:
            return self._from_scratch(job, {machine})
        options = moves.insertions(space, skeleton, machine, self.rng)
        fresh = self._from_scratch(job, skeleton.machines | {machine})
        return self._best(job, [*options, fresh] if fresh else options)

    def _from_scratch(self, job: int, machines: set[int]) -> Skeleton | None:
        """The best shape on a small group, found anew; None for larger ones, and where nothing fits."""
        if not 0 < len(machines) <= _SMALL_GROUP:
            return None
        key = (job, frozenset(machines))
        if key not in self._shapes:
            self._shapes[key] = arrange(self.spaces[job], sorted(machines), quick=True)
        found = self._shapes[key]
        return found[0] if found and found[1] >= 0 else None

    def _best(self, job: int, options: Sequence[Skeleton]) -> Skeleton | None:
        if not options:
            return None
        best = min(options, key=lambda option: rank(self.spaces[job].seconds(option)))
        return best if self.spaces[job].seconds(best) >= 0 else None

    def _swap(self, state: State) -> Changes | None:
        """Two machines change places: of two jobs, of one job, or one that is idle for one that is not."""
        one = self.machines[int(self.rng.integers(len(self.machines)))]
        two = self.machines[int(self.rng.integers(len(self.machines)))]
        a, b = state.owner.get(one, -1), state.owner.get(two, -1)
        if a == b:
            return None
        changes: Changes = {}
        for job, old, new in ((a, one, two), (b, two, one)):
            if job < 0:
                continue
            skeleton = state.skeletons[job]
            if new not in self.spaces[job].allowed or skeleton is None:
                return None
            changed = moves.substitute(self.spaces[job], skeleton, old, new)
            if changed is None:
                return None
            changes[job] = changed
        return changes
