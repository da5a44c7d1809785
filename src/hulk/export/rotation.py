"""How a model rotates positions, from its Hugging Face config: fields of older configs (`rope_theta`, `rope_scaling`)
and of newer ones (`rope_parameters`) alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hulk.errors import InputError
from hulk.export.architecture import config_of
from hulk.export.scene import Scene

PLAIN, LINEAR, LLAMA = "default", "linear", "llama3"
"""Kinds of scaling that some target has a word for."""
_USUAL = 10_000.0
_OWN_USUAL = {"mixtral": 1_000_000.0}  # of model types whose base is another where their config says none
_NUMBERS: dict[str, float | None] = {
    "factor": None,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192.0,
}
"""What the kinds above have besides their name, with what transformers takes where nothing is said."""


@dataclass(frozen=True)
class Rotation:
    """The base of the frequencies, and how they are scaled for longer sequences: its kind and its numbers."""

    base: float = _USUAL
    kind: str = PLAIN
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The scaling in words."""
        return ", ".join([self.kind, *(f"{name} {value:g}" for name, value in self.numbers.items())])


def rotation_of(scene: Scene) -> Rotation:
    """The rotation of a job's model. InputError where its config contradicts itself or is not understood."""
    config, where = config_of(scene), f"job {scene.job.name!r}"
    said = {**_fields(config, "rope_scaling", where), **_fields(config, "rope_parameters", where)}
    if any(isinstance(value, Mapping) for value in said.values()):
        return Rotation(kind="of several kinds")
    theta = said.get("rope_theta", config.get("rope_theta"))
    usual = _OWN_USUAL.get(str(config.get("model_type")), _USUAL)
    base = usual if theta is None else _number(theta, "rope_theta", where)
    kind = str(said.get("rope_type") or said.get("type") or PLAIN)
    if kind not in (LINEAR, LLAMA):
        return Rotation(base, kind)
    taken = _NUMBERS if kind == LLAMA else {"factor": None}
    return Rotation(base, kind, {name: _number(said.get(name, one), name, where) for name, one in taken.items()})


def _fields(config: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    found = config.get(name)
    if found is not None and not isinstance(found, Mapping):
        raise InputError(f"{name} is {found!r:.40}; expected fields with values", where=where)
    return found or {}


def _number(value: object, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise InputError(f"{name} is {value!r:.40}; expected a number above 0", where=where)
    return float(value)
