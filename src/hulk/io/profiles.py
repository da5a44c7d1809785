"""Reader of measured layer profiles: those that Hulk ships, and a person's own in the same format."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from hulk.cost.compute import ComputeModel
from hulk.cost.profiles import Curve, CurveKey, ProfileBook
from hulk.domain.gpu import Precision
from hulk.domain.job import Attention
from hulk.domain.model import LayerKind
from hulk.errors import InputError

_BUNDLED = ("sailor.json", "h200.json")


def parse_profiles(text: str, *, where: str) -> dict[CurveKey, Curve]:
    """The curves of one profile file (its format: see the files in `hulk/data/profiles`)."""
    try:
        data = json.loads(text)
        source = str(data["source"])
        return dict(_curve(row, source) for row in data["curves"])
    except InputError as error:
        raise error.at(where) from error
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a layer profile: {error!r}", where=where) from error


@cache
def bundled_profiles() -> ProfileBook:
    """The profiles that Hulk ships."""
    folder = resources.files("hulk") / "data" / "profiles"
    curves: dict[CurveKey, Curve] = {}
    for name in _BUNDLED:
        file = folder / name
        if file.is_file():
            curves |= parse_profiles(file.read_text(encoding="utf-8"), where=name)
    return ProfileBook(curves)


def bundled_compute() -> ComputeModel:
    """The price's view of GPUs, with the profiles that Hulk ships."""
    return ComputeModel(bundled_profiles())


def _curve(row: dict[str, Any], source: str) -> tuple[CurveKey, Curve]:
    key = CurveKey(
        model=row["model"],
        gpu=row["gpu"],
        precision=Precision(row["precision"]),
        attention=Attention(row["attention"]),
        sequence=int(row["sequence"]),
        tensor_parallel=int(row["tensor_parallel"]),
        kind=LayerKind(row["kind"]),
    )
    backward = row.get("backward")
    curve = Curve(
        microbatch=tuple(int(size) for size in row["microbatch"]),
        forward=tuple(float(time) for time in row["forward"]),
        backward=None if backward is None else tuple(float(time) for time in backward),
        flops=float(row.get("flops", 0.0)),
        source=source,
    )
    return key, curve
