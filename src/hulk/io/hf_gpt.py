"""Decoders after GPT-2 with layer norms and a plain feed-forward (GPT-NeoX, Falcon, BLOOM, MPT): from the fields of
their Hugging Face configs to an Architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hulk.domain.architecture import Architecture, Family, Position
from hulk.errors import InputError
from hulk.io.hf_fields import ACTIVATION, FFN, HEADS, LAYERS, MOST_LAYERS, Fields


def _gpt_neox(fields: Fields) -> Architecture:
    hidden, heads = fields.count("hidden_size"), fields.count(*HEADS)
    bias, head_dim = fields.flag("attention_bias", default=True), fields.head_dim()
    dropout = fields.probability("hidden_dropout", default=0.0)
    inner = fields.inner("rope_parameters").fraction("partial_rotary_factor", default=0.25)
    return Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=fields.count(*LAYERS, most=MOST_LAYERS),
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn=fields.count(*FFN),
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        position=Position.ROTARY,
        rotary=max(1, int(head_dim * fields.fraction("rotary_pct", "partial_rotary_factor", default=inner))),
        parallel=fields.flag("use_parallel_residual", default=True),
        activation_keeps_input=fields.keeps_input(fields.text(*ACTIVATION, default="gelu")),
        qkv_bias=bias,
        out_bias=bias,
        ffn_bias=True,
        tied=fields.flag("tie_word_embeddings", default=False),
        hidden_dropout=dropout,
        attention_dropout=fields.probability("attention_dropout", default=0.0),
        embedding_dropout=dropout,
    )


def _falcon(fields: Fields) -> Architecture:
    """The first architecture (7B: one key-value head; RW: one for each query) and the new one (40B, 180B: groups)."""
    hidden, heads = fields.count("n_embed", "hidden_size"), fields.count(*HEADS)
    grouped = fields.flag("new_decoder_architecture", default=False)
    parallel, bias = fields.flag("parallel_attn", default=True), fields.flag("bias", default=False)
    norms = fields.count("num_ln_in_parallel_attn", default=2 if grouped else 1, most=2)
    if grouped and not parallel:
        raise InputError("Falcon's new architecture has parallel_attn: true only", where=fields.where)
    if not grouped and parallel and norms == 2:
        raise InputError("num_ln_in_parallel_attn: 2 is for Falcon's new architecture", where=fields.where)
    if grouped:
        kv_heads = fields.count("num_kv_heads", default=heads)
    else:
        kv_heads = 1 if fields.flag("multi_query", default=True) else heads
    return Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=fields.count(*LAYERS, most=MOST_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.head_dim(hidden=hidden, heads=heads),
        ffn=fields.count("ffn_hidden_size", default=4 * hidden),
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        position=Position.ALIBI if fields.flag("alibi", default=False) else Position.ROTARY,
        parallel=parallel,
        shared_norm=parallel and norms == 1,
        activation_keeps_input=fields.keeps_input(fields.text("activation", default="gelu")),
        qkv_bias=bias,
        out_bias=bias,
        ffn_bias=bias,
        tied=fields.flag("tie_word_embeddings", default=True),
        hidden_dropout=fields.probability("hidden_dropout", default=0.0),
        attention_dropout=fields.probability("attention_dropout", default=0.0),
    )


def _bloom(fields: Fields) -> Architecture:
    hidden, heads = fields.count("n_embed", "hidden_size"), fields.count(*HEADS)
    return Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=fields.count(*LAYERS, most=MOST_LAYERS),
        heads=heads,
        kv_heads=heads,
        head_dim=fields.head_dim(hidden=hidden, heads=heads),
        ffn=4 * hidden,
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        position=Position.ALIBI,
        embedding_norm=True,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        tied=fields.flag("tie_word_embeddings", default=True),
        hidden_dropout=fields.probability("hidden_dropout", default=0.0),
        attention_dropout=fields.probability("attention_dropout", default=0.0),
    )


def _mpt(fields: Fields) -> Architecture:
    """MPT as transformers has it: biases on the scores, none in products and norms."""
    inner = fields.inner("attn_config")
    inner.must_be("alibi", True)
    inner.must_be("qk_ln", False)
    fields.must_be("no_bias", True)
    fields.must_count("expansion_ratio", 4)
    if inner.text("attn_type", default="multihead_attention") != "multihead_attention":
        raise InputError("only MPT models with attn_type 'multihead_attention' are supported", where=inner.where)
    hidden, heads = fields.count("d_model", "hidden_size"), fields.count("n_heads", "num_attention_heads")
    dropout = inner.probability("attn_pdrop", default=0.0)  # transformers uses it in all places
    return Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=fields.count("n_layers", "num_hidden_layers", most=MOST_LAYERS),
        heads=heads,
        kv_heads=heads,
        head_dim=fields.head_dim(hidden=hidden, heads=heads),
        ffn=4 * hidden,
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        position=Position.ALIBI,
        norm_shift=False,
        tied=fields.flag("tie_word_embeddings", default=True),
        hidden_dropout=dropout,
        attention_dropout=dropout,
    )


GPT_READERS: Mapping[str, Callable[[Fields], Architecture]] = MappingProxyType(
    {"gpt_neox": _gpt_neox, "falcon": _falcon, "bloom": _bloom, "mpt": _mpt}
)
"""By `model_type`."""
