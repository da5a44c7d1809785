"""BERT and RoBERTa, trained as masked language models."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from hulk.runtime.models.base import LayerModule, Local, Style, Styles, Tensors
from hulk.runtime.models.lean import project


class BertEmbedding(LayerModule):
    """Token, position and type embedding. RoBERTa counts positions from behind its padding index."""

    styles: ClassVar[Styles] = {"embeddings.word_embeddings": Style.VOCABULARY}

    def __init__(self, core: Any, *, offset: int) -> None:
        super().__init__()
        self.embeddings, self.offset = core.embeddings, offset

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Token ids to hidden states."""
        (ids,) = tensors
        return (self.embeddings(ids, position_ids=self.positions(ids.shape[1], ids, self.offset)),)


class BertBlock(LayerModule):
    """One encoder layer."""

    styles: ClassVar[Styles] = {
        "block.attention.self.query": Style.COLUMNS,
        "block.attention.self.key": Style.COLUMNS,
        "block.attention.self.value": Style.COLUMNS,
        "block.attention.output.dense": Style.ROWS,
        "block.intermediate.dense": Style.COLUMNS,
        "block.output.dense": Style.ROWS,
    }
    gathers = ("block.attention.self", "block.intermediate")
    again = True

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to hidden states."""
        return (self.block(tensors[0]),)


class BertHead(LayerModule):
    """Transform and output projection. The projection's bias is the head's own, which it shares."""

    styles: ClassVar[Styles] = {"decoder": Style.LOGITS}

    def __init__(self, model: Any) -> None:
        super().__init__()
        predictions = model.cls.predictions
        self.transform, self.decoder = predictions.transform, predictions.decoder

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to logits."""
        return (project(self.decoder, self.transform(tensors[0])),)


class RobertaHead(LayerModule):
    """The same for RoBERTa."""

    styles: ClassVar[Styles] = {"decoder": Style.LOGITS}

    def __init__(self, model: Any) -> None:
        super().__init__()
        head = model.lm_head
        self.dense, self.layer_norm, self.decoder = head.dense, head.layer_norm, head.decoder

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to logits."""
        return (project(self.decoder, self.layer_norm(torch.nn.functional.gelu(self.dense(tensors[0])))),)


def bert_layers(model: Any) -> list[LayerModule]:
    """The layers of BertForMaskedLM."""
    core = model.bert
    return [BertEmbedding(core, offset=0), *(BertBlock(block) for block in core.encoder.layer), BertHead(model)]


def roberta_layers(model: Any) -> list[LayerModule]:
    """The layers of RobertaForMaskedLM."""
    core = model.roberta
    first = BertEmbedding(core, offset=model.config.pad_token_id + 1)
    return [first, *(BertBlock(block) for block in core.encoder.layer), RobertaHead(model)]
