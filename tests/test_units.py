"""Quantities as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hulk import units
from hulk.errors import UnitError
from hulk.units import Dimension, parse


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("120 ms", Dimension.TIME, 0.12),
        ("5us", Dimension.TIME, 5e-6),
        ("5 µs", Dimension.TIME, 5e-6),
        ("1.5 h", Dimension.TIME, 5400.0),
        ("80 GiB", Dimension.SIZE, 80 * 2**30),
        ("80 GB", Dimension.SIZE, 80e9),
        ("25 Gbit/s", Dimension.BANDWIDTH, 25e9 / 8),
        ("25 Gbps", Dimension.BANDWIDTH, 25e9 / 8),
        ("2 GB/s", Dimension.BANDWIDTH, 2e9),
        ("1 Gibit/s", Dimension.BANDWIDTH, 2**30 / 8),
        ("312 TFLOP/s", Dimension.RATE, 312e12),
        ("3.6 $/h", Dimension.HOURLY, 0.001),
        ("0.09 $/GB", Dimension.VOLUME_PRICE, 9e-11),
        ("300B", Dimension.COUNT, 3e11),
        ("300B tokens", Dimension.COUNT, 3e11),
        ("1,000,000", Dimension.COUNT, 1e6),
        (4096, Dimension.COUNT, 4096.0),
        ("1e3 ms", Dimension.TIME, 1.0),
        (0, Dimension.TIME, 0.0),
    ],
)
def test_reads(text: object, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        (25, Dimension.BANDWIDTH, "'25' has no unit; write it like \"25 Gbit/s\""),
        ("25 Gbit/s", Dimension.TIME, "is a bandwidth, but a time"),
        ("25 gbit/s", Dimension.BANDWIDTH, "did you mean 'Gbit/s'?"),
        ("25 parsecs", Dimension.BANDWIDTH, "unknown unit 'parsecs'"),
        ("-1 ms", Dimension.TIME, "negative"),
        ("1e400 s", Dimension.TIME, "not a finite time"),
        ("nan s", Dimension.TIME, "is not a time"),
        ("", Dimension.TIME, "is not a time"),
        ("fast", Dimension.TIME, "is not a time"),
        (True, Dimension.TIME, "expected a time"),
        (None, Dimension.SIZE, "expected a size"),
        ([1], Dimension.SIZE, "expected a size"),
        (float("inf"), Dimension.COUNT, "is not a count"),
    ],
)
def test_refuses(text: object, dimension: Dimension, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text, dimension)
    assert message in str(caught.value)


_FORMATS = [
    (units.format_time, Dimension.TIME, 1e-5),
    (units.format_size, Dimension.SIZE, 1.0),
    (units.format_bandwidth, Dimension.BANDWIDTH, 1e3),
    (units.format_rate, Dimension.RATE, 1e9),
    (units.format_count, Dimension.COUNT, 1.0),
]


@pytest.mark.parametrize(("write", "dimension", "least"), _FORMATS)
def test_what_is_written_reads_back_to_three_digits(write: object, dimension: Dimension, least: float) -> None:
    assert callable(write)
    for exponent in range(40):
        value = least * 2.17**exponent
        if value > 1e15:
            break
        assert parse(write(value), dimension) == pytest.approx(value, rel=0.006), write(value)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.booleans(), st.none()), st.sampled_from(Dimension)
)
def test_anything_is_a_number_or_a_unit_error(value: object, dimension: Dimension) -> None:
    try:
        result = parse(value, dimension)
    except UnitError:
        return
    assert 0 <= result < float("inf")
