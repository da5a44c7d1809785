"""Skeletons are written into arrays and read back as they were, and compiled changes do to them what they say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import small
from hulk.domain.options import Options, Schedule
from hulk.replan.changes import Changes, changes_of
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.spaces import spaces_of
from hulk.search.tables import pack
from hulk.search.workspace import make_workspace
from hulk.search.written import arrays_of, read, write

UNTRIED = Options(3, schedule=Schedule.ahead(7))  # no search would try these
TWO = Skeleton(((Slot(0, 1), Slot(1, 1), Slot(0, 1)), (Slot(3, 2),)), UNTRIED)


@pytest.fixture(scope="module")
def bert() -> Changes:
    return changes_of(spaces_of(small.cluster(), small.jobs(), small.compute()))[0]


def drawn(rng: np.random.Generator, most: int) -> Skeleton:
    """Up to so many slots of any machines in any pipelines."""
    slots = [Slot(int(rng.integers(6)), int(rng.integers(1, 5))) for _ in range(int(rng.integers(1, most + 1)))]
    cuts = sorted({0, len(slots), *rng.integers(1, len(slots) + 1, size=int(rng.integers(4))).tolist()})
    return Skeleton(tuple(tuple(slots[a:b]) for a, b in pairwise(cuts)), UNTRIED)


def test_what_was_written_is_read_back():
    work = make_workspace(pack(spaces_of(small.cluster(), small.jobs(), small.compute())))
    rng = np.random.default_rng(3)
    for _ in range(200):  # one after the other into the same room: what stood there before does not count
        chains = drawn(rng, len(work.machine)).chains
        pipelines = write(chains, work.machine, work.ranks, work.starts)
        assert read(work.machine, work.ranks, work.starts, pipelines) == chains
        machine, ranks, starts = arrays_of(chains)
        assert read(machine, ranks, starts, len(chains)) == chains
        assert starts[-1] == len(machine) == len(ranks) == sum(map(len, chains))


def test_a_machine_leaves_with_its_slots_or_with_its_pipelines(bert):
    assert bert.without(TWO, 0) == replace(TWO, chains=((Slot(1, 1),), (Slot(3, 2),)))
    assert bert.without(TWO, 3) == replace(TWO, chains=TWO.chains[:1])
    assert bert.without(TWO, 0, whole=True) == replace(TWO, chains=TWO.chains[1:])
    assert bert.without(TWO, 4) is None
    alone = replace(TWO, chains=TWO.chains[1:])
    assert bert.without(alone, 3) is bert.without(alone, 3, whole=True) is None


def test_leaving_is_what_leaving_out_makes(bert):
    rng = np.random.default_rng(4)
    for _ in range(200):
        skeleton = drawn(rng, len(bert.work.machine))
        gone = int(rng.choice(sorted(skeleton.machines)))
        slots = tuple(kept for c in skeleton.chains if (kept := tuple(slot for slot in c if slot.machine != gone)))
        whole = tuple(chain for chain in skeleton.chains if all(slot.machine != gone for slot in chain))
        assert bert.without(skeleton, gone) == (replace(skeleton, chains=slots) if slots else None)
        assert bert.without(skeleton, gone, whole=True) == (replace(skeleton, chains=whole) if whole else None)


def test_a_machine_takes_anothers_place_as_far_as_its_gpus_go(bert):
    gpus = [machine.gpus for machine in bert.space.cluster.machines]
    for old in (0, 1, 3):
        for new in {*range(len(gpus))} - TWO.machines:
            made = bert.substitute(TWO, old, new)
            assert made.options == TWO.options
            assert old not in made.machines
            assert new in made.machines
            slots = [slot for chain in made.chains for slot in chain]
            assert sum(slot.ranks for slot in slots if slot.machine == new) <= gpus[new]
            others = [slot for chain in TWO.chains for slot in chain if slot.machine != old]
            assert [slot for slot in slots if slot.machine != new] == others
            if gpus[new] >= sum(slot.ranks for chain in TWO.chains for slot in chain if slot.machine == old):
                assert made.chains == tuple(
                    tuple(slot._replace(machine=new) if slot.machine == old else slot for slot in chain)
                    for chain in TWO.chains
                )


def test_a_machine_comes_in_beside_what_is_there(bert):
    gpus = [machine.gpus for machine in bert.space.cluster.machines]
    rng = np.random.default_rng(6)
    shapes = set()
    for _ in range(30):
        for new in {*range(len(gpus))} - TWO.machines:
            for made in bert.insertions(TWO, new, rng):
                slots = [slot for chain in made.chains for slot in chain]
                assert made.options == TWO.options
                assert 0 < Counter(slot.machine for slot in slots)[new] <= gpus[new]
                assert {slot.ranks for slot in slots if slot.machine == new} <= set(bert.space.degrees)
                assert bert.without(made, new) == TWO
                shapes.add(len(made.chains))
    assert len(shapes) > 1


def test_the_same_draws_make_the_same_insertions(bert):
    first, again, other = (
        [bert.insertions(TWO, 2, rng) for _ in range(20)] for rng in map(np.random.default_rng, (7, 7, 8))
    )
    assert first == again
    assert first != other
