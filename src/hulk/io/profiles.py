"""Reader of measured layer profiles: those that Hulk ships, and a person's own in the same format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from hulk.cost.compute import ComputeModel
from hulk.cost.profiles import Curve, CurveKey, ProfileBook
from hulk.domain.gpu import Precision
from hulk.domain.job import Attention
from hulk.domain.model import LayerKind
from hulk.errors import InputError
from hulk.io.files import read_file

_MOST_BYTES = 64 * 2**20
_BUNDLED = ("sailor.json", "h200.json", "h200-catalogue.json")


def parse_profiles(text: str, *, where: str) -> dict[CurveKey, Curve]:
    """The curves of one profile file (its format: see the files in `hulk/data/profiles`)."""
    try:
        data = json.loads(text)
        source = str(data["source"])
        return dict(_curve(row, source) for row in data["curves"])
    except InputError as error:
        raise error.at(where) from error
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
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


def compute_with(paths: Sequence[str | Path] | None) -> ComputeModel:
    """The price's view of GPUs, with the profiles that Hulk ships and those of these files, which win; of two files the
    later one does."""
    curves = dict(bundled_profiles().curves)
    for path in paths or ():
        try:
            text = read_file(path, most=_MOST_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise InputError("the file is not UTF-8 text", where=str(path)) from None
        curves |= parse_profiles(text, where=str(path))
    return ComputeModel(ProfileBook(curves))


def profile_text(source: str, notes: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """A profile file, as `parse_profiles` reads it: one curve a line, so that a change of one is a change of a line."""
    head = json.dumps({"hulk": "profile/1", "source": source, "notes": list(notes)}, indent=1, ensure_ascii=False)
    body = ",\n  ".join(json.dumps(row) for row in rows)
    return f'{head[:-2]},\n "curves": [\n  {body}\n ]\n}}\n'


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
