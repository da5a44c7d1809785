"""The exact solver's compiled code, loaded before it is needed: a case may be solved without the half of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf

from hulk.cost.compiled import is_cached
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import MEGATRON
from hulk.cost.loading import smallest_case
from hulk.search.exact.alike import alike_modes, solve_alike
from hulk.search.exact.alone import best_alone, solve_alone
from hulk.search.exact.case import offer_of
from hulk.search.exact.listing import Lister
from hulk.search.exact.mode import modes_of
from hulk.search.exact.teams import best_team
from hulk.search.exact.together import solve_together
from hulk.search.job_space import JobSpace, Places


def is_compiled() -> bool:
    """Whether the solver's compiled code of this very version is kept on this machine."""
    return is_cached(best_alone) and is_cached(best_team)


@cache
def load_exact() -> None:
    """Load all of it, or compile it, which takes a minute: every way to solve is asked for any plan on one machine of
    two GPUs, so that no bound ends it early."""
    cluster, job = smallest_case()
    job = replace(job, global_batch=2)
    # The engine with the most to choose from: it has plans for every way.
    space = JobSpace(job, cluster, Places.of(cluster), compute=ComputeModel(), engine=replace(MEGATRON, counts=()))
    offer = offer_of(space, [0])
    for solve, modes in ((solve_alone, modes_of), (solve_together, modes_of), (solve_alike, alike_modes)):
        mode = modes(space)[0]
        solve(mode, mode.case(offer), Lister(len(job.model.layers)), inf)
