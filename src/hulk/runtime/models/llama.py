"""Llama."""

from __future__ import annotations

from typing import Any, ClassVar

from hulk.runtime.models.base import CausalBlock, LayerModule, Local, NormHead, Style, Styles, Tensors


class LlamaEmbedding(LayerModule):
    """Token embedding."""

    styles: ClassVar[Styles] = {"embed_tokens": Style.VOCABULARY}

    def __init__(self, core: Any) -> None:
        super().__init__()
        self.embed_tokens = core.embed_tokens

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Token ids to hidden states."""
        return (self.embed_tokens(tensors[0]),)


class LlamaBlock(CausalBlock):
    """One decoder layer, with the model's rotary embedding, which has no parameters."""

    styles: ClassVar[Styles] = {
        "block.self_attn.q_proj": Style.COLUMNS,
        "block.self_attn.k_proj": Style.COLUMNS,
        "block.self_attn.v_proj": Style.COLUMNS,
        "block.self_attn.o_proj": Style.ROWS,
        "block.mlp.gate_proj": Style.COLUMNS,
        "block.mlp.up_proj": Style.COLUMNS,
        "block.mlp.down_proj": Style.ROWS,
    }
    gathers = ("block.self_attn", "block.mlp")

    def __init__(self, block: Any, rotary: Any, config: Any) -> None:
        super().__init__(block, config)
        self.rotary = rotary

    def prepare(self, tensors: Tensors, local: Local) -> None:
        """The causal mask and the rotations."""
        super().prepare(tensors, local)
        if "rotations" not in local:
            where = self.positions(self.length(tensors[0]), tensors[0])
            local["rotations"] = self.rotary(tensors[0], position_ids=where)

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to hidden states."""
        return (self.block(tensors[0], attention_mask=local["mask"], position_embeddings=local["rotations"]),)


def llama_layers(model: Any) -> list[LayerModule]:
    """The layers of LlamaForCausalLM."""
    core = model.model
    blocks = (LlamaBlock(block, core.rotary_emb, model.config) for block in core.layers)
    return [LlamaEmbedding(core), *blocks, NormHead(core.norm, model.lm_head)]
