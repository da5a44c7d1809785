"""`hulk.search.polish` for every objective: in pieces, so that the clock and Ctrl-C are seen, and with money."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from hulk.domain.plan import Recompute, Sync
from hulk.search import recipes
from hulk.search.groups import GroupSearch
from hulk.search.objective import Objective, Outcome, job_cost
from hulk.search.polish import Shapes, accept, copy_all, empty_shapes, polish, propose
from hulk.search.skeleton import Settings, Skeleton
from hulk.search.state import State

_COLD = 1e-6
_CHUNK = 64


class Polisher:
    """Improves states by small changes. `groups` has the jobs, their tables and the recipes that served them."""

    def __init__(
        self,
        groups: GroupSearch,
        objective: Objective,
        *,
        report: Callable[[float], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.groups = groups
        self.objective = objective
        self.report = report
        self.stop = stop
        self._trial = empty_shapes(groups.packed)
        self._dollars: dict[tuple[int, Skeleton], float] = {}

    def cost(self, state: State) -> float:
        """The objective of a state."""
        return self._cost(state.skeletons, state.seconds)

    def run(self, state: State, *, moves: int, deadline: float, hot: float) -> State:
        """The best state found with so many moves, or by the deadline on the monotonic clock; it cools by moves or by
        time, whichever is further on. `hot` is the loss, relative to the objective, that is taken lightly at first."""
        shapes, best = self._shapes(state), empty_shapes(self.groups.packed)
        copy_all(shapes, best)
        anneal = self._anneal_money if self.objective.needs_money else self._anneal
        begin, made, done = time.monotonic(), 0, 0.0
        while made < moves and begin < deadline and not self.stop():
            part = min(_CHUNK, moves - made)
            ahead = max((made + part) / moves, done)
            warm, cold = (hot * (_COLD / hot) ** x for x in (done, ahead))
            anneal(shapes, best, part, warm, cold)
            made += part
            self.groups.tried += part
            now = time.monotonic()
            if now >= deadline:
                break
            done = max(made / moves, (now - begin) / (deadline - begin))
            self.groups.hurried |= done > made / moves
        self.groups.hurried |= made < moves
        return min(state, self._state(best), key=self.cost)

    def _anneal(self, shapes: Shapes, best: Shapes, moves: int, hot: float, cold: float) -> None:
        groups = self.groups
        seed = groups.draw_seed()
        polish(groups.packed, groups.bench, shapes, best, self._trial, groups.learned, moves, hot, cold, seed)
        if self.report:
            self.report(groups.cost(best.deal))

    def _anneal_money(self, shapes: Shapes, best: Shapes, moves: int, hot: float, cold: float) -> None:
        """The same move by move: dollars come from the price itself."""
        groups = self.groups
        now, least = self.cost(self._state(shapes)), self.cost(self._state(best))
        for turn in range(moves):
            heat = hot * (cold / hot) ** (turn / moves)
            jobs = propose(groups.packed, groups.bench, shapes, self._trial, groups.learned, groups.draw_seed())
            if not jobs.size:
                continue
            after = self.cost(self._state(shapes, jobs.tolist()))
            gain = (now - after) / max(now - self._waiting(shapes), 1e-12)
            if gain <= 0 and groups.rng.random() >= np.exp(gain / heat):
                continue
            accept(shapes, self._trial, jobs)
            now = after
            if now < least:
                least = now
                copy_all(shapes, best)
                if self.report:
                    self.report(least)

    def _waiting(self, shapes: Shapes) -> float:
        """What jobs without a place add to the objective."""
        seconds = shapes.deal.seconds
        return sum(job_cost(space.job, None) for space, s in zip(self.groups.spaces, seconds, strict=True) if s < 0)

    def _cost(self, skeletons: Sequence[Skeleton | None], seconds: Sequence[float | None]) -> float:
        spaces = self.groups.spaces
        if not self.objective.needs_money:
            return sum(job_cost(space.job, s) for space, s in zip(spaces, seconds, strict=True))
        outcomes = {}
        for job, (space, skeleton, taken) in enumerate(zip(spaces, skeletons, seconds, strict=True)):
            dollars = self._dollars_of(job, skeleton) if skeleton else 0.0
            outcomes[space.job.name] = Outcome(taken, dollars)
        return self.objective.cost({space.job.name: space.job for space in spaces}, outcomes)

    def _dollars_of(self, job: int, skeleton: Skeleton) -> float:
        if (job, skeleton) not in self._dollars:
            self._dollars[job, skeleton] = self.groups.spaces[job].dollars(skeleton)
        return self._dollars[job, skeleton]

    def _state(self, shapes: Shapes, changed: Collection[int] = ()) -> State:
        """Skeletons again; of the jobs a move has changed, those it would have."""
        skeletons: list[Skeleton | None] = []
        seconds: list[float | None] = []
        for job in range(len(self.groups.spaces)):
            source = self._trial if job in changed else shapes
            pipelines = int(source.pipelines[job])
            taken = float(source.deal.seconds[job])
            if pipelines == 0 or taken < 0:
                skeletons.append(None)
                seconds.append(None)
                continue
            starts = source.starts[job, : pipelines + 1]
            made = self.groups.skeleton(job, source.machine[job], source.ranks[job], starts, source.deal.recipes[job])
            skeletons.append(made)
            seconds.append(taken)
        return State.of(skeletons, seconds)

    def _shapes(self, state: State) -> Shapes:
        """A state in arrays."""
        shapes = empty_shapes(self.groups.packed)
        found = zip(self.groups.spaces, state.skeletons, state.seconds, strict=True)
        for job, (space, skeleton, seconds) in enumerate(found):
            if skeleton is None or seconds is None:
                continue
            slots = [slot for chain in skeleton.chains for slot in chain]
            shapes.machine[job, : len(slots)] = [slot.machine for slot in slots]
            shapes.ranks[job, : len(slots)] = [slot.ranks for slot in slots]
            lengths = [len(chain) for chain in skeleton.chains]
            shapes.starts[job, 1 : len(lengths) + 1] = np.cumsum(lengths)
            shapes.pipelines[job] = len(lengths)
            known = self._known_size(job, skeleton.settings)
            shapes.deal.recipes[job] = self._switches(job, known)
            same = known == skeleton.settings
            shapes.deal.seconds[job] = seconds if same else space.seconds(Skeleton(skeleton.chains, known))
            shapes.deal.owner[[slot.machine for slot in slots]] = job
        return shapes

    def _known_size(self, job: int, settings: Settings) -> Settings:
        """Settings with a microbatch size that the packed tables have: the next smaller one."""
        sizes = [int(size) for size in self.groups.packed.sizes[job] if 0 < size <= settings.microbatch]
        return replace(settings, microbatch=sizes[-1])

    def _switches(self, job: int, settings: Settings) -> recipes.Ints:
        """Settings as the switches of a recipe."""
        size = self.groups.packed.sizes[job].tolist().index(settings.microbatch)
        recipe = np.zeros(recipes.COLUMNS, np.int64)
        recipe[recipes.VARIANT] = 2 * size + (settings.recompute is Recompute.FULL)
        recipe[recipes.EXTRA] = settings.extra
        recipe[recipes.GPIPE] = settings.gpipe
        recipe[recipes.BY_REGION] = settings.sync is Sync.BY_REGION
        recipe[recipes.SHARD] = settings.shard_optimizer
        return recipe
