"""A job: a model and how it is to be trained."""

from __future__ import annotations

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
class Job:
    """What to train.

    global_batch   sequences a step
    tokens         the budget (None: not given)
    deadline       seconds in which the budget must be used up (None: whenever)
    allow          regions where it may run, as patterns; None: everywhere, none: nowhere
    deny           regions where it must not run; wins over `allow`
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
        if any(fnmatchcase(region, pattern) for pattern in self.deny):
            return False
        return self.allow is None or any(fnmatchcase(region, pattern) for pattern in self.allow)
