"""What backward computes again of a layer, and what a layer keeps for it: the one home of recomputation."""

from __future__ import annotations

from dataclasses import replace

from hulk.domain.model import Layer, LayerKind, Split
from hulk.domain.options import Recompute

SAVED = 0.5
"""Share of the products with weights whose results are kept where operations are recomputed: every second one."""
_ATTENTION_KERNELS = 4


def again(layer: Layer, recompute: Recompute) -> Layer | None:
    """The part of a layer that backward computes again, as a layer; None: nothing. Only blocks are computed again."""
    if layer.kind is not LayerKind.BLOCK:
        return None
    match recompute:
        case Recompute.NONE:
            return None
        case Recompute.FULL:
            return layer
        case Recompute.ATTENTION:
            core = tuple(matmul for matmul in layer.matmuls if not matmul.weight)
            return replace(
                layer,
                matmuls=core,
                moved_split=0.0,
                moved_whole=0.0,
                spared_split=0.0,
                spared_whole=0.0,
                reductions=0,
                kernels=min(layer.kernels, _ATTENTION_KERNELS),
                spared_kernels=0,
            )
        case Recompute.OPERATIONS:
            # Attention's result is kept, and so are the sums over ranks.
            products = tuple(
                replace(matmul, rows=(1.0 - SAVED) * matmul.rows) for matmul in layer.matmuls if matmul.weight
            )
            return replace(layer, matmuls=products, reductions=0, scores=0.0, score_masks=0.0)


def kept_results(layer: Layer) -> tuple[float, float]:
    """Elements a sample (split over ranks, whole) of what is kept where operations are recomputed, besides the layer's
    input: every second product's result, and attention's."""
    split = whole = 0.0
    for matmul in layer.matmuls:
        size = matmul.rows * matmul.columns * matmul.batch
        if not matmul.weight:  # scores × values; what queries × keys gives is never kept
            split += size if matmul.columns < matmul.inner else 0.0
        elif matmul.split is Split.COLUMNS:
            split += SAVED * size
        else:
            whole += SAVED * size
    return split, whole
