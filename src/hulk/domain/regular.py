"""Regular plans: one set of degrees for all pipelines and an even cut, as most engines run them and people write them,
"tp8 pp4 dp4 mb1 sp fsdp"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.model import LayerKind
from hulk.domain.options import Options, Recompute, Schedule, Sharding, Sync, Within
from hulk.domain.plan import JobPlan, Pipeline, Stage, rounds_problem
from hulk.errors import InputError, PlanError, nearest

_DEGREES = ("tp", "pp", "dp", "cp", "ep", "mb", "vp")
_DEGREE = re.compile(rf"({'|'.join(_DEGREES)})=?([1-9][0-9]{{0,5}})")


class Order(StrEnum):
    """Which of the two varies faster over GPUs, after tensor parallelism: `pp-dp` keeps a pipeline's stages beside each
    other, `dp-pp` the replicas of a stage (Megatron-LM's default)."""

    STAGES_NEAR = "pp-dp"
    REPLICAS_NEAR = "dp-pp"


_WORDS: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        "sp": ("sequence_parallel", True),
        "zero1": ("sharding", Sharding.OPTIMIZER),
        "zero2": ("sharding", Sharding.GRADIENTS),
        "zero3": ("sharding", Sharding.PARAMETERS),
        "fsdp": ("sharding", Sharding.PARAMETERS),
        "hsdp": ("shard_within", Within.MACHINE),
        **{f"within-{value}": ("shard_within", value) for value in Within},
        "recompute": ("recompute", Recompute.FULL),
        **{f"recompute-{value}": ("recompute", value) for value in Recompute},
        **{str(value): ("sync", value) for value in Sync},
        **{str(value): ("order", value) for value in Order},
    }
)
HINT = (
    "write degrees and words such as 'tp8 pp4 dp4 mb1 sp fsdp': tpN, ppN, dpN, cpN (GPUs that share a sequence), epN "
    "(GPUs that split experts), mbN (sequences of a microbatch), vpN (chunks of a stage), "
    f"{', '.join(_WORDS)}, or a schedule (gpipe, 1f1b, 1f1b+4, zb)"
)


@dataclass(frozen=True)
class Regular:
    """Degrees of a regular plan. `data` None: as many replicas as there are GPUs for."""

    tensor: int
    stages: int
    data: int | None
    options: Options
    order: Order = Order.STAGES_NEAR


def parse_regular(text: str) -> Regular:
    """The layout a person wrote; InputError otherwise."""
    degrees: dict[str, int] = {}
    chosen: dict[str, Any] = {}
    for word in text.lower().replace(",", " ").split():
        name, value = _word(word)
        into: dict[str, Any] = degrees if name in _DEGREES else chosen
        if name in into:
            raise InputError(f"--layout: {word!r} says again what was said before", hint="say each once")
        into[name] = value
    if not degrees and not chosen:
        raise InputError("--layout says nothing", hint=HINT)
    order = chosen.pop("order", Order.STAGES_NEAR)
    size, context, expert, chunks = (degrees.get(name, 1) for name in ("mb", "cp", "ep", "vp"))
    options = replace(Options(size, context=context, expert=expert, chunks=chunks), **chosen)
    return Regular(degrees.get("tp", 1), degrees.get("pp", 1), degrees.get("dp"), options, order)


def _word(word: str) -> tuple[str, Any]:
    match = _DEGREE.fullmatch(word)
    if match:
        return match.group(1), int(match.group(2))
    if word in _WORDS:
        return _WORDS[word]
    try:
        return "schedule", Schedule.parse(word)
    except PlanError:
        raise InputError(f"--layout: unknown word {word!r}", hint=nearest(word, _WORDS) or HINT) from None


def regular_plan(regular: Regular, job: Job, cluster: Cluster) -> JobPlan:
    """A regular plan on a cluster's machines in their order, those where the job may run; InputError where degrees do
    not go with the machines, the layers or the batch."""
    stages, context = regular.stages, regular.options.context
    ranks = regular.tensor * context
    hosts = [machine for machine in cluster.machines if job.may_run_in(machine.region)]
    slots = [
        (host.name, tuple(range(first, first + ranks)))
        for host in hosts
        for first in range(0, host.gpus - ranks + 1, ranks)
    ]
    replicas = regular.data or len(slots) // stages
    if replicas < 1 or stages * replicas > len(slots):
        raise InputError(
            f"tp{regular.tensor} {f'cp{context} ' if context > 1 else ''}pp{stages} dp{max(replicas, 1)} needs "
            f"{stages * max(replicas, 1)} groups of {ranks} GPUs of one machine, and there are {len(slots)}",
            hint="smaller degrees, or more machines",
        )
    size, chunks = regular.options.microbatch_size, regular.options.chunks
    counts = even_layers([layer.kind for layer in job.model.layers], stages, chunks)
    share, rest = divmod(job.global_batch, size * replicas)
    if rest or not share:
        raise InputError(
            f"a batch of {job.global_batch} does not divide into microbatches of {size} for {replicas} replicas",
            hint="other mb or dp",
        )
    problem = rounds_problem(stages, chunks, share)
    if problem:
        raise InputError(f"--layout: {problem}", hint="other vp, pp, mb or dp")
    pipelines = []
    for replica in range(replicas):
        made, first = [], 0
        for piece, count in enumerate(counts):
            near, stage = regular.order is Order.STAGES_NEAR, piece % stages
            machine, gpus = slots[stage + stages * replica if near else replica + replicas * stage]
            made.append(Stage(machine, gpus, first, first + count - 1))
            first += count
        pipelines.append(Pipeline(tuple(made), share))
    return JobPlan(tuple(pipelines), regular.options)


def even_layers(kinds: Sequence[LayerKind], stages: int, chunks: int = 1) -> list[int]:
    """Layers of each stage as Megatron-LM cuts: blocks evenly, what comes before them with the first stage and what
    comes after with the last; with chunks, of each piece in turn. InputError where there are more than blocks."""
    blocks = sum(kind is LayerKind.BLOCK for kind in kinds)
    if stages * chunks > max(blocks, 1):
        of_chunks = f" of {chunks} chunks" if chunks > 1 else ""
        raise InputError(
            f"{blocks} blocks cannot be cut into {stages} stages{of_chunks}",
            hint=f"at most pp{max(blocks // chunks, 1)}" if chunks <= blocks else f"at most vp{max(blocks, 1)}",
        )
    stages *= chunks
    before = next((i for i, kind in enumerate(kinds) if kind is LayerKind.BLOCK), 0)
    counts = [blocks // stages + (stage < blocks % stages) for stage in range(stages)]
    counts[0] += before
    counts[-1] += len(kinds) - before - blocks
    return counts
