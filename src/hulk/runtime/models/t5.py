"""T5: encoder, then decoder, with the encoder's output carried along.

The first block of each stack holds a table of position biases that all blocks of the stack add to their scores. Every
stage with blocks of a stack holds a copy of that table, and the copies' gradients are added up.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from hulk.runtime.models.base import LayerModule, Local, Style, Styles, Tensors, causal_mask
from hulk.runtime.models.lean import attention_named, kept, project


class T5Embedding(LayerModule):
    """The encoder's token embedding."""

    styles: ClassVar[Styles] = {"shared": Style.VOCABULARY}

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.shared, self.dropout = model.shared, model.encoder.dropout

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Token ids to hidden states."""
        return (self.dropout(self.shared(tensors[0])),)


class T5DecoderEmbedding(LayerModule):
    """Between the stacks: the encoder's final norm, and the decoder's token embedding, which is the encoder's."""

    styles: ClassVar[Styles] = {"shared": Style.VOCABULARY}

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.norm, self.dropout = model.encoder.final_layer_norm, model.encoder.dropout
        self.shared, self.decoder_dropout = model.shared, model.decoder.dropout

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """The encoder's last hidden states to (encoder's output, the decoder's first hidden states)."""
        encoded = self.dropout(self.norm(tensors[0]))
        return encoded, self.decoder_dropout(self.shared(local["decoder_ids"]))


class T5EncoderBlock(LayerModule):
    """One block of the encoder."""

    styles: ClassVar[Styles] = {
        "block.layer.0.SelfAttention.q": Style.COLUMNS,
        "block.layer.0.SelfAttention.k": Style.COLUMNS,
        "block.layer.0.SelfAttention.v": Style.COLUMNS,
        "block.layer.0.SelfAttention.o": Style.ROWS,
        "block.layer.1.DenseReluDense.wi": Style.COLUMNS,
        "block.layer.1.DenseReluDense.wi_0": Style.COLUMNS,
        "block.layer.1.DenseReluDense.wi_1": Style.COLUMNS,
        "block.layer.1.DenseReluDense.wo": Style.ROWS,
        "table": Style.HEADS,
    }
    again = True
    early = ("table",)

    def __init__(self, block: Any, first: Any, config: Any) -> None:
        super().__init__()
        self.block, self.attend = block, attention_named(config._attn_implementation)
        attention = first.layer[0].SelfAttention
        self.table = attention.relative_attention_bias
        self._buckets = attention._relative_position_bucket
        self._shape = {
            "bidirectional": not attention.is_decoder,
            "num_buckets": attention.relative_attention_num_buckets,
            "max_distance": attention.relative_attention_max_distance,
        }

    def _bias(self, length: int, like: torch.Tensor) -> torch.Tensor:
        """What is added to the scores for the distance of two positions: (1, heads, length, length)."""
        where = torch.arange(length, device=like.device)
        values: torch.Tensor = self.table(self._buckets(where[None, :] - where[:, None], **self._shape))
        return values.permute(2, 0, 1)[None].contiguous()  # fused attention takes no other layout

    def prepare(self, tensors: Tensors, local: Local) -> None:
        """The position bias."""
        if "encoder bias" not in local:
            local["encoder bias"] = self._bias(self.length(tensors[0]), tensors[0])

    def keep(self) -> None:
        """See `LayerModule`; this block calls attention itself."""
        super().keep()
        self.attend = kept(self.attend)

    def divide(self, ranks: int) -> None:
        """This rank's heads."""
        self.block.layer[0].SelfAttention.n_heads //= ranks

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """Hidden states to hidden states."""
        hidden = self._attend(self.block.layer[0], tensors[0], None, local["encoder bias"])
        return (self._feed(hidden),)

    def _attend(
        self, part: Any, hidden: torch.Tensor, source: torch.Tensor | None, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """One attention of a block and its residual; over itself, or over the encoder's output. Scores are not
        scaled."""
        attention = part.SelfAttention if source is None else part.EncDecAttention
        normed = self.gathered(part.layer_norm(hidden))
        seen = normed if source is None else self.gathered(source)
        query, key, value = (
            project(x).view(*x.shape[:2], attention.n_heads, attention.key_value_proj_dim).transpose(1, 2)
            for project, x in ((attention.q, normed), (attention.k, seen), (attention.v, seen))
        )
        drop = attention.dropout if attention.training else 0.0
        mixed = self.attend(query, key, value, mask=bias, dropout=drop, scale=1.0)
        joined = mixed.transpose(1, 2).reshape(*normed.shape[:2], -1)
        result: torch.Tensor = hidden + part.dropout(attention.o(joined))
        return result

    def _feed(self, hidden: torch.Tensor) -> torch.Tensor:
        """The feed-forward and its residual."""
        part = self.block.layer[-1]
        result: torch.Tensor = hidden + part.dropout(part.DenseReluDense(self.gathered(part.layer_norm(hidden))))
        return result


class T5DecoderBlock(T5EncoderBlock):
    """One block of the decoder: it also looks at the encoder's output."""

    styles: ClassVar[Styles] = {
        "block.layer.0.SelfAttention.q": Style.COLUMNS,
        "block.layer.0.SelfAttention.k": Style.COLUMNS,
        "block.layer.0.SelfAttention.v": Style.COLUMNS,
        "block.layer.0.SelfAttention.o": Style.ROWS,
        "block.layer.1.EncDecAttention.q": Style.COLUMNS,
        "block.layer.1.EncDecAttention.k": Style.COLUMNS,
        "block.layer.1.EncDecAttention.v": Style.COLUMNS,
        "block.layer.1.EncDecAttention.o": Style.ROWS,
        "block.layer.2.DenseReluDense.wi": Style.COLUMNS,
        "block.layer.2.DenseReluDense.wi_0": Style.COLUMNS,
        "block.layer.2.DenseReluDense.wi_1": Style.COLUMNS,
        "block.layer.2.DenseReluDense.wo": Style.ROWS,
        "table": Style.HEADS,
    }

    def prepare(self, tensors: Tensors, local: Local) -> None:
        """The position bias, with what hides later positions."""
        if "decoder bias" not in local:
            length = self.length(tensors[1])
            local["decoder bias"] = self._bias(length, tensors[1]) + causal_mask(length, tensors[1])

    def divide(self, ranks: int) -> None:
        """This rank's heads, of both attentions."""
        super().divide(ranks)
        self.block.layer[1].EncDecAttention.n_heads //= ranks

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """(encoder's output, hidden) to the same."""
        encoded, hidden = tensors
        hidden = self._attend(self.block.layer[0], hidden, None, local["decoder bias"])
        hidden = self._attend(self.block.layer[1], hidden, encoded, None)
        return encoded, self._feed(hidden)


class T5Head(LayerModule):
    """Final norm and output projection, before which a tied model scales."""

    styles: ClassVar[Styles] = {"lm_head": Style.LOGITS}

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.norm, self.dropout, self.lm_head = model.decoder.final_layer_norm, model.decoder.dropout, model.lm_head
        self.scale = model.model_dim**-0.5 if model.config.scale_decoder_outputs else 1.0

    def run(self, tensors: Tensors, local: Local) -> Tensors:
        """The decoder's last hidden states to logits."""
        return (project(self.lm_head, self.dropout(self.norm(tensors[1])) * self.scale),)


def t5_layers(model: Any) -> list[LayerModule]:
    """The layers of T5ForConditionalGeneration."""
    if not model.config.scale_decoder_outputs:
        # A config that unties the projection (T5 1.1); transformers ties it all the same where it makes a model anew.
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    encoder, decoder = model.encoder.block, model.decoder.block
    return [
        T5Embedding(model),
        *(T5EncoderBlock(block, encoder[0], model.config) for block in encoder),
        T5DecoderEmbedding(model),
        *(T5DecoderBlock(block, decoder[0], model.config) for block in decoder),
        T5Head(model),
    ]
