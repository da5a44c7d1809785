"""How much a job counts that ends after its deadline, compiled and plain."""

from __future__ import annotations

from hulk.cost.compiled import lean

_STEP, _SLOPE = 0.1, 0.4


@lean
def late_part(seconds: float, longest: float) -> float:
    """Of what a job counts that waits: 0 where its step takes no longer than `longest` seconds; else a step up, so that
    nothing gained elsewhere makes up for it, and the more the later."""
    if seconds <= longest:
        return 0.0
    return _STEP + _SLOPE * (1.0 - longest / seconds)
