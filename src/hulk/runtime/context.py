"""What one rank knows about its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist

from hulk.domain.cluster import Cluster
from hulk.domain.gpu import Precision
from hulk.domain.job import Job
from hulk.domain.options import Within
from hulk.domain.plan import JobPlan, Stage
from hulk.runtime.buckets import Bucket, bucket_groups, plan_buckets
from hulk.runtime.entries import ALL, PARTS, PIPELINE, SHARDS, SLICES, Entry, Key, Place
from hulk.runtime.groups import make_groups
from hulk.runtime.seats import Seat, Seating
from hulk.runtime.settings import Settings
from hulk.runtime.shards import Shards

FORMATS = {
    Precision.FP32: torch.float32,
    Precision.TF32: torch.float32,
    Precision.FP16: torch.float16,
    Precision.BF16: torch.bfloat16,
}


@dataclass(frozen=True)
class Context:
    """One rank of a job."""

    job: Job
    cluster: Cluster
    seating: Seating
    seat: Seat
    settings: Settings
    device: torch.device

    @property
    def plan(self) -> JobPlan:
        """The job's plan."""
        return self.seating.plan

    @property
    def device_name(self) -> str:
        """What this rank computes on: "cpu", or the GPU's own name."""
        return "cpu" if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)

    @cached_property
    def parts(self) -> tuple[tuple[int, Stage], ...]:
        """The stages that this rank holds, with their numbers in the pipeline: one, or one of each round."""
        return self.seating.parts(self.seat.pipeline, self.seat.stage)

    @property
    def layers(self) -> list[int]:
        """The layers that this rank holds."""
        return [layer for _, part in self.parts for layer in part.layers]

    @property
    def place(self) -> Place:
        """Pipeline and number of this rank's first stage."""
        return self.seat.pipeline, self.seat.stage

    @property
    def stages(self) -> int:
        """How many stages this rank's pipeline has, those on the same GPUs counted once."""
        return self.seating.slots(self.seat.pipeline)

    @property
    def microbatches(self) -> int:
        """How many microbatches this rank's pipeline takes of a step."""
        return self.plan.pipelines[self.seat.pipeline].microbatches

    @property
    def first_sample(self) -> int:
        """Where this pipeline's share of a global batch begins."""
        earlier = self.plan.pipelines[: self.seat.pipeline]
        return sum(pipeline.microbatches for pipeline in earlier) * self.plan.options.microbatch_size

    @property
    def wire(self) -> torch.dtype:
        """The number format of what crosses between stages."""
        chosen = self.settings.precision
        return FORMATS[Precision(chosen) if chosen else self.job.precision]

    @cached_property
    def slices(self) -> tuple[int, ...]:
        """The ranks of this stage that have the same part of a sequence."""
        return self.seating.ranks(*self.place, self.seat.part)

    @cached_property
    def everyone(self) -> tuple[int, ...]:
        """The ranks of this stage."""
        return self.seating.everyone(*self.place)

    @cached_property
    def sharers(self) -> tuple[int, ...]:
        """The ranks of this stage that share sequences and have the same slice."""
        return self.seating.sharers(*self.place, self.seat.slot)

    @cached_property
    def leads(self) -> tuple[int, ...]:
        """The leads of this pipeline's stages."""
        return tuple(self.seating.ranks(self.seat.pipeline, s)[0] for s in range(self.stages))

    @cached_property
    def regions(self) -> dict[int, str]:
        """The region of every rank."""
        return {seat.rank: self.cluster.machine(seat.machine).region for seat in self.seating.seats}

    @cached_property
    def shards(self) -> Shards:
        """Who splits with whom what is sharded."""
        machines = {place: self.seating.stage(*place).machine for place in self.seating.places}
        match self.plan.options.shard_within:
            case Within.EVERYWHERE:
                labels = dict.fromkeys(machines, "")
            case Within.REGION:
                labels = {place: self.cluster.machine(name).region for place, name in machines.items()}
            case Within.MACHINE:
                labels = machines
        return Shards(self.seating, labels)


@dataclass(frozen=True)
class Wiring:
    """The groups of a run that this rank is in, and all buckets."""

    groups: dict[Key, dist.ProcessGroup]
    buckets: list[Bucket]


def wire_up(context: Context, entries: Sequence[Entry]) -> Wiring:
    """Make all groups of a run."""
    seating, shards = context.seating, context.shards
    buckets = plan_buckets(entries, seating, shards)
    keys = bucket_groups(buckets, context.plan.options.sync, context.regions, shards)
    keys.add((ALL, tuple(range(seating.size))))
    for p in range(len(context.plan.pipelines)):
        keys.add((PIPELINE, tuple(seating.ranks(p, s)[0] for s in range(seating.slots(p)))))
        for s in range(seating.slots(p)):
            keys |= {(SLICES, seating.everyone(p, s))}
            keys |= {(SLICES, seating.ranks(p, s, part)) for part in range(context.plan.options.context)}
            keys |= {(PARTS, seating.sharers(p, s, slot)) for slot in range(len(seating.ranks(p, s)))}
    if shards.splits:
        keys |= {(SHARDS, shards.members((one.pipeline, one.stage), one.slot)) for one in seating.seats}
    return Wiring(make_groups(keys, patience=context.settings.patience), buckets)
