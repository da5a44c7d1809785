"""Every job's pipelines polished side by side, compiled: annealing over who has which machine and where it stands.

A deal (`hulk.search.deals`) knows a group by the recipe that makes its pipelines. Here the pipelines themselves are
changed: slots, runs and whole machines, inside a job and between jobs. A change inside one job is judged by that job's
own gain, so that a small job is polished beside a large one; a change between jobs by the whole objective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import inlined, inner, kernel, maker
from hulk.search.assignment.moves import taker_of
from hulk.search.deals import COLUMNS, Deal, cost_of, draw_job, empty_deal, keep_pins, running_cost, total_cost
from hulk.search.heat import Heat
from hulk.search.layouts import DEGREE, LAYOUT, mend_ends, shape
from hulk.search.learned import Learned, bucket_of
from hulk.search.recipes import change_recipe, draw_recipe, priced, size_of
from hulk.search.results import LACKS, RUNS
from hulk.search.shape.machines import INSERTIONS, insert, substitute, without
from hulk.search.shape.moves import reshape
from hulk.search.shape.slots import fold_twins, unfold_twins
from hulk.search.tables import SearchTables
from hulk.search.workspace import Workspace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# What happens to a job in a move, with how many ways to do it.
_RESHAPE, _LEAVE, _ENTER, _SWAP, _REORDER = range(5)
_WAYS = np.array([1, 3, INSERTIONS + 1, 1, 1])
# What a move is, and how likely one is drawn beside the others: where there are several jobs, and where there is one.
MOVES = {"reshape": (55, 75), "give": (30, 10), "swap": (15, 15)}
_CHANCES = np.cumsum(list(MOVES.values()), axis=0).T / 100
_TO_RESHAPE, _TO_GIVE, _ = range(len(MOVES))
_TWICE = 0.25  # of the changes come with a second one before judging: some shapes only pay with other options
_TOGETHER = 0.75  # of the changes to a pipeline that has twins are made to all of them


class Shapes(NamedTuple):
    """A deal with every job's pipelines written out. J jobs, N: GPUs of the cluster."""

    deal: Deal
    machine: Ints  # [J, N] of every slot
    ranks: Ints  # [J, N]
    starts: Ints  # [J, N + 2] first slot of each pipeline
    pipelines: Ints  # [J]; 0: the job waits


class Draft(NamedTuple):
    """What is being polished: as it is, the best so far, and room for what a move makes of it."""

    now: Shapes
    best: Shapes
    trial: Shapes


class Move(NamedTuple):
    """What a move does: to up to two jobs, with up to two machines; and room to work in."""

    jobs: Ints  # [2]
    what: Ints  # [2]
    old: Ints  # [2] the machine that leaves
    new: Ints  # [2] the machine that enters
    owner: Ints  # [M]
    recipe: Ints  # [COLUMNS]


def empty_shapes(packed: SearchTables) -> Shapes:
    """Nobody has anything."""
    jobs, slots = len(packed.need), int(packed.gpus.sum())
    deal = empty_deal(packed)
    deal.status[:] = LACKS
    return Shapes(
        deal,
        np.zeros((jobs, slots), np.int64),
        np.zeros((jobs, slots), np.int64),
        np.zeros((jobs, slots + 2), np.int64),
        np.zeros(jobs, np.int64),
    )


@maker
def _copy_job(source: Shapes, target: Shapes, job: int) -> None:
    """One job's pipelines, recipe and time; not who owns what."""
    pipelines = source.pipelines[job]
    target.pipelines[job] = pipelines
    target.starts[job, : pipelines + 1] = source.starts[job, : pipelines + 1]
    slots = source.starts[job, pipelines]
    target.machine[job, :slots] = source.machine[job, :slots]
    target.ranks[job, :slots] = source.ranks[job, :slots]
    target.deal.recipes[job] = source.deal.recipes[job]
    target.deal.status[job], target.deal.value[job] = source.deal.status[job], source.deal.value[job]


@kernel
def copy_all(source: Shapes, target: Shapes) -> None:
    """All of it."""
    for job in range(source.pipelines.shape[0]):
        _copy_job(source, target, job)
    target.deal.owner[:] = source.deal.owner


@maker
def _load(source: Shapes, work: Workspace, job: int) -> None:
    pipelines = source.pipelines[job]
    work.pipelines[0] = pipelines
    work.starts[: pipelines + 1] = source.starts[job, : pipelines + 1]
    slots = source.starts[job, pipelines]
    work.machine[:slots] = source.machine[job, :slots]
    work.ranks[:slots] = source.ranks[job, :slots]


@maker
def _store(work: Workspace, target: Shapes, job: int, recipe: Ints, seconds: float) -> None:
    """The pipelines at hand as a job's, which runs so."""
    pipelines = work.pipelines[0]
    target.pipelines[job] = pipelines
    target.starts[job, : pipelines + 1] = work.starts[: pipelines + 1]
    slots = work.starts[pipelines]
    target.machine[job, :slots] = work.machine[:slots]
    target.ranks[job, :slots] = work.ranks[:slots]
    target.deal.recipes[job] = recipe
    target.deal.status[job], target.deal.value[job] = RUNS, seconds


@inner
def _own(shapes: Shapes, job: int) -> None:
    """Let the owners follow from the job's pipelines."""
    owner = shapes.deal.owner
    for m in range(owner.shape[0]):
        if owner[m] == job:
            owner[m] = -1
    for i in range(shapes.starts[job, shapes.pipelines[job]]):
        owner[shapes.machine[job, i]] = job


@inner
def _draw_job(packed: SearchTables, shapes: Shapes) -> int:
    """A job whose shape to change: half of the time one where there is much to gain, half of the time one with many
    slots, of which there are many changes to try."""
    return draw_job(packed, shapes.deal) if np.random.random() < 0.5 else _draw_by_slots(shapes)


@inner
def _draw_by_slots(shapes: Shapes) -> int:
    """A job, the more slots it has the likelier."""
    jobs, slots = shapes.pipelines.shape[0], 0
    for j in range(jobs):
        slots += shapes.starts[j, shapes.pipelines[j]]
    left = np.random.randint(0, slots + 1)
    for j in range(jobs):
        left -= shapes.starts[j, shapes.pipelines[j]]
        if left < 0:
            return j
    return np.random.randint(0, jobs)


@inner
def _draw_move(packed: SearchTables, learned: Learned, shapes: Shapes, move: Move) -> int:
    """What to do next. Returns how many jobs it touches."""
    jobs, machines = packed.allowed.shape
    owner = shapes.deal.owner
    kind = np.searchsorted(_CHANCES[1 if jobs == 1 else 0], np.random.random(), side="right")
    if kind == _TO_RESHAPE:
        move.jobs[0], move.what[0] = _draw_job(packed, shapes), _RESHAPE
        return 1 if shapes.pipelines[move.jobs[0]] > 0 else 0
    count = 0
    one = np.random.randint(0, machines)
    giver = owner[one]
    if kind == _TO_GIVE:
        taker = taker_of(packed, learned, one, giver, owner)
        if taker == giver or (taker >= 0 and not packed.allowed[taker, one]):
            return 0
        count = _note(move, count, giver, _LEAVE, one, one)
        return _note(move, count, taker, _ENTER, one, one)
    two = np.random.randint(0, machines)
    other = owner[two]
    if giver == other:
        return 0
    if (giver >= 0 and not packed.allowed[giver, two]) or (other >= 0 and not packed.allowed[other, one]):
        return 0
    count = _note(move, count, giver, _SWAP, one, two)
    return _note(move, count, other, _SWAP, two, one)


@inner
def _draw_reorder(shapes: Shapes, move: Move) -> int:
    """A job whose slots change their order, machines staying with their jobs. Returns how many jobs that touches."""
    move.jobs[0], move.what[0] = _draw_by_slots(shapes), _REORDER
    return 1 if shapes.pipelines[move.jobs[0]] > 0 else 0


@inner
def _note(move: Move, count: int, job: int, what: int, old: int, new: int) -> int:
    """One more job that a move touches, if it is one."""
    if job < 0:
        return count
    move.jobs[count], move.what[count], move.old[count], move.new[count] = job, what, old, new
    return count + 1


@maker
def _from_recipe(packed: SearchTables, work: Workspace, job: int, owner: Ints, learned: Learned, recipe: Ints) -> bool:
    """The group's pipelines made anew: by what served on such a size, by that a little different, or by any recipe."""
    gpus, replicas = size_of(packed, job, owner)
    if gpus == 0:
        return False
    known = learned.served[job, bucket_of(gpus)]
    if known[DEGREE] == 0 or np.random.random() < 0.3:
        draw_recipe(packed, job, gpus, replicas, recipe)
    else:
        recipe[:] = known
        if np.random.random() < 0.5:
            change_recipe(packed, job, gpus, replicas, recipe)
    return shape(packed, work, job, owner, recipe[:LAYOUT])


@maker
def _make(
    packed: SearchTables, work: Workspace, shapes: Shapes, learned: Learned, move: Move, which: int, way: int
) -> bool:
    """Take to hand what a move makes of a job, one way of several; false where that way does not apply."""
    job, what, owner, recipe = move.jobs[which], move.what[which], move.owner, move.recipe
    recipe[:] = shapes.deal.recipes[job]
    _load(shapes, work, job)
    in_order = what == _REORDER
    if what == _RESHAPE or in_order:
        if in_order:
            fold_twins(work, np.random.randint(0, work.pipelines[0]))
        else:
            _fold_sometimes(work)
        is_changed = reshape(packed, work, job, recipe, in_order)
        if is_changed and not in_order and np.random.random() < _TWICE:
            is_changed = reshape(packed, work, job, recipe, in_order)
        unfold_twins(work)
        return is_changed
    if what == _SWAP:
        return substitute(packed, work, job, move.old[which], move.new[which])
    waits = shapes.pipelines[job] == 0
    if (what == _LEAVE and way == 2) or (what == _ENTER and way == 5):
        if not waits and np.random.random() < 0.5:
            return False
        owner[:] = shapes.deal.owner
        owner[move.old[which]] = job if what == _ENTER else -1
        keep_pins(packed, owner)
        return _from_recipe(packed, work, job, owner, learned, recipe)
    if what == _LEAVE:
        return without(work, move.old[which], way == 1)
    if waits:
        return False
    _fold_sometimes(work)
    is_changed = insert(packed, work, job, move.new[which], way)
    unfold_twins(work)
    return is_changed


@inner
def _fold_sometimes(work: Workspace) -> None:
    """Pipelines that are alike mostly stay so: one that is cut otherwise than its twins shares no state with them."""
    if np.random.random() < _TOGETHER:
        fold_twins(work, np.random.randint(0, work.pipelines[0]))


@inner
def _has_pinned(packed: SearchTables, work: Workspace, job: int) -> bool:
    """Whether the pipelines on the work use every machine that the job must use."""
    for k in range(packed.pins.shape[0]):
        if packed.pins[k, 1] != job:
            continue
        found = False
        for i in range(work.starts[work.pipelines[0]]):
            found = found or work.machine[i] == packed.pins[k, 0]
        if not found:
            return False
    return True


@inner
def _costs(packed: SearchTables, deal: Deal, jobs: Ints) -> float:
    """What some jobs add to the objective."""
    cost = 0.0
    for job in jobs:
        cost += cost_of(packed, job, deal.status[job], deal.value[job])
    return cost


# Inlined for the same reason as the price.
@inlined
def _propose(
    packed: SearchTables,
    work: Workspace,
    shapes: Shapes,
    trial: Shapes,
    learned: Learned,
    move: Move,
    count: int,
    loss: float,
) -> int:
    """Write what a move makes of each of the `count` jobs it touches to `trial`, the quickest way that fits. Returns
    how many jobs that is; 0 where nothing came of it that loses less than `loss`, relative to the objective."""
    jobs = move.jobs[:count]
    most = np.inf
    if loss < np.inf and count > 0:
        before = _costs(packed, shapes.deal, jobs)
        most = before + loss * (before if count == 1 else running_cost(packed, shapes.deal))
    for which in range(count):
        job, is_made = jobs[which], False
        # A price may stop where it is known to be too much.
        quickest = (most - _costs(packed, trial.deal, jobs[:which])) / max(packed.weight[job], 1e-300)
        for way in range(_WAYS[move.what[which]]):
            if not _make(packed, work, shapes, learned, move, which, way):
                continue
            if packed.held_at[job + 1] > packed.held_at[job]:
                mend_ends(packed, work, job)
            if not _has_pinned(packed, work, job):
                continue
            status, seconds = priced(packed, work, job, move.recipe, quickest)
            if status == RUNS and seconds < quickest:
                quickest, is_made = seconds, True
                _store(work, trial, job, move.recipe, seconds)
        if not is_made:
            return 0
    return count if _costs(packed, trial.deal, jobs) <= most else 0


@maker
def _empty_move(packed: SearchTables) -> Move:
    jobs, what, old, new = np.zeros((4, 2), np.int64)
    return Move(jobs, what, old, new, np.zeros(packed.place.shape[0], np.int64), np.zeros(COLUMNS, np.int64))


@kernel
def propose(packed: SearchTables, work: Workspace, shapes: Shapes, trial: Shapes, learned: Learned, seed: int) -> Ints:
    """One move: the jobs it touches, their pipelines written to `trial`."""
    np.random.seed(seed)
    move = _empty_move(packed)
    count = _draw_move(packed, learned, shapes, move)
    count = _propose(packed, work, shapes, trial, learned, move, count, np.inf)
    return move.jobs[:count]


@kernel
def accept(shapes: Shapes, trial: Shapes, jobs: Ints) -> None:
    """Take over what a move made of these jobs."""
    for job in jobs:
        _copy_job(trial, shapes, job)
    for job in jobs:
        _own(shapes, job)


@kernel
def polish(
    packed: SearchTables,
    work: Workspace,
    draft: Draft,
    learned: Learned,
    moves: int,
    heat: Heat,
    seed: int,
    in_order: bool,
) -> None:
    """Anneal for so many moves; the best seen goes to `draft.best`, which comes with the best so far. `in_order`: only
    the order of every job's slots changes."""
    np.random.seed(seed)
    move, now, trial = _empty_move(packed), draft.now, draft.trial
    least = total_cost(packed, draft.best.deal)
    for turn in range(moves):
        warmth = heat.hot * (heat.cold / heat.hot) ** (turn / moves)
        loss = -warmth * np.log(1.0 - np.random.random())  # drawn first, so that hopeless moves end early
        count = _draw_reorder(now, move) if in_order else _draw_move(packed, learned, now, move)
        count = _propose(packed, work, now, trial, learned, move, count, loss)
        if count == 0:
            continue
        accept(now, trial, move.jobs[:count])
        if in_order:  # jobs keep to themselves, so the best of each is best together
            job = move.jobs[0]
            if now.deal.value[job] < draft.best.deal.value[job]:
                _copy_job(now, draft.best, job)
                _own(draft.best, job)
            continue
        cost = total_cost(packed, now.deal)
        if cost < least:
            least = cost
            copy_all(now, draft.best)
