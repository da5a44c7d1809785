"""What the compiled parts of the exact solver are given: a job at fixed options on a set of machines, and room to work
in. Always made here, so that all have the same types and nothing is compiled twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Durations, Encoded, Floats, Ints, Tables, empty_durations
from hulk.domain.options import Options, codes_of
from hulk.search.job_space import JobSpace
from hulk.search.skeleton import Skeleton, Slot


class Offer(NamedTuple):
    """What a set of n machines offers: Q different slots."""

    machine: Ints  # [Q] number in the cluster
    local: Ints  # [Q] number in the set
    place: Ints  # [Q] row in the tables
    kind: Ints  # [Q]
    ranks: Ints  # [Q]
    gpus: Ints  # [n]
    radix: Ints  # [n] usage of GPUs as one number: the sum of GPUs × radix
    twin: Ints  # [n] an earlier machine of the set in the same place, or −1


class Bounds(NamedTuple):
    """What every plan needs at least, at one microbatch size."""

    work: Floats  # [L + 1] layers l.. at the fastest kind of each, seconds
    share: Floats  # [L + 1] the part of a microbatch's work in layers l.., by some weights that add up to 1
    rate: Floats  # [n] such parts that one GPU of a machine does in a second, at most
    sync: Floats  # [2, 3, n] seconds to add up the first layer's gradients, at least, after the last backward pass and
    # in all: with any other replica, where some replica starts on another machine, where some starts in another region


class Case(NamedTuple):
    """A job at fixed options on a set of machines."""

    tables: Tables
    offer: Offer
    bounds: Bounds
    total: int  # microbatches of a step


class Room(NamedTuple):
    """Room for one plan of up to N stages and what it takes."""

    plan: Encoded
    out: Durations
    scratch: Floats  # [2, N]


def offer_of(space: JobSpace, machines: Sequence[int]) -> Offer:
    """The different slots of a set of machines for a job."""
    hosts = space.cluster.machines
    slots = [Slot(m, t) for m in machines for t in space.degrees if t <= hosts[m].gpus]
    encoded = space.encode(Skeleton((tuple(slots),), space.plainest))
    gpus = np.array([hosts[m].gpus for m in machines])
    rows = [space.places.of_machine[m] for m in machines]
    twins = [max((j for j in range(i) if rows[j] == row), default=-1) for i, row in enumerate(rows)]
    return Offer(
        machine=encoded.machine,
        local=np.array([machines.index(slot.machine) for slot in slots]),
        place=encoded.place,
        kind=encoded.kind,
        ranks=encoded.ranks,
        gpus=gpus,
        radix=np.concatenate([[1], np.cumprod(gpus[:-1] + 1)]),
        twin=np.array(twins),
    )


def room_for(options: Options, replicas: int, stages: int) -> Room:
    """Room for plans of exactly so many replicas and up to so many stages in all."""
    plan = Encoded(
        starts=np.zeros(replicas + 1, np.int64),
        machine=np.zeros(stages, np.int64),
        place=np.zeros(stages, np.int64),
        kind=np.zeros(stages, np.int64),
        ranks=np.ones(stages, np.int64),
        first=np.zeros(stages, np.int64),
        last=np.zeros(stages, np.int64),
        microbatches=np.ones(replicas, np.int64),
        warmup=np.ones(stages, np.int64),
        options=np.array(codes_of(options)),
        kept=np.zeros(stages, np.int64),
    )
    return Room(plan, empty_durations(stages), np.zeros((2, stages)))
