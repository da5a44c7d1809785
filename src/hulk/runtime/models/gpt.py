"""GPT-2 and GPT-Neo."""

from __future__ import annotations

from typing import Any, ClassVar

from hulk.runtime.models.base import (
    CausalBlock,
    LayerModule,
    Local,
    NormHead,
    Style,
    Styles,
    Tensors,
)
from hulk.runtime.models.lean import attention_named, kept, writes_scores


class GptEmbedding(LayerModule):
    """Token and position embedding."""

    styles: ClassVar[Styles] = {"wte": Style.VOCABULARY}

    def __init__(self, core: Any) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = core.wte, core.wpe, core.drop

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Token ids to hidden states."""
        (ids,) = tensors
        return (self.drop(self.wte(ids) + self.wpe(self.positions(ids.shape[1], ids))),)


class Gpt2Block(CausalBlock):
    """One GPT-2 block."""

    styles: ClassVar[Styles] = {
        "block.attn.c_attn": Style.FUSED,
        "block.attn.c_proj": Style.ROWS,
        "block.mlp.c_fc": Style.COLUMNS,
        "block.mlp.c_proj": Style.ROWS,
    }
    gathers = ("block.attn", "block.mlp")

    def divide(self, ranks: int) -> None:
        """Queries, keys and values of this rank's heads."""
        self.block.attn.split_size //= ranks
        self.block.attn.num_heads //= ranks


class GptNeoBlock(LayerModule):
    """One GPT-Neo block; half of the blocks only look back a window. Its scores are not scaled."""

    styles: ClassVar[Styles] = {
        "block.attn.attention.q_proj": Style.COLUMNS,
        "block.attn.attention.k_proj": Style.COLUMNS,
        "block.attn.attention.v_proj": Style.COLUMNS,
        "block.attn.attention.out_proj": Style.ROWS,
        "block.mlp.c_fc": Style.COLUMNS,
        "block.mlp.c_proj": Style.ROWS,
    }
    again = True
    gathers = ("block.mlp",)
    unused = ("bias",)  # a mask of the longest sequence; here the blocks of a stage share one

    def __init__(self, block: Any, config: Any) -> None:
        super().__init__()
        self.block, self.eager = block, writes_scores(config._attn_implementation)
        self.attend = attention_named(config._attn_implementation)
        attention = block.attn.attention
        self.window = config.window_size if attention.attention_type == "local" else None

    @property
    def _mask_name(self) -> str:
        return "mask" if self.window is None else f"mask of {self.window}"

    def prepare(self, tensors: Tensors, local: Local) -> None:
        """The mask of this block's kind; fused attention knows the plain causal one by itself."""
        if self._mask_name in local:
            return
        length = self.length(tensors[0])
        if self.window is None:
            local["mask"] = self.mask(length, tensors[0]) if self.eager else None
        elif self.eager or self.window < length * (1 if self.parts is None else self.parts.count):
            local[self._mask_name] = self.mask(length, tensors[0], self.window)
        else:
            local[self._mask_name] = None

    def keep(self) -> None:
        """See `LayerModule`; this block calls attention itself."""
        super().keep()
        self.attend = kept(self.attend)

    def divide(self, ranks: int) -> None:
        """This rank's heads."""
        self.block.attn.attention.num_heads //= ranks

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to hidden states."""
        hidden, block = tensors[0], self.block
        attention = block.attn.attention
        normed, mask = self.gathered(block.ln_1(hidden)), local[self._mask_name]
        shape = (*normed.shape[:2], attention.num_heads, attention.head_dim)
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        query, key, value = (part(normed).view(shape).transpose(1, 2) for part in parts)
        drop = attention.attn_dropout.p if attention.training else 0.0
        causal = mask is None
        mixed = self.attend(query, key, value, mask=mask, causal=causal, dropout=drop, scale=1.0, parts=self.parts)
        joined = mixed.transpose(1, 2).reshape(*normed.shape[:2], -1)
        hidden = hidden + attention.resid_dropout(attention.out_proj(joined))
        return (hidden + block.mlp(block.ln_2(hidden)),)


def gpt2_layers(model: Any) -> list[LayerModule]:
    """The layers of GPT2LMHeadModel."""
    return _layers(model, Gpt2Block)


def gpt_neo_layers(model: Any) -> list[LayerModule]:
    """The layers of GPTNeoForCausalLM."""
    return _layers(model, GptNeoBlock)


def _layers(model: Any, kind: type[Gpt2Block | GptNeoBlock]) -> list[LayerModule]:
    core = model.transformer
    blocks = (kind(block, model.config) for block in core.h)
    return [GptEmbedding(core), *blocks, NormHead(core.ln_f, model.lm_head)]
