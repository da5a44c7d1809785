"""What the network may know: numbers of jobs and of classes of alike machines, without names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compiled import plain
from hulk.domain.options import COLUMN, SPACE
from hulk.search.tables import SearchTables, tables_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Facts:
    """P places (classes of alike machines), J jobs. SI units: seconds, bytes, bytes/s, FLOP/s.

    members    [P] machines of the class
    gpus       [P] GPUs of one of its machines
    room       [P] bytes of all GPUs of one machine
    local      [P] bytes/s between the GPUs of one machine
    card       [P] bytes/s of a machine's network card
    region     [P] a number for the region: only equality means something
    rate       [J, P] FLOP/s of one machine
    usable     [J, P] share of the class that the job may use
    need       [J] bytes of one replica's weights, gradients and optimizer state
    flops      [J] FLOPs of a step
    weight     [J] objective a second of a step
    cut        [J] bytes that one sample sends where the model is cut, median over its layers
    layers     [J]
    batch      [J] samples of a step
    latency    [P, P] seconds one way, infinite where blocked; on the diagonal between two machines of the class
    bandwidth  [P, P] bytes/s of one flow, the cards' limit included
    measured   [P, P] 1.0 where the latency was measured, 0.0 where it is estimated
    """

    members: Ints
    gpus: Ints
    room: Floats
    local: Floats
    card: Floats
    region: Ints
    rate: Floats
    usable: Floats
    need: Floats
    flops: Floats
    weight: Floats
    cut: Floats
    layers: Ints
    batch: Ints
    latency: Floats
    bandwidth: Floats
    measured: Floats

    @classmethod
    def of(cls, packed: SearchTables) -> Facts:
        """The facts of jobs and machines as the search has them."""
        first = packed.members[packed.first_member[:-1]]
        members = np.diff(packed.first_member)
        usable = np.add.reduceat(packed.allowed[:, packed.members].astype(float), packed.first_member[:-1], axis=1)
        jobs = range(len(packed.need))
        first_values = np.zeros(len(SPACE), np.int64)
        cuts = [plain(tables_of)(packed, j, first_values).cut for j in jobs]
        samples = packed.codes[:, COLUMN["microbatch_size"], 0]
        return cls(
            members=members,
            gpus=packed.gpus[first],
            room=packed.room[first],
            local=packed.local,
            card=packed.ceiling.max(axis=1),
            region=packed.region,
            rate=packed.rate[:, first],
            usable=usable / members,
            need=packed.need.astype(float),
            flops=packed.work / packed.weight,
            weight=packed.weight.astype(float),
            cut=np.array([float(np.median(cut)) for cut in cuts]) / samples,
            layers=packed.layers,
            batch=packed.batch,
            latency=packed.latency,
            bandwidth=np.minimum(packed.bandwidth, packed.ceiling),
            measured=packed.measured.astype(float),
        )

    @property
    def places(self) -> int:
        """How many classes of machines there are."""
        return len(self.members)

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return len(self.need)

    @property
    def power(self) -> Floats:
        """[J, P] FLOP/s that a class could give to a job."""
        power: Floats = self.rate * self.usable * self.members
        return power

    @property
    def fair(self) -> Floats:
        """[J] the share of the power that would be best if a job's time were work / power: as the root of its work."""
        root = np.sqrt(self.weight * self.flops)
        fair: Floats = root / root.sum()
        return fair
