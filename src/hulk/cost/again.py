"""What backward computes again of a layer, and what a layer keeps for it: the one home of recomputation."""

from __future__ import annotations

from dataclasses import replace

from hulk.domain.model import Layer, LayerKind, Model, Split
from hulk.domain.options import Recompute
from hulk.domain.plan import JobPlan

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
                experts=0,
            )
        case Recompute.OPERATIONS:
            # Attention's result is kept, and so are the sums over ranks.
            products = tuple(
                replace(matmul, rows=(1.0 - SAVED) * matmul.rows) for matmul in layer.matmuls if matmul.weight
            )
            return replace(layer, matmuls=products, reductions=0, scores=0.0, score_masks=0.0, keys=0.0)


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


def counted_results(layer: Layer) -> tuple[float, float]:
    """The same where products are counted one by one, as `hulk run` does: the first, the third and so on. Queries, keys
    and values may be one product or three; whatever keeps more is taken."""
    attention, _ = kept_results(replace(layer, matmuls=tuple(m for m in layer.matmuls if not m.weight)))
    found = []
    for joined in (True, False):
        kept = _in_turn(layer, joined=joined)[::2]
        split = sum(size for size, divided in kept if divided)
        found.append((attention + split, sum(size for size, divided in kept if not divided)))
    return max(found, key=sum)


def _in_turn(layer: Layer, *, joined: bool) -> list[tuple[float, bool]]:
    """Elements of the results of products with weights, one after the other, and whether ranks split them."""
    result: list[tuple[float, bool]] = []
    for i, matmul in enumerate(layer.matmuls):
        if not matmul.weight:
            continue
        divided = matmul.split is Split.COLUMNS
        each = matmul.rows * matmul.batch
        after = layer.matmuls[i + 1 :]
        out = next((m for m in after if m.weight and m.split is Split.INNER), None)
        if divided and out is not None and after[0] is out and matmul.columns == 2 * out.inner:  # a gate beside it
            result += [(each * out.inner, True)] * 2
        elif divided and not joined and not after[0].weight and out is not None and matmul.columns > out.inner:
            others = each * (matmul.columns - out.inner) / 2
            result += [(each * out.inner, True), (others, True), (others, True)]
        else:
            result.append((each * matmul.columns, divided))
    return result


def one_count(plan: JobPlan, model: Model) -> int | None:
    """The one number of blocks that every stage computes again, or all of its blocks where it has fewer; None: there is
    no such number."""
    blocks = [model.blocks(stage.first, stage.last) for stage in plan.stages]
    counts = [
        own if stage.recomputed is None else stage.recomputed for stage, own in zip(plan.stages, blocks, strict=True)
    ]
    most = max(counts)
    return most if counts == [min(most, own) for own in blocks] else None
