"""GPU types: what a card can do, from its datasheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Precision(StrEnum):
    """The number format of matrix work. Weights are stored in it too, except TF32's, which are fp32, and FP8's, which
    are bf16: products with weights alone are in 8 bits."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"

    @property
    def bytes(self) -> int:
        """Bytes of one stored element."""
        return 4 if self is Precision.FP32 or self is Precision.TF32 else 2

    @property
    def outside(self) -> Precision:
        """The format of all that is no product with a weight, attention among it."""
        return Precision.BF16 if self is Precision.FP8 else self


# Where a GPU has no unit for a precision, the software runs the next one in the list.
_FALLBACKS = {
    Precision.FP32: (Precision.FP32,),
    Precision.TF32: (Precision.TF32, Precision.FP32),
    Precision.FP16: (Precision.FP16, Precision.FP32),
    Precision.BF16: (Precision.BF16, Precision.FP32),
    Precision.FP8: (Precision.FP8, Precision.BF16, Precision.FP32),
}


@dataclass(frozen=True, slots=True)
class Own:
    """Of a GPU type that a cluster file brings: the known type that it is a variation of ("": of none), whether it
    takes as long as that one and is linked like it, and the limit in watts (None: none) that lowered its rates."""

    like: str = ""
    same_speed: bool = False
    same_link: bool = False
    power_limit: float | None = None


@dataclass(frozen=True, slots=True)
class GpuType:
    """One kind of card. `memory` in bytes, `memory_bandwidth` and `link_bandwidth` in bytes/s, `rates` in FLOP/s
    (dense matrix peak), `price` in dollars a second, `power` in watts (None: not known). `link_bandwidth` is per GPU
    and direction, inside a machine. `own`: where the type is a cluster file's, and not of the catalogue."""

    name: str
    memory: float
    memory_bandwidth: float
    rates: Mapping[Precision, float]
    link_bandwidth: float
    link_kind: str = "pcie"
    price: float = 0.0
    label: str = ""
    capability: str = ""
    source: str = ""
    power: float | None = None
    own: Own | None = None

    @property
    def family(self) -> str:
        """The type whose constants hold here (shares of the peaks, memory that is taken): its own name, or the name of
        the type that it is a variation of."""
        return self.own.like if self.own is not None and self.own.like else self.name

    @property
    def linked(self) -> str:
        """The type whose measured links inside a machine are those of this one."""
        return self.family if self.own is None or self.own.same_link else self.name

    @property
    def timed(self) -> str:
        """The type whose measured layer times are those of this one."""
        return self.linked if self.own is None or self.own.same_speed else self.name

    def unit_for(self, precision: Precision) -> Precision:
        """The precision whose unit does this precision's matrix work here: the precision itself, or a fallback."""
        if precision in self.rates:
            return precision
        return next((p for p in _FALLBACKS[precision] if p in self.rates), Precision.FP32)

    def rate(self, precision: Precision) -> float:
        """Peak FLOP/s for matrix work asked for in this precision."""
        return self.rates[self.unit_for(precision)]
