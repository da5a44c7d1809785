"""The best plan of one job on a set of machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from hulk.search.exact.alike import alike_modes, solve_alike
from hulk.search.exact.alone import solve_alone
from hulk.search.exact.bounds import all_work
from hulk.search.exact.case import Case, offer_of
from hulk.search.exact.listing import Lister
from hulk.search.exact.mode import Mode, modes_of
from hulk.search.exact.plans import Known
from hulk.search.exact.together import solve_together
from hulk.search.job_space import JobSpace
from hulk.search.shape.arrange import arrange

_WIDER = 1.15  # how much more time is allowed when no plan was found
_WIDEST = 100  # times the bound: from there on any time

Way = tuple[Callable[[Mode, Case, Lister, float], Known | None], list[tuple[Mode, Case]]]
"""What finds the best plan of some kind that is faster than so many seconds, and the cases to ask it for."""


class JobSolver:
    """A job on one set of machines after the other."""

    def __init__(self, space: JobSpace) -> None:
        self._space = space
        self._modes = modes_of(space)
        self._alike = alike_modes(space)
        self._lister = Lister(len(space.job.model.layers))

    def at_least(self, machines: Sequence[int]) -> float:
        """Seconds below which no plan on these machines can be; inf where there is none."""
        return _least_work(self._ways(self._usable(machines)))

    def solve(self, machines: Sequence[int], limit: float) -> Known:
        """The best plan on these machines, or that none is faster than `limit` seconds."""
        usable = self._usable(machines)
        if not usable:
            return Known(inf, None, exact=True)
        best = self._seed(usable, limit)
        ways = self._ways(usable)
        # First only plans close to the bound, then wider and wider: what is looked at grows quickly with the time
        # allowed.
        ceiling = _least_work(ways)
        widest = _WIDEST * ceiling
        while True:
            ceiling = ceiling * _WIDER if ceiling < widest else inf
            found = self._below(ways, min(ceiling, best.seconds))
            if found is not None:
                return found
            if ceiling >= best.seconds:
                return best

    def _usable(self, machines: Sequence[int]) -> list[int]:
        return [machine for machine in machines if machine in self._space.allowed]

    def _ways(self, usable: Sequence[int]) -> list[Way]:
        """The ways to solve the job on these machines; none where there are no machines."""
        if not usable:
            return []
        offer = offer_of(self._space, usable)
        cases = [(mode, mode.case(offer)) for mode in self._modes]
        alike = [(mode, mode.case(offer)) for mode in self._alike]
        return [(solve_alone, cases), (solve_together, cases), (solve_alike, alike)]

    def _seed(self, usable: Sequence[int], limit: float) -> Known:
        """The search's own seed, or where that is not faster, that nothing below `limit` is known."""
        seed = arrange(self._space, usable)
        if seed is not None and seed[1].runs:
            plan, seconds = self._space.plan(seed[0])
            if seconds < limit:
                return Known(seconds, plan, exact=True)
        return Known(limit, None, exact=limit == inf)

    def _below(self, ways: Sequence[Way], seconds: float) -> Known | None:
        """The best plan faster than `seconds`."""
        best: Known | None = None
        for solve, cases in ways:
            for mode, case in cases:
                found = solve(mode, case, self._lister, seconds)
                if found is not None:
                    best, seconds = found, found.seconds
        return best


def _least_work(ways: Sequence[Way]) -> float:
    """Seconds below which no plan can be; inf where there is none."""
    return min((all_work(case) for _, cases in ways for _, case in cases), default=inf)
