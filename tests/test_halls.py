"""Plans for one hall of equal machines, held against every regular plan there is."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from halls import COMPUTE, hall
from hulk.cost.engine import HEADROOM, MEGATRON
from hulk.cost.price import step_of
from hulk.domain.job import Job
from hulk.domain.options import Options, Recompute, Sharding
from hulk.io.models import build_named_model
from hulk.search.job_space import JobSpace
from hulk.search.regular import best_regular
from hulk.search.request import Request
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.uniform import best_uniform, uniform_plans, uniform_skeletons, written_alike

ENGINE = replace(MEGATRON, headroom=HEADROOM)


def space_of(model: str, batch: int, machines: int, sequence: int = 8192) -> JobSpace:
    job = Job("j", build_named_model(model, sequence=sequence), global_batch=batch)
    (space,) = Request(hall(machines), (job,), COMPUTE, ENGINE).spaces()
    return space


@pytest.mark.parametrize(
    ("model", "batch", "machines"), [("llama-3-70b", 32, 8), ("llama-3-8b", 64, 2), ("mixtral-8x7b", 32, 4)]
)
def test_good_regular_plans_are_as_good_as_all(model: str, batch: int, machines: int) -> None:
    space, everything = space_of(model, batch, machines), range(machines)
    best_uniform(space, everything, in_turn=True)
    (first, *_), grid = best_regular(space, everything), min(one.seconds for one in uniform_plans(space, everything))
    seconds = step_of(space.job, first, space.cluster, compute=COMPUTE, engine=ENGINE)
    assert seconds is not None
    assert seconds <= grid * 1.005  # closed forms find one, playing the other: they differ by less


def test_who_has_little_time_has_seen_something_of_every_shape() -> None:
    space, looks = space_of("llama-3-70b", 32, 8), count()
    best_uniform(space, range(8), in_turn=True)
    known, again = space.regular, space_of("llama-3-70b", 32, 8)
    best_uniform(again, range(8), in_turn=True, is_over=lambda: next(looks) > 12)
    assert next(looks) < 20  # it was over
    assert {len(one.chains[0]) for one in again.regular[:6]} & {len(one.chains[0]) for one in known[:3]}
    assert {one.chains[0][0].ranks for one in again.regular[:6]} & {one.chains[0][0].ranks for one in known[:3]}


def test_regular_pipelines_that_no_free_cut_fits_are_left_as_they_are() -> None:
    """An even cut may fit where the search for a free one finds none."""
    space = space_of("llama-3-70b", 128, 16)
    chains = tuple(tuple(Slot(machine, 2) for _ in range(4)) for machine in range(16))
    options = Options(4, recompute=Recompute.FULL, sharding=Sharding.OPTIMIZER, sequence_parallel=True)
    space.regular = [Skeleton(chains, options)]
    assert not space.result(space.regular[0]).runs
    assert best_regular(space, range(16))


def test_pipelines_written_down_one_after_the_other_keep_apart() -> None:
    """Arrays of places are shared by plans of the same pipelines, and by no others."""
    space = space_of("llama-3-8b", 8, 2)
    skeletons = list(uniform_skeletons(space, range(2), in_turn=True))[::97]
    layers = len(space.job.model.layers)
    written = [
        written_alike(space, one, np.array([layers - len(one.chains[0]) + 1, *[1] * (len(one.chains[0]) - 1)]), 1)
        for one in [*skeletons, *reversed(skeletons)]
    ]
    for one, its in zip([*skeletons, *reversed(skeletons)], written, strict=True):
        assert its.machine.tolist() == [slot.machine for chain in one.chains for slot in chain]
        assert its.ranks.tolist() == [slot.ranks for chain in one.chains for slot in chain]
        assert its.last[len(one.chains[0]) - 1] == layers - 1
