"""What options of a plan are made of: what pipelines are like as far as options go by it, and a `Choice`, one field of
them as a search sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, NamedTuple

from hulk.domain.job import Job


class Shape(NamedTuple):
    """What pipelines are like as far as options go by it: how many there are, their stages in all, those on the same
    GPUs counted once, and the GPUs of the widest stage."""

    replicas: int
    stages: int
    ranks: int


class Needs(IntFlag):
    """What pipelines must have for an option to have an effect: any of these."""

    NOTHING = 0
    REPLICAS = 1
    STAGES = 2
    RANKS = 4
    CONTEXT = 8

    def met(self, shape: Shape, context: int = 1) -> bool:
        """Whether pipelines of this shape have it whose GPUs share sequences so many by so many."""
        return (
            not self
            or bool(self & Needs.REPLICAS and shape.replicas > 1)
            or bool(self & Needs.STAGES and shape.stages > shape.replicas)
            or bool(self & Needs.RANKS and shape.ranks > 1)
            or bool(self & Needs.CONTEXT and shape.ranks > 1 and context > 1)
        )


@dataclass(frozen=True)
class Scope:
    """What options are tried for: a job, and, by an option's name, the values that an engine can do; all where none are
    given."""

    job: Job
    offers: Mapping[str, Collection[Any]] = field(default_factory=dict)


Weights = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A field of `Options` as a search sees it. Its first value is the normal one where it has no effect.

    about      what it is, for whoever edits a plan file
    words      a value for people; "" where there is nothing to say
    values     those that are tried, near ones beside each other
    fine       those that are tried when little else changes; `values` where not given
    regular    more values, tried where pipelines are all alike: a search of any other pipelines leaves them out
    divides    what a value must divide in a job for it to be possible
    chances    how often each of `values` is drawn, relative to the others; evenly where not given
    short      the same where memory is short
    step       a change goes up to so many values on; 0: to any value
    weight     how often it is changed, relative to the other options
    beside     another option: a change of this one may only pay together with a change of that one
    needs      what pipelines must have for it to have an effect
    moot       whether the other options leave it none; never where not given
    in_tables  whether what a layer takes and holds depends on it
    code       a value's number in compiled code; its place among `fine` where not given
    """

    name: str
    about: str
    words: Callable[[Any], str]
    values: tuple[Any, ...]
    fine: tuple[Any, ...] = ()
    regular: tuple[Any, ...] = ()
    divides: Callable[[Job], int] | None = None
    chances: Weights = ()
    short: Weights = ()
    step: int = 0
    weight: float = 1.0
    beside: str | None = None
    needs: Needs = Needs.NOTHING
    moot: Callable[[Any], bool] | None = None
    in_tables: bool = False
    code: Callable[[Any], int] | None = None

    def possible(self, scope: Scope, *, fine: bool = False, regular: bool = False) -> tuple[Any, ...]:
        """The values that are tried; where pipelines are `regular`, some more."""
        listed = (self.fine if fine and self.fine else self.values) + (self.regular if regular else ())
        offered = scope.offers.get(self.name, listed)
        return tuple(
            value
            for value in listed
            if value in offered and (self.divides is None or self.divides(scope.job) % value == 0)
        )

    def code_of(self, value: Any) -> int:
        """A value's number in compiled code."""
        return self.code(value) if self.code else (self.fine or self.values).index(value)

    def chances_of(self, values: Sequence[Any], *, short: bool = False) -> Weights:
        """How often each of some of the values is drawn."""
        listed = dict(
            zip(self.values, (short and self.short) or self.chances or (1.0,) * len(self.values), strict=True)
        )
        return tuple(listed[value] for value in values)

    def nearest(self, value: Any, values: Sequence[Any]) -> int:
        """The place of a value among others, or of the next smaller one."""
        if value in values:
            return values.index(value)
        codes = [self.code_of(other) for other in values]
        smaller = [i for i, code in enumerate(codes) if code <= self.code_of(value)]
        return max(smaller, key=lambda i: codes[i], default=0)

    def near(self, value: Any, scope: Scope, *, fine: bool = False) -> Iterator[Any]:
        """The other values that are near one."""
        values = self.possible(scope, fine=fine or self.step > 0)
        at = self.nearest(value, values)
        for i, other in enumerate(values):
            if other != value and (self.step == 0 or abs(i - at) <= self.step):
                yield other
