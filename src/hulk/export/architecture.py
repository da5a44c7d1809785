"""The shape of a job's model, for targets that build it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hulk.domain.architecture import Architecture
from hulk.export.scene import Scene
from hulk.io.hf_config import architecture_from_config, text_part
from hulk.io.hf_fields import ACTIVATION, Fields


def architecture_of(scene: Scene) -> Architecture:
    """The architecture."""
    return architecture_from_config(scene.job.model.config, where=f"job {scene.job.name!r}")


def config_of(scene: Scene) -> Mapping[str, Any]:
    """The Hugging Face config of the language model."""
    return text_part(Fields(scene.job.model.config, f"job {scene.job.name!r}")).config


def activation_of(scene: Scene) -> str:
    """The name of the activation between the products of the feed-forward; where the config does not say, the one that
    gated and plain ones usually have."""
    config = config_of(scene)
    usual = "silu" if architecture_of(scene).gated else "gelu"
    return str(next((config[name] for name in ACTIVATION if config.get(name)), usual))
