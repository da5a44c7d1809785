"""A job: a model and how it is to be trained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from math import inf

from hulk.domain.gpu import Precision
from hulk.domain.model import Model


class Optimizer(StrEnum):
    """The optimizers whose state Hulk can count."""

    ADAMW = "adamw"
    ADAM = "adam"
    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAFACTOR = "adafactor"


class Attention(StrEnum):
    """How attention is computed.

    fused           one kernel that never writes the score matrix (FlashAttention and its kin)
    fused-softmax   the score matrix is written; scale, mask and softmax are one kernel (Megatron's)
    eager           the score matrix is written, by a kernel for each operation
    """

    FUSED = "fused"
    FUSED_SOFTMAX = "fused-softmax"
    EAGER = "eager"

    @property
    def writes_scores(self) -> bool:
        """Whether the score matrix is written, and held for backward."""
        return self is not Attention.FUSED


@dataclass(frozen=True)
class Rule:
    """Where some layers of a model may be.

    words       which layers, as a person says it: "embedding and head"
    layers      their numbers, as plans count them: 0 is the embedding
    patterns    regions, as names or patterns
    forbidden   the layers must not be there; otherwise they may be nowhere else
    """

    words: str
    layers: frozenset[int]
    patterns: tuple[str, ...]
    forbidden: bool = False

    def permits(self, layer: int, region: str) -> bool:
        """Whether the rule lets a layer be in a region."""
        return layer not in self.layers or _matches(region, self.patterns) != self.forbidden

    def __str__(self) -> str:
        return f"{'not ' if self.forbidden else ''}{self.words}: {', '.join(self.patterns)}"


@dataclass(frozen=True)
class Job:
    """What to train.

    global_batch   sequences a step
    tokens         the budget (None: not given)
    deadline       seconds in which the budget must be used up (None: whenever)
    allow          regions where it may run, as patterns; None: everywhere, none: nowhere
    deny           regions where it must not run; wins over `allow`
    place          where some of its layers may be; all rules hold, and `allow` and `deny` besides
    """

    name: str
    model: Model
    global_batch: int
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    attention: Attention = Attention.FUSED
    tokens: float | None = None
    weight: float = 1.0
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    deadline: float | None = None
    place: tuple[Rule, ...] = ()

    @property
    def tokens_per_step(self) -> int:
        """Tokens one step consumes."""
        return self.global_batch * self.model.sequence

    @property
    def steps(self) -> float | None:
        """Steps that use up the token budget; None without a budget."""
        return None if self.tokens is None else self.tokens / self.tokens_per_step

    @property
    def longest_step(self) -> float:
        """Seconds a step may take for the job to meet its deadline; infinite where it has none."""
        return inf if self.deadline is None or self.steps is None else self.deadline / self.steps

    def may_run_in(self, region: str) -> bool:
        """Whether the job's data may be in that region: `deny` wins over `allow`."""
        if _matches(region, self.deny):
            return False
        return self.allow is None or _matches(region, self.allow)

    def broken_rule(self, layer: int, region: str) -> Rule | None:
        """The first rule of `place` that a layer in a region would break; None where there is none."""
        return next((rule for rule in self.place if not rule.permits(layer, region)), None)

    def may_hold(self, layer: int, region: str) -> bool:
        """Whether a layer may be in a region, by all that the job says."""
        return self.may_run_in(region) and self.broken_rule(layer, region) is None


def _matches(region: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(region, pattern) for pattern in patterns)
