"""What the promises' checker knows of models and GPUs by itself: read from configs and data files as plain text, with
arithmetic of its own, so that a mistake in Hulk's formulas does not excuse itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

_GIB = {"MiB": 2.0**20, "GiB": 2.0**30}
_HALF = ("bf16", "fp16")
# Bytes of optimizer state a parameter, beside the fp32 copy of half-precision weights.
_STATE = {"adamw": 8, "adam": 8, "momentum": 4, "sgd": 0, "adafactor": 0}


@dataclass(frozen=True)
class Piece:
    """One layer: its large matrices' parameters (never more than all it has), how many of them are the first layer's
    too, and the heads that tensor parallel must divide (0: none)."""

    params: int
    tied: int = 0
    heads: int = 0


@dataclass(frozen=True)
class Shape:
    """A model as the jobs file names it: its layers, its customary sequence, and the longest it takes."""

    name: str
    pieces: tuple[Piece, ...]
    sequence: int
    longest: int
    two_sided: bool = False

    @property
    def params(self) -> int:
        """Parameters, tied ones once."""
        return sum(piece.params - piece.tied for piece in self.pieces)


@dataclass(frozen=True)
class Gpu:
    """A GPU type: bytes of memory, dollars an hour, FLOP/s by precision."""

    name: str
    memory: float
    dollars: float
    rates: Mapping[str, float]

    def rate(self, precision: str) -> float:
        """FLOP/s at that precision, or in fp32 where it has none of its own."""
        return self.rates.get(precision, self.rates["fp32"])


def state_bytes(
    precision: str,
    optimizer: str,
    shards: int = 1,
    *,
    split: str = "optimizer",
    by_host: bool = False,
    engine: str | None = None,
) -> float:
    """Bytes a parameter takes of a GPU at least: weights, gradients, and the optimizer's state, as far as hosts have it
    not. So many shards `split` the state, the gradients too, or all of it. Gradients are fp32 but for Megatron's fp16
    ones."""
    half = precision in _HALF
    weights, gradients = (2 if half else 4), (2 if engine == "megatron" and precision == "fp16" else 4)
    state = 0 if by_host else (4 if half else 0) + _STATE[optimizer]
    if split == "parameters":
        weights /= shards
    if split in ("parameters", "gradients"):
        gradients /= shards
    return weights + gradients + state / shards


@cache
def gpus() -> tuple[Gpu, ...]:
    """The bundled GPU types."""
    entries = yaml.safe_load(_data("gpus.yaml"))["gpus"]
    return tuple(
        Gpu(
            name=entry["name"],
            memory=_number(entry["memory"]) * _GIB[entry["memory"].split()[1]],
            dollars=_number(entry["price"]),
            rates={key: _number(rate) * 1e12 for key, rate in entry["rates"].items()},
        )
        for entry in entries
    )


@cache
def bundled_shape(name: str) -> Shape:
    """A model of the catalogue."""
    entries = yaml.safe_load(_data("models.yaml"))["models"]
    entry = next(entry for entry in entries if entry["name"] == name)
    return shape_of(entry["config"], name=name, sequence=entry["sequence"])


def shape_of(config: Mapping[str, Any], *, name: str, sequence: int) -> Shape:
    """A model by the fields of its Hugging Face config."""
    kind = config["model_type"]
    hidden = _first(config, "hidden_size", "n_embd", "d_model")
    heads = _first(config, "num_attention_heads", "n_head", "num_heads")
    blocks = _first(config, "num_hidden_layers", "n_layer", "num_layers")
    wide = config.get("ffn_dim") or config.get("intermediate_size") or config.get("d_ff") or config.get("d_inner")
    inner = heads * (config.get("d_kv") or config.get("head_dim") or hidden // heads)
    shared = config.get("num_key_value_heads") or heads
    gated = kind in ("llama", "mixtral") or str(config.get("feed_forward_proj", "")).startswith("gated")
    attention = 2 * hidden * inner + 2 * hidden * (inner * shared // heads)
    feedforward = (3 if gated else 2) * hidden * (wide or 4 * hidden) * config.get("num_local_experts", 1)
    table = config["vocab_size"] * config.get("word_embed_proj_dim", hidden)
    tied = table if config.get("tie_word_embeddings", kind not in ("llama", "mixtral")) else 0
    block = Piece(attention + feedforward, heads=shared)
    ends = (Piece(table), Piece(table, tied=tied))
    longest = _first(config, "max_position_embeddings", "n_positions", default=8192)
    if kind == "roberta":
        longest -= 2
    if kind == "t5":
        decoder = Piece(2 * attention + feedforward, heads=shared)
        middle = ([block] * blocks, Piece(table, tied=table), [decoder] * config.get("num_decoder_layers", blocks))
        pieces = (ends[0], *middle[0], middle[1], *middle[2], ends[1])
        return Shape(name, pieces, sequence, 1024, two_sided=True)
    return Shape(name, (ends[0], *[block] * blocks, ends[1]), sequence, longest)


def _first(config: Mapping[str, Any], *names: str, default: int = 0) -> int:
    return next((int(config[name]) for name in names if name in config), default)


def _number(text: str) -> float:
    match = re.match(r"[\d.]+", text)
    assert match is not None
    return float(match.group())


def _data(name: str) -> str:
    return resources.files("hulk").joinpath("data", name).read_text(encoding="utf-8")
