"""The measured blocks that the roofline is fitted on and compared with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hulk.cost.layers import build_model
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer, LayerKind, Model
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model, load_catalogue_models
from hulk.io.profiles import bundled_profiles, parse_profiles

Row = dict[str, Any]
SAILOR_TYPES = ("a100-40", "a100-80", "gh200-96", "rtx-2080ti", "rtx-3090", "titan-rtx", "v100-16")
"""The GPU types of the Sailor artifact, which are left out one at a time."""
H200_LAYERS = Path(__file__).parent / "data/h200_layers.jsonl"
"""Layers of transformers timed on an H200 (torch 2.11, transformers 5.17; blocks by the difference of one and five)."""


@dataclass(frozen=True)
class Point:
    """One measured layer: what ran, and the seconds it took."""

    model: str
    layer: Layer
    gpu: GpuType
    precision: Precision
    attention: Attention
    sequence: int
    microbatch: int
    tensor_parallel: int
    forward: float
    backward: float

    @property
    def seconds(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward


@cache
def sailor_points(kind: LayerKind = LayerKind.BLOCK) -> tuple[Point, ...]:
    """Every block (or head) of the Sailor artifact's profiles, in a fixed order."""
    points = []
    for key, curve in sorted(bundled_profiles().curves.items()):
        if key.kind is kind and curve.backward is not None and key.gpu in SAILOR_TYPES:
            layer = _layer(_as_sailor_ran(key.model, key.sequence), kind)
            points += [
                Point(
                    model=key.model,
                    layer=layer,
                    gpu=gpu(key.gpu),
                    precision=key.precision,
                    attention=key.attention,
                    sequence=key.sequence,
                    microbatch=microbatch,
                    tensor_parallel=key.tensor_parallel,
                    forward=forward,
                    backward=backward,
                )
                for microbatch, forward, backward in zip(curve.microbatch, curve.forward, curve.backward, strict=True)
            ]
    return tuple(points)


@cache
def h200_points(kind: LayerKind = LayerKind.BLOCK) -> tuple[Point, ...]:
    """The blocks (or heads) measured on an H200, but for those that are not what they are labelled: see `comparable`;
    and heads whose vocabulary is no multiple of 8, which keeps 16-bit products off the tensor cores."""
    rows = [json.loads(line) for line in H200_LAYERS.read_text(encoding="utf-8").splitlines()]
    if kind is LayerKind.BLOCK:
        return tuple(point_of(row) for row in comparable(rows))
    return tuple(point_of(row) for row in rows if row["kind"] == "head" and row["model"] in ("opt-30b", "llama-3-8b"))


def comparable(rows: list[Row]) -> Iterator[Row]:
    """The blocks among rows of timed layers, without two sets that do not run what they say:

    sdpa where PyTorch has no fused kernel (T5's bias; grouped queries in fp32): it holds as much as eager attention;
    GPT-Neo in 16 bits, whose attention transformers computes in fp32.
    """
    blocks = [row for row in rows if row["kind"] == "block"]
    held = {_case(row): row["held_bytes"] for row in blocks}
    for row in blocks:
        eager = held.get(_case(row | {"attention": "eager"}), float("inf"))
        unfused = row["attention"] == "fused" and (row["model"] == "t5-11b" or row["held_bytes"] >= eager)
        upcast = row["model"] == "gpt-neo-2.7b" and Precision(row["precision"]).bytes == 2
        if not (unfused or upcast):
            yield row


def read_points(path: Path) -> list[Point]:
    """The blocks of a profile (`hulk profile`, .json) or of a file of JSON lines (see `point_of`); rows whose `kind` is
    given and no block are skipped."""
    points = _profile_points(path) if path.suffix == ".json" else _line_points(path)
    if not points:
        raise InputError("no measured layers", where=str(path))
    return points


def _profile_points(path: Path) -> list[Point]:
    rows = []
    for key, curve in parse_profiles(path.read_text(encoding="utf-8"), where=str(path)).items():
        if key.kind is LayerKind.BLOCK and curve.backward is not None:
            for microbatch, forward, backward in zip(curve.microbatch, curve.forward, curve.backward, strict=True):
                rows.append(key._asdict() | {"microbatch": microbatch, "forward_s": forward, "backward_s": backward})
    return [point_of(row) for row in rows]


def _line_points(path: Path) -> list[Point]:
    points = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if row.get("kind", "block") == "block":
                points.append(point_of(row))
        except InputError as error:
            raise error.at(f"{path}:{number}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"not a measured layer: {error!r}", where=f"{path}:{number}") from error
    return points


def point_of(row: Row) -> Point:
    """A layer from gpu, model, precision, microbatch, sequence, forward_s and backward_s, and where given attention
    (fused, or sdpa, or eager; fused without it), tensor_parallel (1) and kind (block)."""
    model = build_named_model(row["model"], int(row["sequence"]))
    return Point(
        model=model.name,
        layer=_layer(model, LayerKind(row.get("kind", "block"))),
        gpu=_gpu(row["gpu"]),
        precision=Precision(row["precision"]),
        attention=_ATTENTION[row.get("attention", "fused")],
        sequence=model.sequence,
        microbatch=int(row["microbatch"]),
        tensor_parallel=int(row.get("tensor_parallel", 1)),
        forward=float(row["forward_s"]),
        backward=float(row["backward_s"]),
    )


def typical_block(model: Model) -> Layer:
    """The block that a model has most of (T5's first one differs from the others)."""
    shapes = Counter(layer.shape for layer in model.layers if layer.kind is LayerKind.BLOCK)
    most = shapes.most_common(1)[0][0]
    return next(layer for layer in model.layers if layer.shape == most)


_ATTENTION = {"fused": Attention.FUSED, "sdpa": Attention.FUSED, "flash": Attention.FUSED, "eager": Attention.EAGER}


def _layer(model: Model, kind: LayerKind) -> Layer:
    return typical_block(model) if kind is LayerKind.BLOCK else model.layers[-1]


def _case(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("model", "precision", "attention", "sequence", "microbatch"))


def _gpu(name: str) -> GpuType:
    """A GPU by catalogue name, or as its driver names it ("NVIDIA H200")."""
    try:
        return gpu(name)
    except InputError:
        return gpu(name.lower().removeprefix("nvidia").strip().replace(" ", "-"))


@cache
def _as_sailor_ran(name: str, sequence: int) -> Model:
    """The model as the Sailor artifact built it: no dropout, a padded vocabulary, a Llama without grouped queries."""
    shape = replace(
        load_catalogue_models()[name].architecture(),
        vocab=50304,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        embedding_dropout=0.0,
        inner_dropout=0.0,
        output_dropout=0.0,
    )
    shape = replace(shape, embedding=shape.hidden)
    if name == "llama-3-8b":
        shape = replace(shape, kv_heads=shape.heads, ffn=16384)
    return build_model(shape, name=name, sequence=sequence)
