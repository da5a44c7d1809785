"""What one GPU does of a layer where GPUs share sequences or experts, and what travels between them for it.

Context parallelism: each of c GPUs has a c-th of a sequence's tokens, an early and a late part of them, so that all
have as much attention to compute. Everything but weights is divided by c. Keys and values of all tokens must reach
every one of them (`Keys`).

Expert parallelism: each of e GPUs has an e-th of a layer's experts. Tokens go to the experts they visit and come back,
forward and backward, all to all; an expert then sees the tokens of e GPUs. Tokens are taken to spread evenly.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from hulk.domain.model import Layer, Matmul

TRIPS = 2
"""A token's way to an expert and back."""


class Keys(StrEnum):
    """How keys and values reach the GPUs that share a sequence.

    around    in a ring, part by part, while attention computes with the part before; backward sends them round again,
              and their gradients with them
    again     gathered before attention, and once more in backward, which adds up their gradients
    kept      gathered before attention and held for backward, which adds up their gradients
    """

    AROUND = "around"
    AGAIN = "again"
    KEPT = "kept"


BACKWARD_TRIPS = {Keys.AROUND: 2, Keys.AGAIN: 2, Keys.KEPT: 1}
"""How often backward moves as much as forward does."""


def of_one_gpu(layer: Layer, *, context: int = 1, expert: int = 1) -> Layer:
    """A layer as one of `context` GPUs has it that share a sequence, and of `expert` GPUs that split experts. `keys`
    stay those of the whole sequence."""
    if expert > 1 and layer.experts:
        layer = _some_experts(layer, expert)
    if context == 1:
        return layer
    amounts = (
        "moved_split", "moved_whole", "scores", "held_split", "held_whole", "mask_bytes", "output", "score_masks",
        "logits", "spared_split", "spared_whole", "spared_held_split", "spared_held_whole", "held_single",
        "moment_split", "moment_whole", "visits",
    )  # fmt: skip
    return replace(
        layer,
        matmuls=tuple(replace(matmul, rows=matmul.rows / context) for matmul in layer.matmuls),
        own=None if layer.own is None else of_one_gpu(layer.own, context=context),
        **{name: getattr(layer, name) / context for name in amounts},
    )


def _some_experts(layer: Layer, expert: int) -> Layer:
    """The same tokens in all, but those of more GPUs for fewer experts."""

    def fewer(matmul: Matmul) -> Matmul:
        if not matmul.weight or matmul.batch != layer.experts:
            return matmul
        return replace(matmul, rows=matmul.rows * expert, batch=matmul.batch // expert)

    return replace(
        layer,
        matmuls=tuple(map(fewer, layer.matmuls)),
        params_split=layer.params_split - experts_elsewhere(layer, expert),
        kernels=layer.kernels - layer.expert_kernels + layer.expert_kernels // expert,
        own=None if layer.own is None else _some_experts(layer.own, expert),
    )


def experts_elsewhere(layer: Layer, expert: int) -> int:
    """Parameters of a layer's experts that the other GPUs have which split them."""
    return layer.expert_params - layer.expert_params // expert
