"""OPT, also where its token embedding is narrower than its blocks (OPT-350m)."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from hulk.runtime.models.base import CausalBlock, LayerModule, Local, Style, Styles, Tensors
from hulk.runtime.models.lean import project


class OptEmbedding(LayerModule):
    """Token and position embedding."""

    styles: ClassVar[Styles] = {"embed_tokens": Style.VOCABULARY}

    def __init__(self, core: Any) -> None:
        super().__init__()
        self.embed_tokens, self.embed_positions = core.embed_tokens, core.embed_positions
        self.project_in = core.project_in or nn.Identity()

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Token ids to hidden states."""
        (ids,) = tensors
        where = self.embed_positions(None, position_ids=self.positions(ids.shape[1], ids))
        return (self.project_in(self.embed_tokens(ids)) + where,)


class OptBlock(CausalBlock):
    """One decoder layer."""

    styles: ClassVar[Styles] = {
        "block.self_attn.q_proj": Style.COLUMNS,
        "block.self_attn.k_proj": Style.COLUMNS,
        "block.self_attn.v_proj": Style.COLUMNS,
        "block.self_attn.out_proj": Style.ROWS,
        "block.fc1": Style.COLUMNS,
        "block.fc2": Style.ROWS,
    }
    gathers = ("block.self_attn", "block.fc1")

    def divide(self, ranks: int) -> None:
        """This rank's heads."""
        self.block.self_attn.num_heads //= ranks


class OptHead(LayerModule):
    """Final norm where there is one, and output projection."""

    styles: ClassVar[Styles] = {"lm_head": Style.LOGITS}

    def __init__(self, model: Any) -> None:
        super().__init__()
        core = model.model.decoder
        self.final_layer_norm = core.final_layer_norm or nn.Identity()
        self.project_out = core.project_out or nn.Identity()
        self.lm_head = model.lm_head

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to logits."""
        return (project(self.lm_head, self.project_out(self.final_layer_norm(tensors[0]))),)


def opt_layers(model: Any) -> list[LayerModule]:
    """The layers of OPTForCausalLM."""
    core = model.model.decoder
    return [OptEmbedding(core), *(OptBlock(block, model.config) for block in core.layers), OptHead(model)]
