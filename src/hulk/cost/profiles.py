"""Measured layer times: lookups over the profiles that `hulk.io.profiles` reads.

A curve is what was measured of one kind of layer on one GPU type over several microbatches. Seconds are for one
microbatch on one GPU of a tensor parallel group, the group's all-reduces included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from hulk.cost.roofline import Conditions
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer, LayerKind, Model
from hulk.errors import InputError


class Measured(NamedTuple):
    """Seconds of one microbatch; `backward` is None where it was not captured."""

    forward: float
    backward: float | None


class CurveKey(NamedTuple):
    """What a curve was measured of. `precision` is the unit that did the matrix work: a tf32 job on a V100 is fp32."""

    model: str
    gpu: str
    precision: Precision
    attention: Attention
    sequence: int
    tensor_parallel: int
    kind: LayerKind

    @classmethod
    def of(cls, model: Model, layer: Layer, gpu: GpuType, how: Conditions) -> CurveKey | None:
        """What a curve of this layer would have been measured of; None where no other precision's run tells anything:
        16-bit weights on an fp32 unit move other bytes than an fp32 run."""
        unit = gpu.unit_for(how.precision)
        if unit.bytes != how.precision.bytes:
            return None
        return cls(model.name, gpu.timed, unit, how.attention, model.sequence, how.tensor_parallel, layer.kind)


@dataclass(frozen=True)
class Curve:
    """Seconds over microbatches, ascending.

    `flops` are the forward FLOPs of one sample of the layer as it was measured (0: not known): a catalogue model may
    differ from what a profile of the same name ran, and then its times need scaling.
    """

    microbatch: tuple[int, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...] | None
    flops: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse curves that no measurement gives."""
        sizes = {len(self.microbatch), len(self.forward), len(self.backward or self.forward)}
        ascending = all(a < b for a, b in pairwise(self.microbatch))
        if len(sizes) != 1 or not self.microbatch or not ascending or self.microbatch[0] < 1:
            raise InputError("a profile's microbatches must ascend from at least 1, with one time for each")
        if min(self.forward) <= 0 or min(self.backward or self.forward) <= 0:
            raise InputError("a profile's times must be above zero")

    def at(self, microbatch: int) -> Measured | None:
        """The times at a microbatch.

        The measurement itself where there is one; between two, linear in the microbatch; above the largest, the line
        through the last two (through the origin where there is only one); below the smallest, None.
        """
        if microbatch < self.microbatch[0]:
            return None
        backward = None if self.backward is None else self._along(self.backward, microbatch)
        return Measured(self._along(self.forward, microbatch), backward)

    def nearest(self, microbatch: int) -> int:
        """The measured microbatch closest to this one, in proportion."""
        return min(self.microbatch, key=lambda size: max(size / microbatch, microbatch / size))

    def _along(self, times: tuple[float, ...], microbatch: int) -> float:
        sizes = self.microbatch
        right = bisect_left(sizes, microbatch)
        if right < len(sizes) and sizes[right] == microbatch:
            return times[right]
        if len(sizes) == 1:
            return times[0] * microbatch / sizes[0]
        right = min(right, len(sizes) - 1)
        (x0, x1), (y0, y1) = sizes[right - 1 : right + 1], times[right - 1 : right + 1]
        # Noise can make the last pair fall; more samples never take less time.
        slope = max((y1 - y0) / (x1 - x0), 0.0)
        return y0 + slope * (microbatch - x0)


@dataclass(frozen=True)
class ProfileBook:
    """All curves. Built from a mapping, without any I/O; an empty book is a valid one."""

    curves: Mapping[CurveKey, Curve] = field(default_factory=dict)

    def curve(self, key: CurveKey) -> Curve | None:
        """The curve that was measured of this, or None."""
        return self.curves.get(key)

    def degrees(self, key: CurveKey) -> tuple[int, ...]:
        """The tensor parallel degrees that were measured of this, ascending, whatever the key's own."""
        return self._degrees.get(key._replace(tensor_parallel=0), ())

    @cached_property
    def _degrees(self) -> dict[CurveKey, tuple[int, ...]]:
        """Degrees by key, with 0 in the place of the degree."""
        found: dict[CurveKey, tuple[int, ...]] = {}
        for key in sorted(self.curves):
            anywhere = key._replace(tensor_parallel=0)
            found[anywhere] = (*found.get(anywhere, ()), key.tensor_parallel)
        return found
