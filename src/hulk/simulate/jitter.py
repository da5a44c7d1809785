"""Random factors for durations."""

from __future__ import annotations

import math

import numpy as np


class Jitter:
    """Draws lognormal factors with mean 1 and coefficient of variation `spread`; with 0 nothing is drawn.

    All factors of a job are drawn before it runs, in the order of the plan: what contends with what cannot change them,
    so two simulations with one seed differ only by what was changed between them.
    """

    def __init__(self, spread: float, rng: np.random.Generator) -> None:
        """`rng` is drawn from by nobody else."""
        # Of a lognormal: mean = exp(mu + sigma² / 2), cv² = exp(sigma²) − 1.
        self._sigma = math.sqrt(math.log1p(spread * spread))
        self._rng = rng

    def factors(self, count: int) -> list[float]:
        """That many factors."""
        if self._sigma == 0:
            return [1.0] * count
        drawn: list[float] = self._rng.lognormal(-(self._sigma**2) / 2, self._sigma, count).tolist()
        return drawn
