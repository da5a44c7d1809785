"""Operations that keep little: one kernel each, with nothing in between that backward would have to hold.

transformers composes RMS norms and the tanh form of gelu of several operations, in fp32, each of which keeps its input;
its fused attention has kernels for some cases only. What is here computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from hulk.cost.memory import PADDED
from hulk.runtime.again import forgetful
from hulk.runtime.parts import Parts

EAGER = "eager"
"""transformers' own attention, with the score matrix in memory."""
FUSED, FUSED_AGAIN = "hulk-fused", "hulk-fused-again"
WEIGHED, WEIGHED_AGAIN = "hulk-weighed", "hulk-weighed-again"
"""The names of this module's attention among transformers' own: without a score matrix in memory, the same computed
again in backward; with a score matrix, and with one that is computed again."""
PARTS = "hulk_parts"
"""The attribute of a module that says who shares sequences with it (`hulk.runtime.parts`)."""
KEPT = "hulk_kept"
"""The attribute of a module whose attention is not computed again where that of others is."""
_KEYS = 2  # the dimension of tokens in what attention is given
_RMS_NORMS = ("LlamaRMSNorm", "T5LayerNorm")
_TANH_GELUS = ("NewGELUActivation", "FastGELUActivation", "GELUTanh", "PytorchGELUTanh")


def lighten(model: nn.Module) -> None:
    """Put torch's own RMS norm and gelu in the place of composed ones; the parameters stay the same objects."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            kind = type(child).__name__
            if kind in _RMS_NORMS:
                weight, eps = child.weight, float(child.variance_epsilon)  # type: ignore[arg-type]
                norm = nn.RMSNorm(weight.shape[0], eps=eps, device="meta")  # type: ignore[index]
                norm.weight = weight  # type: ignore[assignment]
                setattr(module, name, norm)
            elif kind in _TANH_GELUS:
                setattr(module, name, nn.GELU(approximate="tanh"))


def project(head: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """The output projection. A GPU would take two to four times as long for 16-bit products of sizes that are no
    multiple of 8; so there some logits are added that no token has, of probability 0."""
    weight, bias = head.weight, head.bias
    assert isinstance(weight, torch.Tensor)
    more = -weight.shape[0] % PADDED
    if not more or not weight.is_cuda or weight.dtype is torch.float32 or isinstance(weight, DTensor):
        result: torch.Tensor = head(hidden)
        return result
    floor = torch.finfo(weight.dtype).min
    plain = bias if isinstance(bias, torch.Tensor) else weight.new_zeros(weight.shape[0])
    return nn.functional.linear(
        hidden, nn.functional.pad(weight, (0, 0, 0, more)), nn.functional.pad(plain, (0, more), value=floor)
    )


def register() -> None:
    """Make this module's attention known to transformers, whose blocks call theirs by name."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for name in (FUSED, FUSED_AGAIN, WEIGHED, WEIGHED_AGAIN):
        ALL_ATTENTION_FUNCTIONS.register(name, _for_transformers(attention_named(name)))


def writes_scores(name: str) -> bool:
    """Whether the attention of that name has a score matrix in memory, to which a mask must be added."""
    return name in (EAGER, WEIGHED, WEIGHED_AGAIN)


def attention_named(name: str) -> Callable[..., torch.Tensor]:
    """`fused` or `weighed`, computed again in backward or not."""
    plain = weighed if writes_scores(name) else fused
    return plain if name in (EAGER, WEIGHED, FUSED) else partial(_again, plain)


def kept(attention: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same attention, not computed again in backward."""
    if isinstance(attention, partial) and attention.func is _again:
        plain: Callable[..., torch.Tensor] = attention.args[0]
        return plain
    return attention


def _again(
    attention: Callable[..., torch.Tensor], *given: torch.Tensor, dropout: float = 0.0, **options: Any
) -> torch.Tensor:
    result: torch.Tensor = forgetful(partial(attention, dropout=dropout, **options), *given, draws=dropout > 0.0)
    return result


def _for_transformers(attention: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, None]]:
    """Attention in the form that transformers asks for: the result is (batch, tokens, heads, width)."""
    alone = kept(attention)

    def called(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
        result = (alone if getattr(module, KEPT, False) else attention)(
            query,
            key,
            value,
            mask=attention_mask,
            causal=causal and attention_mask is None and query.shape[2] > 1,
            dropout=dropout,
            scale=scaling,
            parts=getattr(module, PARTS, None),
        )
        return result.transpose(1, 2).contiguous(), None

    return called


def fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
    parts: Parts | None = None,
) -> torch.Tensor:
    """Attention without a score matrix in memory; all of shape (batch, heads, tokens, width). `mask` is added to the
    scores and may have a gradient. `parts`: who has the keys and values of a sequence's other tokens."""
    if parts is not None:
        key, value = parts.gathered(key, _KEYS), parts.gathered(value, _KEYS)
        if causal:
            return _causal_parts(query, key, value, parts, dropout=dropout, scale=scale)
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and (mask is not None or query.dtype is torch.float32):
        # torch's kernels of these cases know no groups; it would keep the scores instead.
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        groups = 1
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=groups > 1
    )


def _causal_parts(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, parts: Parts, *, dropout: float, scale: float | None
) -> torch.Tensor:
    """A rank's early and late queries, each over the keys up to its own."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    half = query.shape[_KEYS] // 2
    mixed = []
    for piece, asking in zip(parts.pieces(), query.chunk(2, _KEYS), strict=True):
        seen = (piece + 1) * half
        mixed.append(
            scaled_dot_product_attention(
                asking,
                key.narrow(_KEYS, 0, seen),
                value.narrow(_KEYS, 0, seen),
                attn_mask=_up_to_own(half, seen, query),
                dropout_p=dropout,
                scale=scale,
            )
        )
    return torch.cat(mixed, _KEYS)


def _up_to_own(queries: int, keys: int, like: torch.Tensor) -> torch.Tensor:
    """Which keys the last `queries` of as many tokens as there are keys may see. A GPU's kernels know that without a
    mask in memory; what watches operations to recompute them cannot take such a word."""
    if like.is_cuda and not is_in_torch_dispatch_mode():
        bias: torch.Tensor = causal_lower_right(queries, keys)
        return bias
    return torch.ones(queries, keys, dtype=torch.bool, device=like.device).tril(keys - queries)


def weighed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
    parts: Parts | None = None,
) -> torch.Tensor:
    """The same with the score matrix in memory, and in fp32 where it is weighed. What is causal comes with a mask that
    says so."""
    del causal
    if parts is not None:
        key, value = parts.gathered(key, _KEYS), parts.gathered(value, _KEYS)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scores = torch.matmul(query, key.transpose(-1, -2)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return torch.matmul(nn.functional.dropout(weights, dropout, training=dropout > 0.0), value)
