"""Quantities as people write them ("120 ms", "25 Gbit/s", "80 GiB") and as Hulk computes with them (SI floats).

Inside Hulk every number is in seconds, bytes, bytes/s, FLOP/s, watts or US dollars. Text is parsed here, once, at the
border, and formatted here for people. Nothing else in the project knows about prefixes.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum

from hulk.errors import InputError, UnitError


class Dimension(StrEnum):
    """What a quantity measures; the value is how an error message names it."""

    TIME = "time"
    SIZE = "size"
    BANDWIDTH = "bandwidth"
    RATE = "compute rate"
    HOURLY = "price per hour"
    VOLUME_PRICE = "price per volume"
    POWER = "power"
    COUNT = "count"


_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_HOUR = 3600.0


def _size_units() -> dict[str, float]:
    units = {f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()}
    return units | {"byte": 1.0, "bytes": 1.0}


def _bandwidth_units() -> dict[str, float]:
    units: dict[str, float] = {}
    for prefix, factor in (_DECIMAL | _BINARY).items():
        units[f"{prefix}B/s"] = factor
        units[f"{prefix}bit/s"] = factor / 8
        units[f"{prefix}b/s"] = factor / 8
        units[f"{prefix}bps"] = factor / 8
        units[f"{prefix}Bps"] = factor
    return units


def _rate_units() -> dict[str, float]:
    return {f"{p}{w}": f for p, f in _DECIMAL.items() for w in ("FLOP/s", "FLOPS", "FLOPs", "FLOPs/s", "flops")}


_UNITS: dict[Dimension, dict[str, float]] = {
    Dimension.TIME: {
        "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0,
        "min": 60.0, "h": _HOUR, "d": 24 * _HOUR, "minutes": 60.0, "hour": _HOUR, "hours": _HOUR,
        "day": 24 * _HOUR, "days": 24 * _HOUR, "week": 168 * _HOUR, "weeks": 168 * _HOUR,
    },
    Dimension.SIZE: _size_units(),
    Dimension.BANDWIDTH: _bandwidth_units(),
    Dimension.RATE: _rate_units(),
    Dimension.HOURLY: {"$/h": 1 / _HOUR, "USD/h": 1 / _HOUR, "$/hour": 1 / _HOUR, "$/s": 1.0},
    Dimension.VOLUME_PRICE: {"$/GB": 1e-9, "USD/GB": 1e-9, "$/GiB": 2.0**-30, "$/TB": 1e-12},
    Dimension.POWER: {"W": 1.0, "kW": 1e3},
    Dimension.COUNT: {
        "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12,
        "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12,
    },
}  # fmt: skip

_EXAMPLES = {
    Dimension.TIME: '"120 ms"',
    Dimension.SIZE: '"80 GiB"',
    Dimension.BANDWIDTH: '"25 Gbit/s"',
    Dimension.RATE: '"312 TFLOP/s"',
    Dimension.HOURLY: '"2.50 $/h"',
    Dimension.VOLUME_PRICE: '"0.09 $/GB"',
    Dimension.POWER: '"400 W"',
    Dimension.COUNT: '"300B tokens"',
}

MOST = 1e18
"""No quantity that a person gives as an option is larger, or smaller than one over it."""
_MOST_TEXT = 64  # characters of a quantity; what is longer is some other text
_QUANTITY = re.compile(r"^\s*([+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$")
_NOISE_WORDS = re.compile(r"\s*(tokens?|samples?|params?|parameters?)$")


def parse(value: object, dimension: Dimension) -> float:
    """The quantity in SI units. Raises UnitError with what is wrong and an example of what is right.

    A bare number is refused wherever a unit is needed: 5 may be milliseconds or seconds. Zero needs no unit.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(f"expected a {dimension} such as {_EXAMPLES[dimension]}, got {value!r}")
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        raise UnitError(f"expected a {dimension}, got a long text; write it like {_EXAMPLES[dimension]}")
    text = value if isinstance(value, str) else repr(value)
    match = _QUANTITY.match(text)
    if match is None:
        raise UnitError(f"{text!r} is not a {dimension}; write it like {_EXAMPLES[dimension]}")
    number_text, unit = match.groups()
    try:
        number = float(number_text.replace(",", "").replace("_", ""))
    except ValueError:
        raise UnitError(f"{text!r} is not a {dimension}; write it like {_EXAMPLES[dimension]}") from None
    if dimension is Dimension.COUNT:
        unit = _NOISE_WORDS.sub("", " " + unit).strip()
    units = _UNITS[dimension]
    if unit not in units:
        if not unit and number == 0:
            return 0.0
        raise UnitError(_unknown_unit(text, unit, dimension))
    result = number * units[unit]
    if not math.isfinite(result):
        raise UnitError(f"{text!r} is not a finite {dimension}")
    if result < 0:
        raise UnitError(f"{text!r} is negative; a {dimension} cannot be")
    return result


def positive_finite(value: float, option: str, *, most: float = MOST) -> float:
    """The number that an option was given, where it is one to work with: more than nothing, and at most `most`.

    InputError that names the option otherwise; NaN and infinity are refused too.
    """
    if not 1 / MOST <= value <= most:
        raise InputError(f"{option} {value:g}: must be more than 0 and at most {most:g}")
    return value


def _unknown_unit(text: str, unit: str, dimension: Dimension) -> str:
    if not unit:
        return f"{text!r} has no unit; write it like {_EXAMPLES[dimension]}"
    for other, units in _UNITS.items():
        if other is not dimension and other is not Dimension.COUNT and unit in units:
            return f"{text!r} is a {other}, but a {dimension} such as {_EXAMPLES[dimension]} is needed"
    lowered = {u.lower(): u for u in _UNITS[dimension]}
    if unit.lower() in lowered:
        return f"{text!r}: unknown unit {unit!r}; did you mean {lowered[unit.lower()]!r}?"
    return f"{text!r}: unknown unit {unit!r}; write a {dimension} like {_EXAMPLES[dimension]}"


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    for factor, unit in steps:
        if abs(value) >= factor * 0.9995:
            return f"{_three_digits(value / factor)} {unit}"
    factor, unit = steps[-1]
    return f"{_three_digits(value / factor)} {unit}"


def _three_digits(value: float) -> str:
    """Three significant digits without an exponent: 0.123, 1.23, 12.3, 123, 1,230."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value) * 1.0005)))
    return f"{value:,.{min(digits, 4)}f}"


_WRITTEN = {
    Dimension.TIME: "ms",
    Dimension.SIZE: "GiB",
    Dimension.BANDWIDTH: "Gbit/s",
    Dimension.HOURLY: "$/h",
}


def written(value: float, dimension: Dimension) -> str:
    """A quantity for files: six digits and always the same unit, so that equal ones are equal as text."""
    unit = _WRITTEN[dimension]
    return f"{value / _UNITS[dimension][unit]:.6g} {unit}"


def format_time(seconds: float) -> str:
    """Seconds for people: "73.6 ms", "1.23 s", "2.1 h"."""
    return _scaled(seconds, [(86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs")])


def format_size(count: float) -> str:
    """Bytes for people, in binary units, as memory is sold: "80 GiB"."""
    return _scaled(count, [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")])


def format_bandwidth(rate: float) -> str:
    """Bytes per second for people, in bits as networks are sold: "25 Gbit/s"."""
    return _scaled(rate * 8, [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")])


def format_rate(rate: float) -> str:
    """FLOP/s for people: "312 TFLOP/s"."""
    return _scaled(rate, [(1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s")])


def format_power(watts: float) -> str:
    """Watts for people: "400 W"."""
    return f"{watts:,.4g} W"


def format_count(count: float) -> str:
    """A count for people: "175B", "1.5M"."""
    return _scaled(count, [(1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, "")]).replace(" ", "")


def format_money(dollars: float) -> str:
    """US dollars for people: "$12.30", "$0.0012"."""
    if dollars and abs(dollars) < 0.1:
        return f"${dollars:.2g}" if abs(dollars) >= 1e-4 else f"${dollars:.1e}"
    return f"${dollars:,.2f}"
