"""Checked reading of the fields of a Hugging Face config: what several model types call the same thing, and which
values can be meant. Everything wrong is an InputError."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hulk.errors import InputError, nearest

LARGEST_COUNT = 10_000_000
"""Far above any width or vocabulary there is; keeps a typing error from becoming a plan."""
MOST_LAYERS = 10_000
"""A model of more blocks than this is a typing error too."""

# What several model types call the same thing.
HIDDEN = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
HEADS = ("num_attention_heads", "n_head", "num_heads")
FFN = ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "d_inner")
POSITIONS = ("max_position_embeddings", "n_positions")
ACTIVATION = ("hidden_act", "activation_function", "ff_activation", "hidden_activation")

# Kinds of blocks that mix tokens by attention, as configs name them.
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention")

# Whether the backward pass of the activation needs its input, or makes do with its output.
_KEEPS_INPUT = {
    "relu": False,
    "gelu": True,
    "gelu_new": True,
    "gelu_fast": True,
    "gelu_python": True,
    "gelu_pytorch_tanh": True,
    "quick_gelu": True,
    "silu": True,
    "swish": True,
}


@dataclass(frozen=True)
class Fields:
    """Checked reading of a config's fields. Names are alternatives: the first that is there (and not null) counts."""

    config: Mapping[str, object]
    where: str

    def _find(self, names: tuple[str, ...]) -> tuple[str, object]:
        """The first name that has a value, and the value; the first name and None where none has."""
        found = ((name, self.config[name]) for name in names if self.config.get(name) is not None)
        return next(found, (names[0], None))

    def _wrong(self, name: str, value: object, expected: str) -> InputError:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        return InputError(f"{name} is {shown}; expected {expected}", where=self.where)

    def count(self, *names: str, default: int | None = None, least: int = 1, most: int = LARGEST_COUNT) -> int:
        """A whole number of `least` to `most`; required unless there is a default."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                others = " or ".join(names[1:])
                raise InputError(f"{name} is missing", where=self.where, hint=f"or {others}" if others else None)
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, value, f"a whole number from {least} to {most}")
        return value

    def probability(self, *names: str, default: float) -> float:
        """A dropout probability, 0 ≤ p < 1."""
        name, value = self._find(names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 <= value < 1:
            raise self._wrong(name, value, "a probability from 0 to below 1")
        return float(value)

    def fraction(self, *names: str, default: float) -> float:
        """A share of a whole, 0 < f ≤ 1."""
        name, value = self._find(names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise self._wrong(name, value, "a number above 0, at most 1")
        return float(value)

    def number(self, name: str) -> float | None:
        """A number above 0, or null."""
        value = self.config.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self._wrong(name, value, "a number above 0, or null")
        return float(value)

    def numbers(self, name: str, *, most: int) -> tuple[int, ...] | None:
        """A list of whole numbers from 0 to `most`; None where there is none."""
        value = self.config.get(name)
        if value is None:
            return None
        listed = value if isinstance(value, list | tuple) else (None,)
        if len(listed) > MOST_LAYERS or not all(type(each) is int and 0 <= each <= most for each in listed):
            raise self._wrong(name, value, f"a list of at most {MOST_LAYERS} whole numbers from 0 to {most}")
        return tuple(listed)

    def inner(self, name: str) -> Fields:
        """The fields of an object within this one; none where it is not there."""
        value = self.config.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong(name, value, "an object with fields")
        return Fields(value or {}, f"{self.where}: {name}")

    def flag(self, name: str, *, default: bool) -> bool:
        """true or false."""
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        """A string; required unless there is a default."""
        name, value = self._find(names)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name, value, "a name")
        return value

    def keeps_input(self, activation: str) -> bool:
        """Whether that activation's backward needs its input."""
        if activation not in _KEEPS_INPUT:
            hint = nearest(activation, _KEEPS_INPUT)
            raise InputError(f"unknown activation {activation!r}", where=self.where, hint=hint)
        return _KEEPS_INPUT[activation]

    def must_be(self, name: str, expected: bool) -> None:
        """Refuse a variant whose costs are not known here."""
        if self.flag(name, default=expected) is not expected:
            raise InputError(f"models with {name}: {str(not expected).lower()} are not supported", where=self.where)

    def must_count(self, name: str, expected: int) -> None:
        """Refuse a variant with another number of something than the costs here are for."""
        if self.count(name, default=expected, least=0) != expected:
            raise InputError(f"only models with {name}: {expected} are supported", where=self.where)

    def must_attend(self) -> None:
        """Refuse blocks that mix tokens by something else than attention over all of them or a window."""
        value = self.config.get("layer_types")
        if value is None:
            return
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self._wrong("layer_types", value, "a list of names")
        unknown = next((each for each in value if each not in _ATTENTION), None)
        if unknown is not None:
            known = ", ".join(_ATTENTION)
            raise InputError(f"layer_types has {unknown[:40]!r}, which is not supported", where=self.where, hint=known)

    def head_dim(self, *names: str, hidden: int | None = None, heads: int | None = None) -> int:
        """The width of a head: given, or hidden / heads."""
        given = self.count(*names, default=0) if names else 0
        if given:
            return given
        hidden, heads = hidden or self.count(*HIDDEN), heads or self.count(*HEADS)
        if hidden % heads:
            raise InputError(f"hidden width {hidden} is not a multiple of its {heads} heads", where=self.where)
        return hidden // heads
