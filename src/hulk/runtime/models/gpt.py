"""GPT-2 and GPT-Neo."""

from __future__ import annotations

from typing import Any, ClassVar

from hulk.runtime.models.base import LayerModule, Local, Style, Styles, Tensors, positions, prepare_causal


class GptEmbedding(LayerModule):
    """Token and position embedding."""

    styles: ClassVar[Styles] = {"wte": Style.VOCABULARY}

    def __init__(self, core: Any) -> None:
        super().__init__()
        self.wte, self.wpe, self.drop = core.wte, core.wpe, core.drop

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Token ids to hidden states."""
        (ids,) = tensors
        return (self.drop(self.wte(ids) + self.wpe(positions(ids))),)


class Gpt2Block(LayerModule):
    """One GPT-2 block."""

    styles: ClassVar[Styles] = {
        "block.attn.c_attn": Style.FUSED,
        "block.attn.c_proj": Style.ROWS,
        "block.mlp.c_fc": Style.COLUMNS,
        "block.mlp.c_proj": Style.ROWS,
    }
    again = True

    def __init__(self, block: Any, config: Any) -> None:
        super().__init__()
        self.block, self.config = block, config

    def prepare(self, tensors: Tensors, local: Local) -> None:
        """The causal mask."""
        prepare_causal(tensors, local, self.config)

    def divide(self, ranks: int) -> None:
        """Queries, keys and values of this rank's heads."""
        self.block.attn.split_size //= ranks
        self.block.attn.num_heads //= ranks

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to hidden states."""
        return (self.block(tensors[0], attention_mask=local["mask"]),)


class GptNeoBlock(LayerModule):
    """One GPT-Neo block; its attention masks by itself, since half of the blocks only look back a window."""

    styles: ClassVar[Styles] = {
        "block.attn.attention.q_proj": Style.COLUMNS,
        "block.attn.attention.k_proj": Style.COLUMNS,
        "block.attn.attention.v_proj": Style.COLUMNS,
        "block.attn.attention.out_proj": Style.ROWS,
        "block.mlp.c_fc": Style.COLUMNS,
        "block.mlp.c_proj": Style.ROWS,
    }
    again = True

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def divide(self, ranks: int) -> None:
        """This rank's heads."""
        self.block.attn.attention.num_heads //= ranks

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to hidden states."""
        return (self.block(tensors[0])[0],)


class GptHead(LayerModule):
    """Final norm and output projection."""

    styles: ClassVar[Styles] = {"lm_head": Style.LOGITS}

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.ln_f, self.lm_head = model.transformer.ln_f, model.lm_head

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to logits."""
        return (self.lm_head(self.ln_f(tensors[0])),)


def gpt2_layers(model: Any) -> list[LayerModule]:
    """The layers of GPT2LMHeadModel."""
    core = model.transformer
    return [GptEmbedding(core), *(Gpt2Block(block, model.config) for block in core.h), GptHead(model)]


def gpt_neo_layers(model: Any) -> list[LayerModule]:
    """The layers of GPTNeoForCausalLM."""
    core = model.transformer
    return [GptEmbedding(core), *(GptNeoBlock(block) for block in core.h), GptHead(model)]
