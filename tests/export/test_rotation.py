"""How positions are rotated is said to every target that builds the model itself, or refused."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from export_scenes import hall

from hulk.errors import InfeasibleError, InputError
from hulk.export import TARGETS, Scene
from hulk.io.models import build_named_model

GRID = hall("tp2 pp2 dp2 mb1")
LLAMA = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WHOLE = LLAMA | {"original_max_position_embeddings": 8192}


def rotated(**fields: Any) -> Scene:
    config = {name: value for name, value in GRID.job.model.config.items() if not name.startswith("rope")} | fields
    return replace(GRID, job=replace(GRID.job, model=replace(GRID.job.model, config=MappingProxyType(config))))


def arguments(scene: Scene) -> list[str]:
    made = TARGETS.get("megatron").export(scene)["arguments.txt"].text.splitlines()
    first = made.index("--position-embedding-type")
    return made[first + 1 : made.index("--normalization")]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, ["--rotary-base", "10000"]),
        ({"rope_theta": 500000.0}, ["--rotary-base", "500000"]),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, ["--rotary-base", "1000000"]),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, ["--rotary-base", "500000"]),
        ({"rope_theta": 5e5, "rope_scaling": None}, ["--rotary-base", "500000"]),
        (
            {"rope_theta": 5e5, "rope_scaling": WHOLE},
            ["--rotary-base", "500000", "--use-rope-scaling", "--rope-scaling-factor", "8.0"],
        ),
        (
            {"rope_parameters": WHOLE | {"rope_theta": 5e5, "factor": 32.0}},
            ["--rotary-base", "500000", "--use-rope-scaling", "--rope-scaling-factor", "32.0"],
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 4.0}},
            ["--rotary-base", "10000", "--rotary-seq-len-interpolation-factor", "4"],
        ),
    ],
)
def test_megatron_is_told(fields: dict[str, Any], words: list[str]) -> None:
    assert arguments(rotated(**fields)) == ["rope", *words]


@pytest.mark.parametrize(
    ("target", "fields", "words"),
    [
        ("megatron", {"rope_theta": 10000.5}, "takes whole numbers"),
        ("megatron", {"rope_scaling": {"type": "linear", "factor": 1.5}}, "scales its rotations (linear, factor 1.5)"),
        ("megatron", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "scales its rotations (yarn)"),
        ("megatron", {"rope_scaling": WHOLE | {"high_freq_factor": 2.0}}, "high_freq_factor 2"),
        ("torchtitan", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "scales its rotations (linear, factor 2)"),
        ("megatron", {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "of several kinds"),
        ("torchtitan", {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "of several kinds"),
    ],
)
def test_what_cannot_be_said_is_refused(target: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InfeasibleError) as caught:
        TARGETS.get(target).export(rotated(**fields))
    assert str(caught.value).startswith(f"{target}: ") and words in str(caught.value)


@pytest.mark.parametrize(
    "fields", [{"rope_scaling": 4}, {"rope_scaling": {"type": "linear"}}, {"rope_parameters": {"rope_theta": "big"}}]
)
def test_nonsense_is_an_error(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        TARGETS.get("megatron").export(rotated(**fields))


def test_torchtitan_is_told() -> None:
    text = TARGETS.get("torchtitan").export(rotated(rope_theta=5e5, rope_scaling=LLAMA))["hulk_plan.py"].text
    found: dict[str, Any] = {}
    exec(text[text.index("ROTATION = ") : text.index("def plan")], found)
    assert found["ROTATION"] == {
        "theta": 500_000.0, "scaling": "llama", "scaling_factor": 8.0, "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "base", "factor"),
    [
        ("llama-3-8b", 500_000, None),
        ("llama-3-70b", 500_000, None),
        ("llama-3.2-1b", 500_000, 32.0),
        ("mixtral-8x7b", 1e6, None),
    ],
)
def test_models_of_the_catalogue_rotate_as_published(name: str, base: float, factor: float | None) -> None:
    from hulk.export.rotation import rotation_of

    found = rotation_of(replace(GRID, job=replace(GRID.job, model=build_named_model(name))))
    assert (found.base, found.numbers.get("factor")) == (base, factor)
