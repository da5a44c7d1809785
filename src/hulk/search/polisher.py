"""`hulk.search.polish` for every objective: in pieces, so that the clock and Ctrl-C are seen, and with money."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hulk.domain.options import options_of, places_of
from hulk.search.dealing import Deal
from hulk.search.groups import GroupSearch
from hulk.search.layouts import LAYOUT
from hulk.search.objective import Objective, Outcome, Score
from hulk.search.polish import Shapes, accept, copy_all, empty_shapes, polish, propose
from hulk.search.skeleton import Skeleton
from hulk.search.state import State
from hulk.search.written import read, write

_COLD = 1e-6
_CHUNK = 64
_MOST_KNOWN = 100_000
_WAITS = Outcome(None)


class Polisher:
    """Improves states by small changes. `groups` has the jobs, their tables and the recipes that served them."""

    def __init__(
        self,
        groups: GroupSearch,
        objective: Objective,
        *,
        report: Callable[[Score], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.groups = groups
        self.objective = objective
        self.report = report
        self.stop = stop
        self._trial = empty_shapes(groups.packed)
        self._jobs = [space.job for space in groups.spaces]
        self._known: dict[tuple[int, Skeleton], Outcome] = {}

    def score(self, state: State) -> Score:
        """How good a state is."""
        return self.objective.score(self._jobs, self._outcomes_of(state))

    def deal_score(self, deal: Deal) -> Score:
        """How good a deal is, by the times of its jobs."""
        outcomes = [Outcome(float(seconds)) if seconds >= 0 else _WAITS for seconds in deal.seconds]
        return Objective(slack=self.objective.slack).score(self._jobs, outcomes)

    def tighten(self, slack: float) -> None:
        """From now on leave this share of every limit and deadline unused: what a search finds by its own price may be
        a little over when it is priced in full."""
        self.objective = replace(self.objective, slack=slack)
        self.groups.packed.longest[:] = [job.longest_step * (1 - slack) for job in self._jobs]

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
        return min(state, self._state(best), key=self.score)

    def _anneal(self, shapes: Shapes, best: Shapes, moves: int, hot: float, cold: float) -> None:
        groups = self.groups
        seed = groups.draw_seed()
        polish(groups.packed, groups.work, shapes, best, self._trial, groups.learned, moves, hot, cold, seed)
        if self.report:
            self.report(self.deal_score(best.deal))

    def _anneal_money(self, shapes: Shapes, best: Shapes, moves: int, hot: float, cold: float) -> None:
        """The same move by move: dollars come from the price itself."""
        groups, jobs = self.groups, self._jobs
        held = [self._outcome(shapes, job) for job in range(len(jobs))]
        now = self.objective.score(jobs, held)
        least = self.objective.score(jobs, [self._outcome(best, job) for job in range(len(jobs))])
        for turn in range(moves):
            heat = hot * (cold / hot) ** (turn / moves)
            touched = propose(groups.packed, groups.work, shapes, self._trial, groups.learned, groups.draw_seed())
            if not touched.size:
                continue
            trial = list(held)
            for job in touched.tolist():
                trial[job] = self._outcome(self._trial, job)
            after = self.objective.score(jobs, trial)
            loss = after.energy - now.energy
            if loss > 0 and groups.rng.random() >= np.exp(-loss / heat):
                continue
            accept(shapes, self._trial, touched)
            held, now = trial, after
            if now < least:
                least = now
                copy_all(shapes, best)
                if self.report:
                    self.report(least)

    def _outcomes_of(self, state: State) -> list[Outcome]:
        outcomes = []
        for job, (skeleton, seconds) in enumerate(zip(state.skeletons, state.seconds, strict=True)):
            priced = skeleton is not None and self.objective.needs_money
            outcomes.append(self._priced(job, skeleton) if skeleton and priced else Outcome(seconds))
        return outcomes

    def _outcome(self, shapes: Shapes, job: int) -> Outcome:
        """What a job's pipelines take and cost."""
        skeleton = self._skeleton(shapes, job)
        return self._priced(job, skeleton) if skeleton else _WAITS

    def _priced(self, job: int, skeleton: Skeleton) -> Outcome:
        found = self._known.get((job, skeleton))
        if found is None:
            dollars = self.groups.spaces[job].dollars(skeleton)
            found = _WAITS if dollars is None else Outcome(self.groups.spaces[job].seconds(skeleton), dollars)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[job, skeleton] = found
        return found

    def _skeleton(self, shapes: Shapes, job: int) -> Skeleton | None:
        """A job's pipelines again; None where it waits."""
        pipelines = int(shapes.pipelines[job])
        if pipelines == 0 or shapes.deal.seconds[job] < 0:
            return None
        chains = read(shapes.machine[job], shapes.ranks[job], shapes.starts[job], pipelines)
        return self.groups.skeleton(job, chains, shapes.deal.recipes[job])

    def _state(self, shapes: Shapes) -> State:
        """Skeletons again."""
        skeletons = [self._skeleton(shapes, job) for job in range(len(self._jobs))]
        seconds = [float(s) if made else None for made, s in zip(skeletons, shapes.deal.seconds, strict=True)]
        return State.of(skeletons, seconds)

    def _shapes(self, state: State) -> Shapes:
        """A state in arrays."""
        shapes = empty_shapes(self.groups.packed)
        found = zip(self.groups.spaces, state.skeletons, state.seconds, strict=True)
        for job, (space, skeleton, seconds) in enumerate(found):
            if skeleton is None or seconds is None:
                continue
            shapes.pipelines[job] = write(skeleton.chains, shapes.machine[job], shapes.ranks[job], shapes.starts[job])
            places = places_of(skeleton.options, space.job)
            shapes.deal.recipes[job, LAYOUT:] = places
            known = options_of(space.job, places)
            same = known == skeleton.options
            shapes.deal.seconds[job] = seconds if same else space.seconds(Skeleton(skeleton.chains, known))
            shapes.deal.owner[list(skeleton.machines)] = job
        return shapes
