"""Single operations as eager PyTorch runs them: matrix products, norms, dropout, residuals, activations.

Units: elements, per sample. "moved" counts each tensor once per kernel that reads or writes it.
"""

from __future__ import annotations

from hulk.cost.layers.part import NOTHING, Part
from hulk.domain.architecture import Architecture, Norm
from hulk.domain.model import Matmul, Split

# A dropout mask takes one byte an element. `Layer.mask_bytes` is for masks that every tensor parallel rank keeps whole;
# a mask that is split with its tensor is counted among the split elements instead, as this fraction of an element. It
# is exact for fp32 (1 byte of 4); for 2-byte precisions it counts half of the mask.
MASK_ELEMENTS = 0.25


def product(
    rows: float, inner: int, columns: int, *, split: Split, bias: bool = False, batch: int = 1, holds: bool = True
) -> Part:
    """A product with a weight of (inner × columns), `batch` of them side by side.

    Split over columns, the input is whole and the bias split with the output; split over the inner dimension, the
    input is split and the bias, added after the all-reduce, whole. The bias costs no traffic: the product's kernel
    adds it. Backward reads the input for the weight's gradient; `holds=False` where another operation already counts
    it."""
    weights = batch * inner * columns
    biases = batch * columns if bias else 0
    held = rows * inner * batch if holds else 0.0
    whole = split is Split.NONE
    return Part(
        params_split=(0 if whole else weights) + (biases if split is Split.COLUMNS else 0),
        params_whole=(weights if whole else 0) + (0 if split is Split.COLUMNS else biases),
        matmuls=(Matmul(rows=rows, inner=inner, columns=columns, batch=batch, split=split),),
        held_split=held if split is Split.INNER else 0.0,
        held_whole=0.0 if split is Split.INNER else held,
        kernels=1,
    )


def norm(architecture: Architecture, rows: float, *, width: int | None = None) -> Part:
    """A norm over the hidden width, or over another one.

    layer: one fused kernel, reads and writes (2); holds its input (mean and deviation are one number a row).
    rms:   made of pow (2), mean (1), times the reciprocal root (2), times the weight (2) = 7 in 6 kernels; holds its
           input and the normalised input, which the weight's gradient needs. A fused RMS norm holds 1 and moves 2 in 1.
    """
    width = architecture.hidden if width is None else width
    elements = rows * width
    params = 2 * width if architecture.norm is Norm.LAYER and architecture.norm_shift else width
    if architecture.norm is Norm.RMS and not architecture.fused:
        return Part(
            params_whole=params,
            held_whole=2 * elements,
            moved_whole=7 * elements,
            kernels=6,
            spared_whole=5 * elements,
            spared_held_whole=elements,
            spared_kernels=5,
        )
    return Part(params_whole=params, held_whole=elements, moved_whole=2 * elements, kernels=1)


def dropout(elements: float, probability: float) -> Part:
    """Dropout of a whole tensor: reads and writes it, keeps one byte an element, and nothing where it never drops."""
    if probability == 0.0:
        return NOTHING
    return Part(mask_bytes=elements, moved_whole=2 * elements, kernels=1)


def split_dropout(elements: float, probability: float) -> Part:
    """Dropout of a tensor that tensor parallel splits; its mask is split too (see `MASK_ELEMENTS`)."""
    if probability == 0.0:
        return NOTHING
    return Part(held_split=MASK_ELEMENTS * elements, moved_split=2 * elements, kernels=1)


def residual(elements: float) -> Part:
    """x + y: two reads and a write, nothing held."""
    return Part(moved_whole=3 * elements, kernels=1)


def activation(elements: float, *, holds: bool, split: bool = True) -> Part:
    """An elementwise activation as one kernel: a read and a write.

    `holds`: backward needs a tensor of this size that the next operation does not keep anyway: the input of gelu and
    silu, or the output of relu where dropout stands between it and the next product.
    """
    held = elements if holds else 0.0
    if split:
        return Part(held_split=held, moved_split=2 * elements, kernels=1)
    return Part(held_whole=held, moved_whole=2 * elements, kernels=1)


def split_norm(architecture: Architecture, elements: float, *, width: int) -> Part:
    """A norm of a tensor that tensor parallel splits by heads of that width, with one scale for all of them; `width` 0:
    without a scale, so that it is a kernel less and no gradient needs the normalised input."""
    whole = norm(architecture, elements, width=1)
    less = elements if not width and whole.kernels > 1 else 0.0
    return Part(
        params_whole=width,
        held_split=whole.held_whole - less,
        moved_split=whole.moved_whole - 2 * less,
        kernels=whole.kernels - (less > 0),
        spared_split=whole.spared_whole - 2 * less,
        spared_held_split=whole.spared_held_whole - less,
        spared_kernels=whole.spared_kernels - (less > 0),
    )


def sublayer(architecture: Architecture, rows: float, body: Part, *, second: bool = False) -> Part:
    """Norm, body, dropout, residual: half a block, `second` where it comes after the other half.

    Pre-norm runs norm-body-dropout-add, post-norm body-dropout-add-norm. Both hold the same amount: the norm's input
    and the body's input, which are the residual stream and the norm's output, in either order. Joined in one kernel,
    dropout and residual spare the tensor between them. The second half of a parallel block reads what the first one
    has counted as held: the block's input, or its norm.
    """
    elements = rows * architecture.hidden
    inner, outer = norm(architecture, rows), norm(architecture, rows) if architecture.outer_norm else NOTHING
    if second and architecture.parallel:
        inner = (NOTHING if architecture.shared_norm else inner) + Part(held_whole=-elements)
    drops = dropout(elements, architecture.hidden_dropout)
    joined = Part(spared_whole=2 * elements, spared_kernels=1) if architecture.hidden_dropout else NOTHING
    return inner + body + outer + drops + residual(elements) + joined
