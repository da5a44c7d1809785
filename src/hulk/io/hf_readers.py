"""One function per kind of model: from the fields of its Hugging Face config to an Architecture.

A missing field takes the default of transformers' own config class where that is a convention (feed-forward 4 × hidden,
dropout 0.1), and is an error where it is a fact of the model (widths, depth, vocabulary). Llama with its relatives, and
the decoders after GPT-2 that are none of them, are in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from hulk.domain.architecture import Architecture, Family, Norm, Position
from hulk.errors import InputError
from hulk.io.hf_fields import ACTIVATION, FFN, HEADS, HIDDEN, LAYERS, MOST_LAYERS, POSITIONS, Fields
from hulk.io.hf_gpt import GPT_READERS
from hulk.io.hf_llama import LLAMA_READERS


def _opt(fields: Fields) -> Architecture:
    fields.must_be("layer_norm_elementwise_affine", True)
    hidden, heads = fields.count(*HIDDEN), fields.count(*HEADS)
    norm_first, bias = fields.flag("do_layer_norm_before", default=True), fields.flag("enable_bias", default=True)
    return Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=fields.count(*LAYERS, most=MOST_LAYERS),
        heads=heads,
        kv_heads=heads,
        head_dim=fields.head_dim(),
        ffn=fields.count(*FFN),
        vocab=fields.count("vocab_size"),
        embedding=fields.count("word_embed_proj_dim", default=hidden),
        positions=fields.count(*POSITIONS, default=2048) + 2,  # the first two rows stand for padding
        position_offset=2,
        norm_first=norm_first,
        final_norm=norm_first and not fields.flag("_remove_final_layer_norm", default=False),
        activation_keeps_input=fields.keeps_input(fields.text(*ACTIVATION, default="relu")),
        qkv_bias=bias,
        out_bias=bias,
        ffn_bias=bias,
        tied=fields.flag("tie_word_embeddings", default=True),
        hidden_dropout=fields.probability("dropout", default=0.1),
        attention_dropout=fields.probability("attention_dropout", default=0.0),
    )


def _gpt(fields: Fields, *, qkv_bias: bool, dropout: float) -> Architecture:
    """GPT-2 and GPT-Neo. The latter's local attention is counted in full, as eager attention computes it."""
    hidden, heads = fields.count(*HIDDEN), fields.count(*HEADS)
    return Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=fields.count(*LAYERS, most=MOST_LAYERS),
        heads=heads,
        kv_heads=heads,
        head_dim=fields.head_dim(),
        ffn=fields.count(*FFN, default=4 * hidden),
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        positions=fields.count(*POSITIONS),
        activation_keeps_input=fields.keeps_input(fields.text(*ACTIVATION, default="gelu_new")),
        qkv_bias=qkv_bias,
        out_bias=True,
        ffn_bias=True,
        tied=fields.flag("tie_word_embeddings", default=True),
        hidden_dropout=fields.probability("resid_pdrop", "resid_dropout", default=dropout),
        attention_dropout=fields.probability("attn_pdrop", "attention_dropout", default=dropout),
        embedding_dropout=fields.probability("embd_pdrop", "embed_dropout", default=dropout),
    )


def _bert(fields: Fields, *, position_offset: int = 0) -> Architecture:
    hidden, heads = fields.count(*HIDDEN), fields.count(*HEADS)
    dropout = fields.probability("hidden_dropout_prob", default=0.1)
    return Architecture(
        family=Family.ENCODER,
        hidden=hidden,
        layers=fields.count(*LAYERS, most=MOST_LAYERS),
        heads=heads,
        kv_heads=heads,
        head_dim=fields.head_dim(),
        ffn=fields.count(*FFN),
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        positions=fields.count(*POSITIONS, default=512),
        position_offset=position_offset,
        token_types=fields.count("type_vocab_size", default=2),
        norm_first=False,
        embedding_norm=True,
        final_norm=False,
        activation_keeps_input=fields.keeps_input(fields.text(*ACTIVATION, default="gelu")),
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        head_bias=True,
        head_transform=True,
        tied=fields.flag("tie_word_embeddings", default=True),
        hidden_dropout=dropout,
        attention_dropout=fields.probability("attention_probs_dropout_prob", default=0.1),
        embedding_dropout=dropout,
    )


def _xlnet(fields: Fields) -> Architecture:
    hidden, heads = fields.count(*HIDDEN), fields.count(*HEADS)
    if fields.text("attn_type", default="bi") != "bi":
        raise InputError("only XLNet models with attn_type 'bi' are supported", where=fields.where)
    dropout = fields.probability("dropout", default=0.1)
    return Architecture(
        family=Family.ENCODER,
        hidden=hidden,
        layers=fields.count(*LAYERS, most=MOST_LAYERS),
        heads=heads,
        kv_heads=heads,
        head_dim=fields.head_dim("d_head"),
        ffn=fields.count(*FFN),
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        position=Position.RELATIVE,
        norm_first=False,
        final_norm=False,
        activation_keeps_input=fields.keeps_input(fields.text(*ACTIVATION, default="gelu")),
        ffn_bias=True,
        head_bias=True,
        tied=fields.flag("tie_word_embeddings", default=True),
        hidden_dropout=dropout,
        attention_dropout=dropout,
        embedding_dropout=dropout,
        inner_dropout=dropout,
        output_dropout=dropout,
    )


def _t5(fields: Fields) -> Architecture:
    """T5 and its 1.1 version. `tie_word_embeddings: false` (1.1) is taken at its word: those checkpoints hold an output
    projection of their own, although transformers 5 ties it when it builds one from the config alone."""
    hidden, heads = fields.count(*HIDDEN), fields.count(*HEADS)
    encoder_layers = fields.count(*LAYERS, most=MOST_LAYERS)
    projection = fields.text("feed_forward_proj", default="relu")  # "relu", "gelu", "gated-gelu", "gated-silu"
    dropout = fields.probability("dropout_rate", default=0.1)
    return Architecture(
        family=Family.ENCODER_DECODER,
        hidden=hidden,
        layers=fields.count("num_decoder_layers", default=encoder_layers, most=MOST_LAYERS),
        encoder_layers=encoder_layers,
        heads=heads,
        kv_heads=heads,
        head_dim=fields.count("d_kv", default=64),
        ffn=fields.count(*FFN),
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        position=Position.BUCKETS,
        relative_buckets=fields.count("relative_attention_num_buckets", default=32),
        norm=Norm.RMS,
        gated=projection.startswith("gated-"),
        activation_keeps_input=fields.keeps_input(projection.removeprefix("gated-")),
        tied=fields.flag("tie_word_embeddings", default=True),
        hidden_dropout=dropout,
        attention_dropout=dropout,
        embedding_dropout=dropout,
        inner_dropout=dropout,
        output_dropout=dropout,
    )


READERS: Mapping[str, Callable[[Fields], Architecture]] = MappingProxyType(
    {
        "opt": _opt,
        "gpt2": partial(_gpt, qkv_bias=True, dropout=0.1),
        "gpt_neo": partial(_gpt, qkv_bias=False, dropout=0.0),
        "bert": _bert,
        # positions start after the padding index: two rows stand for no token
        "roberta": partial(_bert, position_offset=2),
        "xlm-roberta": partial(_bert, position_offset=2),
        "xlnet": _xlnet,
        "t5": _t5,
        **GPT_READERS,
        **LLAMA_READERS,
    }
)
"""By `model_type`."""
