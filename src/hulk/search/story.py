"""How a search went, for whoever follows it: a line for each of its phases, with what it gained."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from hulk.search.budget import Budget
from hulk.search.objective import Objective, Score
from hulk.search.state import State

_LOG = logging.getLogger("hulk.search")


class Story:
    """Tells the phases of a search to the log `hulk.search`, at level INFO."""

    def __init__(self, budget: Budget, objective: Objective, score: Callable[[State], Score]) -> None:
        self._budget = budget
        self._objective = objective
        self._score = score
        self._since = budget.begin
        self._tried = 0
        self._best: Score | None = None

    def tell(self, phase: str, state: State | None) -> None:
        """A phase is over, with this as the best it has found."""
        if _LOG.isEnabledFor(logging.INFO):
            self.tell_score(phase, None if state is None else self._score(state))

    def tell_score(self, phase: str, score: Score | None) -> None:
        """The same by the score."""
        now = time.monotonic()
        moves = self._budget.tried - self._tried
        gained = "no plan yet" if score is None else self._objective.describe(score)
        if score is not None and self._best is not None and score[:2] == self._best[:2] and self._best.goal:
            gained += f" ({score.goal / self._best.goal - 1:+.1%})"
        _LOG.info("%-28s %6.2f s %8s moves   %s", phase, now - self._since, f"{moves:,}", gained)
        self._since, self._tried = now, self._budget.tried
        self._best = score if self._best is None else self._best if score is None else score
