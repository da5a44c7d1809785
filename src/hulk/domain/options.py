"""What is chosen for a job's plan besides its pipelines: `Options`, and `SPACE`, the one table of its fields.

Everything that goes through the options one by one goes by that table: plan files and what people read, the rows of
numbers that compiled code has, keys of prices that are remembered, draws, changes and neighbours of a search, the modes
of the exact solver, the graph network's heads. A new option is a field, a row, and an effect in the price
(docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from math import gcd
from typing import Any, Protocol

from hulk.domain.choice import Choice, Needs, Scope, Shape
from hulk.domain.switches import (
    ALL_AHEAD,
    GPIPE,
    PLAIN,
    SPLIT,
    Recompute,
    Schedule,
    ScheduleKind,
    Sharding,
    Sync,
    Within,
)

__all__ = [
    "ALL_AHEAD", "COLUMN", "GPIPE", "SPACE", "SPLIT", "Choice", "Needs", "Options", "Recompute", "Schedule",
    "ScheduleKind", "Scope", "Shape", "Sharding", "Sync", "Within", "codes_of", "drawn_evenly", "neighbours", "normal",
    "options_of", "places_of", "plain_value", "words_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """What a job's plan says besides who holds which layers. So many GPUs of a stage as `context` says share a
    sequence, each with a part of its tokens; the stage's GPUs are that many times its tensor parallel degree. So many
    GPUs of a machine as `expert` says that hold the same layers split these layers' experts. With `sequence_parallel`
    the ranks of a stage split what tensor parallelism leaves whole, norms and residuals, along the sequence. With
    several `chunks`, a pipeline's stages go round its GPUs so many times. With `host_state` the optimizer's state lies
    in the machine's own memory, and its processors update."""

    microbatch_size: int
    schedule: Schedule = PLAIN
    recompute: Recompute = Recompute.NONE
    sync: Sync = Sync.RING
    sharding: Sharding = Sharding.NONE
    shard_within: Within = Within.EVERYWHERE
    chunks: int = 1
    context: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    host_state: bool = False

    @property
    def shard_optimizer(self) -> bool:
        """Whether holders of the same layers split the optimizer's state, whatever else they split."""
        return self.sharding is not Sharding.NONE

    @property
    def in_turn(self) -> Options:
        """The same with passes of the order that free searches know: one chunk a stage, backward whole."""
        schedule = Schedule.ahead(self.schedule.extra) if self.schedule.splits_backward else self.schedule
        return replace(self, schedule=schedule, chunks=1)

    @property
    def has_owners(self) -> bool:
        """Whether weights are whole where the optimizer's state is not, so that who updates some must hand them on."""
        return self.sharding in (Sharding.OPTIMIZER, Sharding.GRADIENTS)


def _says(**words: str) -> Callable[[Any], str]:
    """Words by the text of a value."""
    return lambda value: words[str(value).lower().replace("-", "_")]


_LONG = 2048
"""Tokens of a part of a sequence, two for each GPU that shares it, for a search to try it: in shorter ones tensor
parallelism divides as well, and attention is too little to hide keys and values on their way."""


def _long_parts(parts: int) -> int:
    """Of that many tokens, the largest power of two that cuts them into parts that are long enough."""
    return gcd(parts, 1 << max(0, (parts // _LONG).bit_length() - 1))


SPACE: tuple[Choice, ...] = (
    Choice(
        name="microbatch_size",
        about="Sequences in a microbatch.",
        words=lambda size: f"microbatches of {size}",
        values=(1, 2, 4, 8, 16, 32),
        fine=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        divides=lambda job: job.global_batch,
        short=(1, 0, 0, 0, 0, 0),
        step=2,
        weight=3.0,
        in_tables=True,
        code=int,
    ),
    Choice(
        name="schedule",
        about="gpipe, 1f1b, or zb (zero bubble: gradients of weights come later); 1f1b+n and zb+n have n more forward "
        "passes ahead, which hide long links.",
        words=str,
        values=(*map(Schedule.ahead, (0, 1, 2, 4, 8, 12, 16, 24, 32)), GPIPE),
        fine=(*map(Schedule.ahead, (*range(17), 20, 24, 28, 30, 32)), GPIPE),
        regular=(Schedule(ScheduleKind.ZERO_BUBBLE), Schedule(ScheduleKind.ZERO_BUBBLE, 4)),
        chances=(1, 1, 1, 1, 1, 1, 1, 1, 1, 0),
        short=(1, 1, 1, 0.3, 0, 0, 0, 0, 0, 0),
        weight=2.5,
        needs=Needs.STAGES,
        code=lambda schedule: schedule.code,
    ),
    Choice(
        name="recompute",
        about="What of the activations is thrown away after the forward pass and computed again: none, attention, "
        "operations (all but attention and every second product), full.",
        words=_says(
            none="nothing recomputed",
            attention="attention recomputed",
            operations="all but every second product recomputed",
            full="everything recomputed",
        ),
        values=tuple(Recompute),
        chances=(0.7, 0.3, 0.3, 0.3),
        short=(0.05, 0.2, 0.3, 0.95),
        weight=2.0,
        beside="microbatch_size",
        in_tables=True,
    ),
    Choice(
        name="sync",
        about="How the replicas add up their gradients.",
        words=_says(ring="gradients in a ring", by_region="gradients region by region"),
        values=tuple(Sync),
        short=(0.35, 0.65),
        needs=Needs.REPLICAS,
    ),
    Choice(
        name="sharding",
        about="What replicas split among them: none, optimizer (ZeRO stage 1), gradients (2), parameters (3, FSDP).",
        words=_says(
            none="",
            optimizer="optimizer sharded",
            gradients="gradients and optimizer sharded",
            parameters="parameters, gradients and optimizer sharded",
        ),
        values=tuple(Sharding),
        chances=(0.2, 0.8, 0.2, 0.5),
        short=(0.1, 0.9, 0.3, 0.9),
        needs=Needs.REPLICAS | Needs.CONTEXT,
        in_tables=True,
    ),
    Choice(
        name="shard_within",
        about="Among whom it is split: everywhere, region or machine; each region or machine then has all of it.",
        words=_says(everywhere="", region="sharded within regions", machine="sharded within machines"),
        values=tuple(Within),
        chances=(0.7, 0.3, 0.3),
        short=(0.8, 0.2, 0.2),
        needs=Needs.REPLICAS,
        moot=lambda options: options.sharding is Sharding.NONE,
    ),
    Choice(
        name="chunks",
        about="How many pieces of the model the GPUs of a stage hold (interleaved 1F1B): a pipeline's stages go round "
        "its GPUs so many times.",
        words=lambda chunks: f"interleaved, {chunks} chunks a stage" if chunks > 1 else "",
        values=(1,),
        regular=tuple(range(2, 25)),
        needs=Needs.STAGES,
        code=int,
    ),
    Choice(
        name="context",
        about="How many GPUs of a stage share a sequence, each with a part of its tokens; the stage's GPUs are that "
        "many times its tensor parallel degree.",
        words=lambda degree: "" if degree == 1 else f"sequences shared by {degree} GPUs",
        values=(1, 2, 4, 8),
        regular=(16, 32, 64),
        divides=lambda job: _long_parts(job.model.context_parts),
        chances=(0.7, 0.3, 0.3, 0.3),
        short=(0.4, 0.6, 0.6, 0.6),
        beside="recompute",
        needs=Needs.RANKS,
        in_tables=True,
        code=int,
    ),
    Choice(
        name="expert",
        about="How many GPUs of a machine that hold the same layers split the experts of these.",
        words=lambda degree: "" if degree == 1 else f"experts split over {degree} GPUs",
        values=(1, 2, 4, 8),
        divides=lambda job: max(1, job.model.experts),
        needs=Needs.REPLICAS | Needs.RANKS,
        in_tables=True,
        code=int,
    ),
    Choice(
        name="sequence_parallel",
        about="Whether the GPUs of a stage split along the sequence what tensor parallelism leaves whole.",
        words=_says(true="sequence parallel", false=""),
        values=(False, True),
        chances=(0.2, 0.8),
        short=(0.05, 0.95),
        needs=Needs.RANKS,
        in_tables=True,
    ),
    Choice(
        name="host_state",
        about="Whether the optimizer's state lies in the memory of the machine, whose processors then update.",
        words=_says(true="optimizer state held by the host", false=""),
        values=(False, True),
        chances=(1, 0),
        short=(0.6, 0.4),
        weight=0.5,
        in_tables=True,
    ),
)
COLUMN: Mapping[str, int] = {choice.name: column for column, choice in enumerate(SPACE)}
"""Where an option stands in rows of numbers."""
assert list(COLUMN) == [each.name for each in fields(Options)], "SPACE has a row for every field, in the same order"


def codes_of(options: Options) -> list[int]:
    """The options as numbers for compiled code."""
    return [choice.code_of(getattr(options, choice.name)) for choice in SPACE]


def places_of(options: Options, scope: Scope) -> list[int]:
    """Where each option's value stands among those tried: the nearest where it is none of them."""
    return [choice.nearest(getattr(options, choice.name), choice.possible(scope)) for choice in SPACE]


def options_of(scope: Scope, places: Sequence[int]) -> Options:
    """The options whose values stand at these places among those tried."""
    return Options(**{c.name: c.possible(scope)[place] for c, place in zip(SPACE, places, strict=True)})


def plain_value(value: Any) -> Any:
    """A value as files have it: numbers and truth values as they are, others as their text."""
    return value if isinstance(value, int | float) else str(value)


def normal(options: Options, shape: Shape) -> Options:
    """The options with the normal value wherever pipelines of this shape, or other options, leave one no effect."""
    # Searches ask by the hundred thousand: the least pipelines that have what these have stand for them.
    replicas = min(shape.replicas, 2)
    return _normal(options, Shape(replicas, replicas + (shape.stages > shape.replicas), min(shape.ranks, 2)))


@lru_cache(maxsize=4096)
def _normal(options: Options, shape: Shape) -> Options:
    for choice in SPACE:
        if not choice.needs.met(shape, options.context) or (choice.moot and choice.moot(options)):
            options = replace(options, **{choice.name: choice.values[0]})
    return options


def neighbours(options: Options, scope: Scope, *, fine: bool = False) -> Iterator[Options]:
    """Options that differ in one field, or in two of which one may only pay beside the other."""
    by_name = {choice.name: choice for choice in SPACE}
    for choice in SPACE:
        for value in choice.near(getattr(options, choice.name), scope, fine=fine):
            yield replace(options, **{choice.name: value})
        if choice.beside is not None:
            other = by_name[choice.beside]
            near, others = (each.near(getattr(options, each.name), scope) for each in (choice, other))
            for value, beside in product(near, others):
                yield replace(options, **{choice.name: value, other.name: beside})


class _Draws(Protocol):
    """A source of chance: numpy's Generator is one."""

    def integers(self, high: int, /) -> Any: ...


def drawn_evenly(scope: Scope, rng: _Draws) -> Options:
    """Any options, each value as likely as the others."""
    possible = {choice.name: choice.possible(scope, fine=choice.step > 0) for choice in SPACE}
    return Options(**{name: values[int(rng.integers(len(values)))] for name, values in possible.items()})


def words_of(options: Options, shape: Shape) -> list[str]:
    """What people read of the options that have an effect on pipelines of this shape."""
    plain = normal(options, shape)
    told = [choice.words(getattr(plain, choice.name)) for choice in SPACE if choice.needs.met(shape, plain.context)]
    return [words for words in told if words]
