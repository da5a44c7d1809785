"""Latent attention (DeepSeek): queries, and keys with values, pass through narrow latents.

Units: elements, per sample. A token's key and value become one latent of `kv_rank`, beside `rotary` elements of the key
that all heads share; a query becomes a latent of `query_rank` where there is one. Latents are normed and multiplied up
to heads. Products to latents are narrow, so every tensor parallel rank does them whole (Megatron does the same); those
from latents to heads are split by heads.
"""

from __future__ import annotations

from hulk.cost.layers.attention import core, heads_first, output, rotary
from hulk.cost.layers.operations import norm, product
from hulk.cost.layers.part import Part, total
from hulk.domain.architecture import Architecture
from hulk.domain.model import Split


def latent_attention(architecture: Architecture, *, rows: int) -> Part:
    """Latent attention of `rows` tokens over themselves.

    Held, beside the input: both latents with their norms, Q, K and V of all heads (split), and the context.
    """
    query, values = architecture.query_width, architecture.value_width
    plain = query - architecture.heads * architecture.rotary  # of the keys: what is not rotated
    # The query's last parts and the shared key are joined to those that are not rotated: a read and a write of each.
    joined = Part(moved_split=2 * rows * 2 * query, kernels=3)
    return total(
        (
            _queries(architecture, rows),
            product(
                rows,
                architecture.hidden,
                architecture.kv_rank + architecture.rotary,
                split=Split.NONE,
                bias=architecture.qkv_bias,
                holds=False,
            ),
            norm(architecture, rows, width=architecture.kv_rank),
            product(rows, architecture.kv_rank, plain + values, split=Split.COLUMNS),
            rotary(architecture, rows=rows, keys=0),
            joined,
            heads_first(architecture, rows * (query + plain + values)),
            core(architecture, rows=rows, keys=rows),
            Part(held_split=rows * (2 * query + values)),
            output(architecture, rows=rows),
        )
    )


def _queries(architecture: Architecture, rows: int) -> Part:
    """From the hidden state to queries, which holds the hidden state for the keys' latent too."""
    hidden, width, rank = architecture.hidden, architecture.query_width, architecture.query_rank
    if not rank:
        return product(rows, hidden, width, split=Split.COLUMNS)
    down = product(rows, hidden, rank, split=Split.NONE, bias=architecture.qkv_bias)
    return down + norm(architecture, rows, width=rank) + product(rows, rank, width, split=Split.COLUMNS)
