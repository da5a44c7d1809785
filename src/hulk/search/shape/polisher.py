"""`hulk.search.shape.anneal` for every objective, with money too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from hulk.domain.options import options_of, places_of
from hulk.search.assignment.race import GroupSearch
from hulk.search.cooling import cool
from hulk.search.deals import Deal
from hulk.search.heat import Heat
from hulk.search.layouts import LAYOUT
from hulk.search.objective import Objective, Outcome, Score
from hulk.search.results import RUNS, Result
from hulk.search.shape.anneal import Draft, Shapes, accept, copy_all, empty_shapes, polish, propose
from hulk.search.skeleton import Skeleton
from hulk.search.state import State
from hulk.search.written import read, write

_MOST_KNOWN = 100_000
_WAITS = Outcome(None)


class Polisher:
    """Improves states by small changes. `groups` has the jobs, their tables and the recipes that served them."""

    def __init__(
        self, groups: GroupSearch, objective: Objective, *, report: Callable[[Score], None] | None = None
    ) -> None:
        self.groups = groups
        self.objective = objective
        self._report = report
        self._trial = empty_shapes(groups.packed)
        self._jobs = [space.job for space in groups.spaces]
        self._known: dict[tuple[int, Skeleton], Outcome] = {}

    def score(self, state: State) -> Score:
        """How good a state is."""
        return self.objective.score(self._jobs, self._outcomes_of(state))

    def deal_score(self, deal: Deal) -> Score:
        """How good a deal is, by the times of its jobs."""
        return Objective(slack=self.objective.slack).score(self._jobs, [Outcome(each) for each in deal.seconds])

    def tighten(self, slack: float) -> None:
        """From now on leave this share of every limit and deadline unused: what a search finds by its own price may be
        a little over when it is priced in full."""
        self.objective = replace(self.objective, slack=slack)
        self.groups.leave_unused(slack)

    def run(self, state: State, *, moves: int, deadline: float, heat: Heat, in_order: bool = False) -> State:
        """The best state found with so many moves, or by the deadline on the monotonic clock. `in_order`: machines stay
        with their jobs, and only the order of every job's slots changes; with money, anything may."""
        shapes, best = self._shapes(state), empty_shapes(self.groups.packed)
        copy_all(shapes, best)
        draft = Draft(shapes, best, self._trial)
        anneal = partial(self._anneal_money, draft)
        if not self.objective.needs_money:
            anneal = partial(self._anneal, draft, in_order)
        cool(anneal, heat, moves, deadline, self.groups.budget)
        return min(state, self._state(best), key=self.score)

    def _anneal(self, draft: Draft, in_order: bool, moves: int, heat: Heat) -> None:
        groups = self.groups
        polish(groups.packed, groups.work, draft, groups.learned, moves, heat, groups.draw_seed(), in_order)
        if self._report:
            self._report(self.deal_score(draft.best.deal))

    def _anneal_money(self, draft: Draft, moves: int, heat: Heat) -> None:
        """The same move by move: dollars come from the price itself."""
        groups, jobs, trial = self.groups, self._jobs, draft.trial
        held = [self._outcome(draft.now, job) for job in range(len(jobs))]
        now = self.objective.score(jobs, held)
        least = self.objective.score(jobs, [self._outcome(draft.best, job) for job in range(len(jobs))])
        for turn in range(moves):
            warmth = heat.hot * (heat.cold / heat.hot) ** (turn / moves)
            touched = propose(groups.packed, groups.work, draft.now, trial, groups.learned, groups.draw_seed())
            if not touched.size:
                continue
            wanted = list(held)
            for job in touched.tolist():
                wanted[job] = self._outcome(trial, job)
            after = self.objective.score(jobs, wanted)
            loss = after.energy - now.energy
            if loss > 0 and groups.rng.random() >= np.exp(-loss / warmth):
                continue
            accept(draft.now, trial, touched)
            held, now = wanted, after
            if now < least:
                least = now
                copy_all(draft.now, draft.best)
                if self._report:
                    self._report(least)

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
            space = self.groups.spaces[job]
            dollars = space.dollars(skeleton)
            found = _WAITS if dollars is None else Outcome(space.result(skeleton).seconds, dollars)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[job, skeleton] = found
        return found

    def _skeleton(self, shapes: Shapes, job: int) -> Skeleton | None:
        """A job's pipelines again; None where it waits."""
        pipelines = int(shapes.pipelines[job])
        if pipelines == 0 or shapes.deal.status[job] != RUNS:
            return None
        chains = read(shapes.machine[job], shapes.ranks[job], shapes.starts[job], pipelines)
        return self.groups.skeleton(job, chains, shapes.deal.recipes[job])

    def _state(self, shapes: Shapes) -> State:
        """Skeletons again."""
        skeletons = [self._skeleton(shapes, job) for job in range(len(self._jobs))]
        return State.of(skeletons, shapes.deal.seconds)

    def _shapes(self, state: State) -> Shapes:
        """A state in arrays."""
        shapes = empty_shapes(self.groups.packed)
        found = zip(self.groups.spaces, state.skeletons, state.seconds, strict=True)
        for job, (space, skeleton, seconds) in enumerate(found):
            if skeleton is None or seconds is None:
                continue
            shapes.pipelines[job] = write(skeleton.chains, shapes.machine[job], shapes.ranks[job], shapes.starts[job])
            places = places_of(skeleton.options, space.scope)
            shapes.deal.recipes[job, LAYOUT:] = places
            shapes.deal.owner[list(skeleton.machines)] = job
            known = options_of(space.scope, places)
            same = known == skeleton.options
            result = Result(RUNS, seconds) if same else space.result(Skeleton(skeleton.chains, known))
            shapes.deal.status[job], shapes.deal.value[job] = result
        return shapes
