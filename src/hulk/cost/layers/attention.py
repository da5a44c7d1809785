"""Attention: projections, the product of queries and keys, and of its softmax with values.

Units: elements, per sample. With s = sequence, a = heads, d = head width (a·d = hidden in most models) a plain
self-attention holds, beside its input: Q, K, V and the context (4·s·a·d, split) and the softmax's output (a·s²,
`scores`).
"""

from __future__ import annotations

from hulk.cost.layers.operations import MASK_ELEMENTS, product, split_norm
from hulk.cost.layers.part import NOTHING, Part, total
from hulk.domain.architecture import Architecture, Family, HeadNorm, Position
from hulk.domain.model import Matmul, Split

# Rotary embedding x·cos + rotate(x)·sin, per element of x: product (2), negate half (1), concatenate (2), product (2),
# add (3) = 10 in 5 kernels. It holds nothing of its own: backward needs only cos and sin, which are one small table for
# the whole model, and the products keep the rotated Q and K instead of the plain ones.
ROTARY_MOVED, ROTARY_KERNELS = 10, 5

BIAS_MOVED = 3
"""Passes over T5's biases, one for every sample, head and pair of positions, in Hulk's own runtime: read, written as a
gradient, read again to add them up."""

SEGMENTS = 2
"""Rows of XLNet's segment table: same segment, other segment."""


def attention(architecture: Architecture, *, rows: int, keys: int, cross: bool = False) -> Part:
    """Attention of `rows` queries over `keys` positions; `cross`: keys and values come from the encoder's output.

    Q, K and V are one product in self-attention (Megatron's), Q and K with V two in cross-attention. Cross-attention
    holds the encoder's output too; blocks on one stage share that tensor, so this counts it once too often for all but
    one.
    """
    hidden, query, kv = architecture.hidden, architecture.query_width, architecture.kv_width
    bias = architecture.qkv_bias
    if cross:
        projections = product(rows, hidden, query, split=Split.COLUMNS, bias=bias)
        projections += product(keys, hidden, 2 * kv, split=Split.COLUMNS, bias=bias)
    else:
        projections = product(rows, hidden, query + 2 * kv, split=Split.COLUMNS, bias=bias)
    return total(
        (
            projections,
            _head_norms(architecture, rows=rows, keys=keys),
            rotary(architecture, rows=rows, keys=keys),
            _repeat_kv(architecture, keys=keys),
            heads_first(architecture, rows * query + 2 * keys * kv),
            _spared_copies(architecture, rows * query + 2 * keys * kv),
            core(architecture, rows=rows, keys=keys),
            # The core reads Q, K and V again in backward. K and V stay at their own width; with grouped queries they
            # are repeated at the queries' where no fused kernel takes groups. (Eager attention does that too, which is
            # at most 2·d/s of the score matrix and not counted.)
            Part(held_split=rows * query + 2 * keys * kv, held_single=2 * keys * (query - kv)),
            output(architecture, rows=rows),
        )
    )


def shared_keys(architecture: Architecture, *, rows: int) -> float:
    """Keys and values of a sequence whose tokens GPUs share: each then needs those of the others. 0 where they cannot:
    a decoder behind an encoder reads two sequences, and biases of T5, ALiBi and XLNet belong to pairs of positions,
    which kernels that take keys part by part do not add (Transformer Engine's, torch's)."""
    biased = architecture.position in (Position.BUCKETS, Position.RELATIVE, Position.ALIBI)
    if biased or architecture.family is Family.ENCODER_DECODER:
        return 0.0
    if architecture.kv_rank:
        return float(rows * (architecture.query_width + architecture.value_width))
    return 2.0 * rows * architecture.kv_width


def bias_table(architecture: Architecture) -> Part:
    """T5's bias per bucket and head, in the first block of a stack. Later blocks reuse the bias computed from it; on
    another stage it is computed again, from a table too small to count there. About a dozen small kernels find the
    buckets."""
    if architecture.position is not Position.BUCKETS:
        return NOTHING
    return Part(params_split=architecture.relative_buckets * architecture.heads, kernels=12)


def bias_held(architecture: Architecture, *, rows: int) -> float:
    """T5's biases, once for all samples: one for every head and pair of positions."""
    return architecture.heads * rows * rows if architecture.position is Position.BUCKETS else 0.0


def relative_attention(architecture: Architecture, *, rows: int) -> Part:
    """XLNet's attention (one stream, as XLNetLMHeadModel trains without a target mapping).

    scores = (q + r_w_bias)·k + shift((q + r_r_bias)·r) + segments((q + r_s_bias)·seg_embed), where r projects a
    sinusoid of 2·s rows (distances from s down to 1 - s).
    Held, split: three biased queries, K, V (5·s·h), r (2·s·h), context (1·s·h). The sinusoid is held by the embedding.
    `Matmul` takes backward for twice forward; r's product and the last one below need no gradient of their left side,
    so for XLNet that counts their FLOPs once too often.
    """
    hidden, width, heads, head_dim = (
        architecture.hidden,
        architecture.query_width,
        architecture.heads,
        architecture.head_dim,
    )
    score = heads * rows * rows
    biases = Part(
        params_split=(3 + SEGMENTS) * width,
        held_split=3 * rows * width,
        moved_split=3 * 2 * rows * width,
        kernels=3,
    )
    positions = Part(
        matmuls=(Matmul(rows=rows, inner=head_dim, columns=2 * rows, batch=heads, weight=False, split=Split.BATCH),),
        # The matrix is twice as wide as the scores: copied to shift it (2·2), its left half selected (2), added (3).
        # This traffic is counted here and not as `scores`, because no fused attention spares it.
        moved_split=9 * score,
        held_split=2 * rows * width,
        kernels=5,
    )
    segments = Part(
        matmuls=(
            Matmul(rows=rows, inner=head_dim, columns=SEGMENTS, batch=heads, weight=False, split=Split.BATCH),
            Matmul(rows=rows, inner=SEGMENTS, columns=heads, batch=rows, weight=False, split=Split.COLUMNS),
        ),
        moved_split=3 * score,
        kernels=3,
    )
    return total(
        (
            product(rows, hidden, 3 * width, split=Split.COLUMNS),
            product(2 * rows, hidden, width, split=Split.COLUMNS, holds=False),
            biases,
            positions,
            segments,
            heads_first(architecture, 5 * rows * width),
            core(architecture, rows=rows, keys=rows),
            Part(held_split=2 * rows * width),
            output(architecture, rows=rows),
        )
    )


def core(architecture: Architecture, *, rows: int, keys: int) -> Part:
    """Scores, mask, softmax, dropout, context.

    `scores` is what eager attention holds, in elements: one matrix of heads × rows × keys, the softmax's output. With
    attention dropout the dropped-out copy is held too, and the mask of 1 byte: 1 + 1 + 0.25 matrices (see
    `MASK_ELEMENTS`); where tanh limits the scores, its output.
    """
    heads, head_dim = architecture.heads, architecture.head_dim
    drops = architecture.attention_dropout > 0.0
    matrices = (2.0 + MASK_ELEMENTS if drops else 1.0) + architecture.score_cap
    values = architecture.value_dim or head_dim
    biased = architecture.position in (Position.BUCKETS, Position.ALIBI)
    # A kernel that takes T5's biases writes their gradient for every sample, which is then added up.
    biases = heads * rows * keys if architecture.fused and architecture.position is Position.BUCKETS else 0
    return Part(
        moved_split=BIAS_MOVED * biases,
        matmuls=(
            Matmul(rows=rows, inner=head_dim, columns=keys, batch=heads, weight=False, split=Split.BATCH),
            Matmul(rows=rows, inner=keys, columns=values, batch=heads, weight=False, split=Split.BATCH),
        ),
        params_split=heads if architecture.sinks else 0,
        scores=matrices * heads * rows * keys,
        score_masks=heads * rows * keys if drops else 0.0,
        # two products, scale, mask, softmax; a bias; divide, tanh, multiply; join the sinks, drop them; dropout
        kernels=1 if architecture.fused else 5 + biased + 3 * architecture.score_cap + 2 * architecture.sinks + drops,
    )


def output(architecture: Architecture, *, rows: int) -> Part:
    """The context back to token order (a copy, 2), and its projection, which holds it."""
    width = architecture.value_width
    projection = product(rows, width, architecture.hidden, split=Split.INNER, bias=architecture.out_bias)
    return heads_first(architecture, rows * width, kernels=1) + projection


def heads_first(architecture: Architecture, elements: float, *, kernels: int = 3) -> Part:
    """Copies that bring tensors from token order to head order or back: a read and a write."""
    if architecture.fused:
        return NOTHING
    return Part(moved_split=2 * elements, kernels=kernels)


def _spared_copies(architecture: Architecture, elements: float) -> Part:
    """Attention kernels that read Q, K and V where the projection wrote them need no copies."""
    return NOTHING if architecture.fused else Part(spared_split=2 * elements, spared_kernels=3)


def _head_norms(architecture: Architecture, *, rows: int, keys: int) -> Part:
    """A norm over each head of the queries and of the keys."""
    if architecture.head_norm is HeadNorm.NONE:
        return NOTHING
    width = architecture.head_dim if architecture.head_norm is HeadNorm.SCALED else 0
    queries = split_norm(architecture, rows * architecture.query_width, width=width)
    return queries + split_norm(architecture, keys * architecture.kv_width, width=width)


def rotary(architecture: Architecture, *, rows: int, keys: int) -> Part:
    """Heads rotated by their positions."""
    if architecture.position is not Position.ROTARY:
        return NOTHING
    share = (architecture.rotary or architecture.head_dim) / architecture.head_dim
    elements = share * (rows * architecture.query_width + keys * architecture.kv_width)
    return Part(
        moved_split=ROTARY_MOVED * elements,
        kernels=2 * ROTARY_KERNELS,
        spared_split=(ROTARY_MOVED - 2) * elements,  # one kernel reads and writes
        spared_kernels=2 * (ROTARY_KERNELS - 1),
    )


def _repeat_kv(architecture: Architecture, *, keys: int) -> Part:
    """Grouped-query attention: K and V, each read at their width and written at the queries'."""
    if architecture.kv_heads == architecture.heads:
        return NOTHING
    moved = 2 * keys * (architecture.kv_width + architecture.query_width)
    return Part(moved_split=moved, kernels=2, spared_split=moved, spared_kernels=2)
