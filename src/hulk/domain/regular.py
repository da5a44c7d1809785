"""Regular plans: one set of degrees for all pipelines and an even cut, as most engines run them and people write them,
"tp8 pp4 dp4 mb1 sp fsdp"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from types import MappingProxyType
from typing import Any

from hulk.domain.cluster import Cluster, Machine
from hulk.domain.job import Job
from hulk.domain.model import LayerKind
from hulk.domain.options import Options, Recompute, Schedule, Sharding, Sync, Within
from hulk.domain.plan import JobPlan, Part, Pipeline, Stage, rounds_problem
from hulk.errors import InputError, PlanError, nearest

_DEGREES = ("tp", "pp", "dp", "cp", "ep", "mb", "vp")
_DEGREE = re.compile(rf"({'|'.join(_DEGREES)})=?([1-9][0-9]{{0,5}})")
_SOME = re.compile(r"(recompute(?:-(?:attention|operations|full))?)=?([0-9]{1,5})")


class Order(StrEnum):
    """Which of the two varies faster over GPUs, after tensor parallelism: `pp-dp` keeps a pipeline's stages beside each
    other, `dp-pp` the replicas of a stage (Megatron-LM's default)."""

    STAGES_NEAR = "pp-dp"
    REPLICAS_NEAR = "dp-pp"


_WORDS: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        "sp": ("sequence_parallel", True),
        "host": ("host_state", True),
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
    f"{', '.join(_WORDS)}, recomputeN (the first N blocks of a stage; recompute-attentionN and the like), "
    "or a schedule (gpipe, 1f1b, 1f1b+4, zb)"
)


@dataclass(frozen=True)
class Regular:
    """Degrees of a regular plan. `data` None: as many replicas as there are GPUs for. `recomputed`: how many blocks of
    every stage are computed again, or all where it has fewer; None: all."""

    tensor: int
    stages: int
    data: int | None
    options: Options
    order: Order = Order.STAGES_NEAR
    recomputed: int | None = None


def parse_regular(text: str) -> Regular:
    """The layout a person wrote; InputError otherwise."""
    degrees: dict[str, int] = {}
    chosen: dict[str, Any] = {}
    recomputed: int | None = None
    for word in text.lower().replace(",", " ").split():
        name, value = _word(word)
        into: dict[str, Any] = degrees if name in _DEGREES else chosen
        if name in into:
            raise InputError(f"--layout: {word!r} says again what was said before", hint="say each once")
        into[name] = value
        some = _SOME.fullmatch(word)
        if some:
            recomputed = int(some.group(2))
    if not degrees and not chosen:
        raise InputError("--layout says nothing", hint=HINT)
    order = chosen.pop("order", Order.STAGES_NEAR)
    size, context, expert, chunks = (degrees.get(name, 1) for name in ("mb", "cp", "ep", "vp"))
    options = replace(Options(size, context=context, expert=expert, chunks=chunks), **chosen)
    return Regular(degrees.get("tp", 1), degrees.get("pp", 1), degrees.get("dp"), options, order, recomputed)


def _word(word: str) -> tuple[str, Any]:
    match = _DEGREE.fullmatch(word)
    if match:
        return match.group(1), int(match.group(2))
    some = _SOME.fullmatch(word)
    if some:
        word = some.group(1)
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
    slots = _slots(hosts, ranks, regular.tensor, cluster)
    replicas = regular.data or len(slots) // stages
    if replicas < 1 or stages * replicas > len(slots):
        alone = any(host.gpus >= ranks for host in hosts)
        raise InputError(
            f"tp{regular.tensor} {f'cp{context} ' if context > 1 else ''}pp{stages} dp{max(replicas, 1)} needs "
            f"{stages * max(replicas, 1)} groups of {ranks} GPUs of one machine"
            f"{'' if alone else ', or of several that are alike and in one region'}, and there are {len(slots)}",
            hint="smaller degrees, or more machines",
        )
    size, chunks = regular.options.microbatch_size, regular.options.chunks
    counts = even_layers(job.model.kinds, stages, chunks)
    share, rest = divmod(job.global_batch, size * replicas)
    if rest or not share:
        raise InputError(
            f"a batch of {job.global_batch} does not divide into microbatches of {size} for {replicas} replicas",
            hint="other mb or dp",
        )
    problem = rounds_problem(stages, chunks, share)
    if problem:
        raise InputError(f"--layout: {problem}", hint="other vp, pp, mb or dp")
    most = regular.recomputed
    largest = -(-job.model.blocks_before[-1] // (stages * chunks))
    if most is not None and most > largest:
        of_what = "stage" if chunks == 1 else "chunk of a stage"
        raise InputError(f"--layout: recompute{most}, but a {of_what} has {largest} blocks", hint="a smaller number")
    pipelines = []
    for replica in range(replicas):
        made, first = [], 0
        for piece, count in enumerate(counts):
            near, stage = regular.order is Order.STAGES_NEAR, piece % stages
            own, *beside = slots[stage + stages * replica if near else replica + replicas * stage]
            last = first + count - 1
            again = min(job.model.blocks(first, last), most) if most is not None else None
            made.append(Stage(own.machine, own.gpus, first, last, tuple(beside), again))
            first += count
        pipelines.append(Pipeline(tuple(made), share))
    return JobPlan(tuple(pipelines), regular.options)


def _slots(hosts: Sequence[Machine], ranks: int, tensor: int, cluster: Cluster) -> list[tuple[Part, ...]]:
    """Groups of so many GPUs, on machines in their order: on one each or, where no machine has so many, on the fewest
    that are alike."""
    width = 1
    teams: list[tuple[Machine, ...]] = [(host,) for host in hosts]
    if not any(host.gpus >= ranks for host in hosts):
        most = max((host.gpus for host in hosts), default=1)
        width = next((n for n in range(2, len(hosts) + 1) if _divides(ranks, n, tensor, most)), 0)
        teams = teams_of(hosts, width, cluster) if width else []
    each = ranks // max(width, 1)
    return [
        tuple(Part(host.name, tuple(range(first, first + each))) for host in team)
        for team in teams
        for first in range(0, team[0].gpus - each + 1, each)
    ]


def _divides(ranks: int, machines: int, tensor: int, most: int) -> bool:
    """Whether so many machines can have as many of the GPUs each, of which they have so many at most."""
    each, rest = divmod(ranks, machines)
    return not rest and each <= most and not (each % tensor and tensor % each)


def teams_of(hosts: Sequence[Machine], width: int, cluster: Cluster) -> list[tuple[Machine, ...]]:
    """Machines in teams of so many, in their order: alike, of one region, and each reaching the others."""
    alike: dict[tuple[object, ...], list[Machine]] = {}
    for host in hosts:
        alike.setdefault((host.region, host.gpu.name, host.gpus, host.memory), []).append(host)
    found = [tuple(own[i : i + width]) for own in alike.values() for i in range(0, len(own) - width + 1, width)]
    return [team for team in found if not any(cluster.link(a.name, b.name).blocked for a, b in combinations(team, 2))]


@lru_cache(maxsize=1024)
def even_layers(kinds: tuple[LayerKind, ...], stages: int, chunks: int = 1) -> tuple[int, ...]:
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
    return tuple(counts)
