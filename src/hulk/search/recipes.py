"""A group priced by a recipe, compiled: a layout, which makes pipelines of any group, and a value for every option.

A recipe that served a job on one group is tried on the next; where none is known, some are drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.cost.arrays import Encoded
from hulk.cost.compiled import inlined, inner, lean
from hulk.domain.options import COLUMN, Needs
from hulk.search.deals import COLUMNS, Deal
from hulk.search.fit import fit
from hulk.search.layouts import DEGREE, LAYOUT, LENGTH, change_layout, draw_layout, shape, twin_layout
from hulk.search.learned import bucket_of
from hulk.search.price_cache import key_of, note, recall
from hulk.search.results import LACKS, NO_MACHINES, NO_PIPELINES, OPEN, RUNS, TOO_MANY_PIPELINES
from hulk.search.tables import OPTIONS, SETTLED, SearchTables, tables_of
from hulk.search.workspace import Workspace

Ints = NDArray[np.int64]

MICROBATCH = LAYOUT + COLUMN["microbatch_size"]
SAMPLES, FEW_SAMPLES = 24, 6
_MOST_TWINS = 8
_TIGHT = 6.0  # replicas of its state that a group's memory would hold: with fewer, a first look tries twins
# Of the draws that save memory: this share over the replicas that memory would hold, and at most.
_SHORT_OF, _MOSTLY = 1.6, 0.8
_OPTIONS_CHANGE = 0.43  # of the changes to a recipe; the others are to its layout
_USUAL, _SHORT = 0, 1
_REPLICAS, _STAGES, _RANKS, _CONTEXT = map(int, (Needs.REPLICAS, Needs.STAGES, Needs.RANKS, Needs.CONTEXT))
_SHARES = COLUMN["context"]


# Inlined, so that the price is compiled once and not again for every function on the way to it.
@inlined
def price(
    packed: SearchTables, work: Workspace, job: int, owner: Ints, recipe: Ints, limit: float
) -> tuple[int, float]:
    """Status and value of a job by a recipe, OVER where a step is known to take `limit` seconds or more."""
    status, value, asked = LACKS, NO_PIPELINES, packed.pipelines[job]
    if shape(packed, work, job, owner, recipe[:LAYOUT]) and (asked == 0 or asked == work.pipelines[0]):
        status, value = priced(packed, work, job, recipe, limit)
    return status, value


@inlined
def priced(packed: SearchTables, work: Workspace, job: int, recipe: Ints, limit: float) -> tuple[int, float]:
    """Status and value of the pipelines at hand with a recipe's options, OVER where a step is known to take `limit`
    seconds or more."""
    pipelines = work.pipelines[0]
    stages = work.starts[pipelines]
    total = packed.batch[job] // packed.codes[job, MICROBATCH - LAYOUT, recipe[MICROBATCH]]
    if total < pipelines:
        return LACKS, TOO_MANY_PIPELINES + pipelines - total
    for n in range(stages):
        place = packed.place[work.machine[n]]
        work.place[n] = place
        work.kind[n] = packed.kind[job, place, work.ranks[n]]
    write_codes(packed, work, job, recipe)
    encoded = Encoded(
        work.starts[: pipelines + 1],
        work.machine[:stages],
        work.place[:stages],
        work.kind[:stages],
        work.ranks[:stages],
        work.first[:stages],
        work.last[:stages],
        work.microbatches[:pipelines],
        work.warmup[:stages],
        work.options,
        work.kept[:stages],
    )
    key = key_of(work.memo, encoded, job)
    status, value = recall(work.memo, key, limit)
    if status != OPEN:
        return status, value
    scratch = work.scratch[: 2 * stages].reshape((2, stages))
    status, value = fit(tables_of(packed, job, work.places), encoded, work.out, scratch, total, limit)
    note(work.memo, key, status, value, limit)
    return status, value


@lean
def write_codes(packed: SearchTables, work: Workspace, job: int, recipe: Ints) -> None:
    """The options of a recipe, as codes and as places, the normal ones where they have no effect on the pipelines at
    hand."""
    pipelines = work.pipelines[0]
    stages, widest = work.starts[pipelines], 1
    for n in range(stages):
        widest = max(widest, work.ranks[n])
    for column in range(OPTIONS):
        needs = packed.needs[column]
        is_met = needs == 0 or (needs & _REPLICAS != 0 and pipelines > 1)
        is_met = is_met or (needs & _STAGES != 0 and stages > pipelines) or (needs & _RANKS != 0 and widest > 1)
        is_met = is_met or (needs & _CONTEXT != 0 and widest > 1 and recipe[LAYOUT + _SHARES] > 0)
        work.places[column] = recipe[LAYOUT + column] if is_met else 0
        work.options[column] = packed.codes[job, column, work.places[column]]


@lean
def size_of(packed: SearchTables, job: int, owner: Ints) -> tuple[int, float]:
    """A job's GPUs, and how many replicas of its state their memory would hold."""
    gpus, room = 0, 0.0
    for m in range(owner.shape[0]):
        if owner[m] == job:
            gpus += packed.gpus[m]
            room += packed.room[m]
    return gpus, room / packed.need[job]


@inner
def _draw_options(packed: SearchTables, job: int, memory: int, recipe: Ints) -> None:
    """Any value for every option, by the chances it usually has or those where memory is short."""
    for column in range(OPTIONS):
        if SETTLED[column]:
            recipe[LAYOUT + column] = 0
            continue
        sums = packed.chances[job, memory, column]
        draw = np.random.random() * sums[packed.values[job, column] - 1]
        recipe[LAYOUT + column] = np.searchsorted(sums[: packed.values[job, column] - 1], draw, side="right")


@lean
def change_options(packed: SearchTables, job: int, recipe: Ints) -> bool:
    """One option to another value, in place; false where it has none."""
    column = np.searchsorted(packed.changes, np.random.random() * packed.changes[-1], side="right")
    values, step, at = packed.values[job, column], packed.steps[column], LAYOUT + column
    if values < 2:
        return False
    if step == 0:
        recipe[at] = (recipe[at] + np.random.randint(1, values)) % values
        return True
    other = recipe[at] + np.random.randint(1, step + 1) * (1 if np.random.random() < 0.5 else -1)
    if not 0 <= other < values:
        return False
    recipe[at] = other
    return True


@lean
def draw_recipe(packed: SearchTables, job: int, gpus: int, replicas: float, recipe: Ints) -> None:
    """Any recipe, its microbatch such that each pipeline has enough to do, half of the time. Where memory holds few
    replicas, mostly one that takes little of it."""
    is_tight = np.random.random() < min(_MOSTLY, _SHORT_OF / replicas)
    if is_tight and np.random.random() < 0.5:
        frugal_recipe(packed, job, gpus, 1 + np.random.randint(0, _MOST_TWINS), recipe)
        return
    draw_layout(packed, job, gpus, replicas, recipe[:LAYOUT])
    _draw_options(packed, job, _SHORT if is_tight else _USUAL, recipe)
    if not is_tight and np.random.random() < 0.5:
        slots = max(1, gpus // recipe[DEGREE])
        wanted = slots if recipe[LENGTH] == 1 else 4 * slots
        sizes, size = packed.codes[job, MICROBATCH - LAYOUT], 0
        while size + 1 < packed.values[job, MICROBATCH - LAYOUT] and packed.batch[job] // sizes[size + 1] >= wanted:
            size += 1
        recipe[MICROBATCH] = size


@lean
def frugal_recipe(packed: SearchTables, job: int, gpus: int, pipelines: int, recipe: Ints) -> None:
    """A recipe for a job that needs much of what there is: so many pipelines that go the same way, with as little
    memory as there are ways to save it."""
    twin_layout(packed, job, gpus, pipelines, recipe[:LAYOUT])
    _draw_options(packed, job, _SHORT, recipe)


@lean
def change_recipe(packed: SearchTables, job: int, gpus: int, replicas: float, recipe: Ints) -> None:
    """A recipe a little different, in place."""
    if np.random.random() < _OPTIONS_CHANGE:
        change_options(packed, job, recipe)
    else:
        change_layout(packed, job, gpus, replicas, recipe[:LAYOUT])


@inlined
def look(
    packed: SearchTables, work: Workspace, job: int, deal: Deal, served: Ints, samples: int, limit: float
) -> tuple[int, float]:
    """The job on the machines a deal gives it: by its recipe, by one that served on such a size, by one a little
    different, and by `samples` drawn ones; by many drawn ones where there is none. The best becomes its recipe, and its
    status and value are returned; OVER where what runs takes `limit` seconds or more."""
    owner, chosen = deal.owner, deal.recipes[job]
    gpus, replicas = size_of(packed, job, owner)
    best, least = LACKS, NO_MACHINES
    if gpus == 0:
        return best, least
    bucket = bucket_of(gpus)
    trial = np.empty(COLUMNS, np.int64)
    known = chosen[DEGREE] > 0 or served[job, bucket, DEGREE] > 0
    tries = 2 + max(samples, 0 if known else SAMPLES)
    for i in range(tries + 1):
        if i == 0:
            if chosen[DEGREE] == 0:
                continue
            trial[:] = chosen
        elif i == 1:
            trial[:] = served[job, bucket]
            if trial[DEGREE] == 0 or np.array_equal(trial, chosen):
                continue
        elif i < 2 + _MOST_TWINS and samples == SAMPLES and replicas < _TIGHT:
            frugal_recipe(packed, job, gpus, i - 1, trial)
        elif i < tries:
            draw_recipe(packed, job, gpus, replicas, trial)
        else:
            if chosen[DEGREE] == 0 or np.random.random() < 0.4:
                continue
            trial[:] = chosen
            change_recipe(packed, job, gpus, replicas, trial)
            while np.random.random() < 0.5:
                change_recipe(packed, job, gpus, replicas, trial)
        status, value = price(packed, work, job, owner, trial, min(least, limit) if best < LACKS else limit)
        if status < best or (status == best and value < least):
            best, least = status, value
            chosen[:] = trial
    if best == RUNS:
        served[job, bucket] = chosen
    return best, least
