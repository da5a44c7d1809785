"""Machines dealt to jobs, compiled: annealing over who has which machine, each group judged by a recipe.

Small changes to pipelines cannot show what a quite different group would be worth, since its best shape is another one.
Here every group gets its shape anew: by the recipe the job has, by one that served it on groups of that size, and at
times by one a little different.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import kernel
from hulk.search.assignment.moves import RECIPE, RELOCATE, draw_kind, move_machines
from hulk.search.deals import COLUMNS, Deal, cost_of, draw_job, keep_pins, running_cost, take_over, total_cost
from hulk.search.heat import Heat
from hulk.search.learned import Learned
from hulk.search.recipes import FEW_SAMPLES, SAMPLES, look
from hulk.search.results import LACKS, OPEN
from hulk.search.tables import SearchTables
from hulk.search.workspace import Workspace

Ints = NDArray[np.int64]
_SECOND_LOOK = 0.15  # of the groups that a move has changed get a drawn recipe as well


@kernel
def improve(
    packed: SearchTables, work: Workspace, deal: Deal, best: Deal, learned: Learned, moves: int, heat: Heat, seed: int
) -> None:
    """Anneal a deal for so many moves. The best seen goes to `best`, which comes with the best so far. Where jobs are
    open, recipes are drawn for them first."""
    np.random.seed(seed)
    jobs = packed.allowed.shape[0]
    touched = np.zeros(jobs + 2, np.int64)
    trial = Deal(deal.owner.copy(), np.zeros((jobs, COLUMNS), np.int64), deal.status.copy(), deal.value.copy())
    is_open = (deal.status == OPEN).any()
    for move in range(-jobs if is_open else 0, moves):
        warmth = heat.hot * (heat.cold / heat.hot) ** (max(move, 0) / moves)
        trial.owner[:] = deal.owner
        kind = draw_kind()
        alone = move < 0 or kind == RECIPE
        if alone:
            touched[0] = move + jobs if move < 0 else draw_job(packed, deal)
            count = 0 if move < 0 and deal.status[touched[0]] != OPEN else 1
        else:
            count = move_machines(packed, learned, kind, trial.owner, touched)
        if count == 0:
            continue
        keep_pins(packed, trial.owner)
        before, total, waits = 0.0, 0.0, move < 0
        for i in range(count):
            before += cost_of(packed, touched[i], deal.status[touched[i]], deal.value[touched[i]])
            waits = waits or deal.status[touched[i]] == LACKS
        scale = before if alone else running_cost(packed, deal)
        # What the jobs may cost together, drawn before they are looked at, so that prices stop where it is more.
        most = np.inf if move < 0 else before - warmth * scale * np.log(1.0 - np.random.random())
        for i in range(count):
            j = touched[i]
            samples = 2 if alone else 1 if np.random.random() < _SECOND_LOOK else 0
            if move < 0:
                samples = SAMPLES
            elif kind == RELOCATE or deal.status[j] == LACKS:
                samples = FEW_SAMPLES
            limit = np.inf if waits else (most - total) / packed.weight[j]
            trial.recipes[j] = deal.recipes[j]
            trial.status[j], trial.value[j] = look(packed, work, j, trial, learned.served, samples, limit)
            total += cost_of(packed, j, trial.status[j], trial.value[j])
            if total > most:
                break
        if total <= most:
            deal.owner[:] = trial.owner
            for i in range(count):
                j = touched[i]
                deal.recipes[j] = trial.recipes[j]
                deal.status[j], deal.value[j] = trial.status[j], trial.value[j]
            if total_cost(packed, deal) < total_cost(packed, best):
                take_over(best, deal)
