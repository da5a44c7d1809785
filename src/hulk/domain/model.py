"""A model as a list of layers, each with what it costs: the only view of a model that planning needs.

A layer is the smallest piece a pipeline can be cut at: the embedding, one transformer block, the head with the loss.
Amounts are per sample (one sequence) and in elements or FLOPs, so that precision, microbatch and tensor parallel come
in later, in `hulk.cost`. "split" amounts are divided by the tensor parallel degree, "whole" ones are on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import accumulate


class LayerKind(StrEnum):
    """What part of a model a layer is."""

    EMBEDDING = "embedding"
    BLOCK = "block"
    HEAD = "head"


class Split(StrEnum):
    """Which dimension of a product tensor parallelism divides."""

    COLUMNS = "columns"
    INNER = "inner"
    BATCH = "batch"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Matmul:
    """`batch` products of (rows × inner) by (inner × columns) for one sample, forward.

    With `weight`, the right side is a weight and the samples of a microbatch stack up as rows; without, each sample has
    its own products (attention), and they stack up as batch.
    """

    rows: float
    inner: int
    columns: int
    batch: int = 1
    weight: bool = True
    split: Split = Split.NONE

    @property
    def flops(self) -> float:
        """Multiplications and additions of the forward pass, one sample."""
        return 2.0 * self.rows * self.inner * self.columns * self.batch


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's cost, per sample where it depends on the batch.

    shape            layers of one model with equal `shape` cost the same
    params_split     parameters that tensor parallel divides
    params_whole     parameters on every tensor parallel rank (norms, biases of row-parallel products)
    tied             parameters (of the two above) shared with the model's first layer: counted once in the model,
                     but held by both when the two sit on different stages
    matmuls          the matrix products of the forward pass; the backward pass does twice their FLOPs
    moved_split/_whole  elements that the memory-bound operations of the forward pass read and write (norms,
                     activations, residuals, dropout, masks, softmax of the loss), attention's score matrix left out
    scores           elements of one attention score matrix over all heads (split): read and written several times, and
                     held for backward, unless attention is fused
    held_split/_whole   elements kept from forward to backward, the score matrix left out, the layer's input included
    mask_bytes       bytes of dropout masks kept for backward (whole)
    spared_*         of moved_*, held_* and kernels: what an engine does without that joins memory-bound operations into
                     few kernels (Megatron's, torch.compile's)
    score_masks      elements of `scores` that dropout keeps a mask of, one byte each; `scores` counts them as a quarter
    logits           elements of the head's logits (split); 0 elsewhere
    output           elements sent to the next layer
    reductions       tensor parallel all-reduces of `output`-sized tensors in forward (as many in backward)
    kernels          launches of the forward pass
    head_width       attention heads that tensor parallel must divide (0: no attention here)
    held_single      elements (split) kept beside `held_split` in 4-byte formats, whose fused attention knows no groups
    held_once        elements (split) kept once a microbatch, whatever its size (T5's position biases)
    moment_split/_whole  elements that the backward pass needs for a moment beside all that is held
    moment_once      the same once a microbatch: the gradient of the largest weight
    keys             elements (split) of the keys and values that attention reads; 0 where there is none, or one whose
                     sequence GPUs cannot share
    experts          experts beside each other (0: none), of which `expert_params` are of `params_split`
    visits           elements of the tokens that go to experts, each as often as it visits one
    expert_kernels   of `kernels`: those for each expert by itself
    own              the same layer as Hulk's own runtime has it: without dropout, norms one kernel each; None: no other
    """

    name: str
    kind: LayerKind
    shape: str
    params_split: int
    params_whole: int
    tied: int
    matmuls: tuple[Matmul, ...]
    moved_split: float
    moved_whole: float
    scores: float
    held_split: float
    held_whole: float
    mask_bytes: float
    output: float
    reductions: int
    kernels: int
    head_width: int = 0
    score_masks: float = 0.0
    logits: float = 0.0
    spared_split: float = 0.0
    spared_whole: float = 0.0
    spared_held_split: float = 0.0
    spared_held_whole: float = 0.0
    spared_kernels: int = 0
    held_single: float = 0.0
    held_once: float = 0.0
    moment_split: float = 0.0
    moment_whole: float = 0.0
    moment_once: float = 0.0
    keys: float = 0.0
    experts: int = 0
    expert_params: int = 0
    visits: float = 0.0
    expert_kernels: int = 0
    own: Layer | None = None

    def __hash__(self) -> int:
        """By a few of the fields, which tell nearly all layers apart: tables of prices ask for it all the time."""
        return hash((self.name, self.shape, self.params_split, self.moved_split, self.kernels))

    @property
    def params(self) -> int:
        """All parameters, tied ones included."""
        return self.params_split + self.params_whole

    @property
    def flops_forward(self) -> float:
        """FLOPs of the forward pass for one sample."""
        return sum(m.flops for m in self.matmuls)

    @property
    def flops_backward(self) -> float:
        """FLOPs of the backward pass for one sample: gradients of inputs and of weights."""
        return 2.0 * self.flops_forward

    @property
    def weights_share(self) -> float:
        """Share of the backward pass that makes gradients of weights, by FLOPs: as many as the forward products with
        weights have. An embedding makes no others; half where nothing is known of a layer's products."""
        if self.kind is LayerKind.EMBEDDING:
            return 1.0
        return sum(m.flops for m in self.matmuls if m.weight) / self.flops_backward if self.flops_forward else 0.5


@dataclass(frozen=True)
class Model:
    """A model cut into layers for one sequence length."""

    name: str
    family: str
    sequence: int
    layers: tuple[Layer, ...]
    source: str = ""
    config: Mapping[str, object] = field(default_factory=dict)

    @property
    def params(self) -> int:
        """Parameters, tied ones counted once."""
        return sum(layer.params - layer.tied for layer in self.layers)

    @cached_property
    def own_layers(self) -> tuple[Layer, ...]:
        """The layers as Hulk's own runtime has them."""
        return tuple(layer.own or layer for layer in self.layers)

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """What each layer is."""
        return tuple(layer.kind for layer in self.layers)

    @cached_property
    def blocks_before(self) -> tuple[int, ...]:
        """How many blocks are before each layer, and in all."""
        return tuple(accumulate((kind is LayerKind.BLOCK for kind in self.kinds), initial=0))

    def blocks(self, first: int, last: int) -> int:
        """How many of the layers `first` to `last`, both included, are blocks."""
        return self.blocks_before[last + 1] - self.blocks_before[first]

    @cached_property
    def context_parts(self) -> int:
        """In how many equal parts its sequence can be cut for GPUs that each take two of them, an early and a late one;
        1 where they cannot share it."""
        blocks = [layer for layer in self.layers if layer.kind is LayerKind.BLOCK]
        can = bool(blocks) and all(layer.keys > 0 for layer in blocks)
        return self.sequence // 2 if can and self.sequence % 2 == 0 else 1

    @cached_property
    def experts(self) -> int:
        """Experts that every block with some has; 0: none, or not as many in all."""
        counts = {layer.experts for layer in self.layers if layer.experts}
        return counts.pop() if len(counts) == 1 else 0

    @property
    def flops_per_sample(self) -> float:
        """Forward and backward FLOPs of one sequence."""
        return sum(layer.flops_forward + layer.flops_backward for layer in self.layers)
