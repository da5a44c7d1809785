"""A job: a model and how it is to be trained."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

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
    """How attention is computed: `fused` never writes the score matrix (FlashAttention and its kin), `eager` does."""

    FUSED = "fused"
    EAGER = "eager"


@dataclass(frozen=True)
class Job:
    """What to train. `tokens` is the budget (None: not given), `global_batch` counts sequences a step."""

    name: str
    model: Model
    global_batch: int
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAMW
    attention: Attention = Attention.FUSED
    tokens: float | None = None
    weight: float = 1.0
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @property
    def tokens_per_step(self) -> int:
        """Tokens one step consumes."""
        return self.global_batch * self.model.sequence

    @property
    def steps(self) -> float | None:
        """Steps that use up the token budget; None without a budget."""
        return None if self.tokens is None else self.tokens / self.tokens_per_step

    def may_run_in(self, region: str) -> bool:
        """Whether the job's data may be in that region: `deny` wins over `allow`; an empty `allow` allows all."""
        if any(fnmatchcase(region, pattern) for pattern in self.deny):
            return False
        return not self.allow or any(fnmatchcase(region, pattern) for pattern in self.allow)
