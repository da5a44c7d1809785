"""Llama and its relatives: decoders with rotated heads, RMS norms and a gated feed-forward; from the fields of their
Hugging Face configs to an Architecture.

Windows and chunks of attention are counted in full, as eager attention computes them. Experts are counted as each token
visits its own, and tokens as spread evenly over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from hulk.domain.architecture import Architecture, Family, HeadNorm, Norm, Position
from hulk.errors import InputError
from hulk.io.hf_fields import ACTIVATION, FFN, HEADS, HIDDEN, LAYERS, MOST_LAYERS, Fields


def _llama(
    fields: Fields,
    *,
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    tied: bool = False,
) -> Architecture:
    """The options are what transformers takes where a config is silent (None: as Llama does), or where its type leaves
    no choice (biases)."""
    fields.must_attend()
    hidden, heads = fields.count(*HIDDEN), fields.count(*HEADS)
    bias = fields.flag("attention_bias", default=False)
    return Architecture(
        family=Family.DECODER,
        hidden=hidden,
        layers=fields.count(*LAYERS, most=MOST_LAYERS),
        heads=heads,
        kv_heads=fields.count("num_key_value_heads", default=kv_heads or heads),
        head_dim=fields.count("head_dim", default=head_dim) if head_dim else fields.head_dim("head_dim"),
        ffn=fields.count(*FFN),
        vocab=fields.count("vocab_size"),
        embedding=hidden,
        position=Position.ROTARY,
        norm=Norm.RMS,
        gated=True,
        activation_keeps_input=fields.keeps_input(fields.text(*ACTIVATION, default="silu")),
        qkv_bias=bias if qkv_bias is None else qkv_bias,
        out_bias=bias if out_bias is None else out_bias,
        ffn_bias=fields.flag("mlp_bias", default=False),
        tied=fields.flag("tie_word_embeddings", default=tied),
        attention_dropout=fields.probability("attention_dropout", default=0.0),
    )


def _mixtral(fields: Fields) -> Architecture:
    return replace(
        _llama(fields, qkv_bias=False, out_bias=False, kv_heads=8),
        experts=fields.count("num_local_experts", "num_experts", default=8),
        experts_per_token=fields.count("num_experts_per_tok", default=2),
    )


def _qwen3(fields: Fields) -> Architecture:
    return replace(_llama(fields, head_dim=128), head_norm=HeadNorm.SCALED, ffn_bias=False)


def _qwen_experts(fields: Fields, plain: Architecture, *, experts: int, visits: int) -> Architecture:
    """`plain` with experts in all blocks but those that the config leaves out; the numbers are transformers' own."""
    only = frozenset(fields.numbers("mlp_only_layers", most=MOST_LAYERS) or ())
    step = fields.count("decoder_sparse_step", default=1)
    return replace(
        plain,
        ffn=fields.count("moe_intermediate_size"),
        ffn_bias=False,
        dense_ffn=plain.ffn,
        dense_blocks=frozenset(n for n in range(plain.layers) if n in only or (n + 1) % step),
        experts=fields.count("num_experts", "num_local_experts", default=experts),
        experts_per_token=fields.count("num_experts_per_tok", default=visits),
    )


def _qwen3_moe(fields: Fields) -> Architecture:
    plain = replace(_llama(fields, kv_heads=4), head_norm=HeadNorm.SCALED)
    return _qwen_experts(fields, plain, experts=128, visits=8)


def _qwen2_moe(fields: Fields) -> Architecture:
    plain = _llama(fields, qkv_bias=fields.flag("qkv_bias", default=True), out_bias=False)
    mixture = _qwen_experts(fields, plain, experts=60, visits=4)
    return replace(mixture, shared_ffn=fields.count("shared_expert_intermediate_size"), shared_gate=True)


def _gemma2(fields: Fields) -> Architecture:
    return replace(
        _llama(fields, head_dim=256, kv_heads=4, tied=True),
        outer_norm=True,
        ffn_bias=False,
        score_cap=_capped(fields, "attn_logit_softcapping", default=True),
        logit_cap=_capped(fields, "final_logit_softcapping", default=True),
    )


def _gemma3(fields: Fields) -> Architecture:
    """Published configs leave out what is as in transformers: heads and vocabulary."""
    usual = {"num_attention_heads": 8, "vocab_size": 262_208}
    given = {name: value for name, value in fields.config.items() if value is not None}
    return replace(
        _llama(Fields(usual | given, fields.where), head_dim=256, kv_heads=4, tied=True),
        outer_norm=True,
        ffn_bias=False,
        head_norm=HeadNorm.SCALED,
        score_cap=_capped(fields, "attn_logit_softcapping", default=False),
        logit_cap=_capped(fields, "final_logit_softcapping", default=False),
    )


def _capped(fields: Fields, name: str, *, default: bool) -> bool:
    """Whether tanh limits something: null says that it does not, a missing field leaves it as it is by default."""
    if name not in fields.config:
        return default
    return fields.number(name) is not None


def _phi3(fields: Fields) -> Architecture:
    plain = _llama(fields, qkv_bias=False, out_bias=False)
    inner = fields.inner("rope_parameters").fraction("partial_rotary_factor", default=1.0)
    rotated = int(plain.head_dim * fields.fraction("partial_rotary_factor", default=inner))
    dropout = fields.probability("resid_pdrop", default=0.0)
    return replace(plain, rotary=max(1, rotated), ffn_bias=False, hidden_dropout=dropout)


def _gpt_oss(fields: Fields) -> Architecture:
    bias = fields.flag("attention_bias", default=True)
    return replace(
        _llama(fields, qkv_bias=bias, out_bias=bias, kv_heads=8, head_dim=64),
        experts=fields.count("num_local_experts", "num_experts", default=128),
        experts_per_token=fields.count("num_experts_per_tok", "experts_per_token", default=4),
        clamped_gate=True,
        ffn_bias=True,
        router_bias=True,
        sinks=True,
    )


def _llama4(fields: Fields) -> Architecture:
    """`intermediate_size` is the width of an expert, and of the one that every token visits."""
    plain = _llama(fields, kv_heads=8, head_dim=128)
    step, apart = (
        fields.count("interleave_moe_layer_step", default=1),
        fields.count("no_rope_layer_interval", default=4),
    )
    numbers = range(plain.layers)
    mixed = fields.numbers("moe_layers", most=MOST_LAYERS)
    rotated = fields.numbers("no_rope_layers", most=1) or tuple(int((n + 1) % apart != 0) for n in numbers)
    if len(rotated) < plain.layers:
        raise InputError(f"no_rope_layers has {len(rotated)} entries for {plain.layers} layers", where=fields.where)
    mixed = tuple(range(step - 1, plain.layers, step)) if mixed is None else mixed
    dense = frozenset(numbers) - frozenset(mixed)
    return replace(
        plain,
        experts=fields.count("num_local_experts", "num_experts", default=16),
        experts_per_token=fields.count("num_experts_per_tok", default=1),
        shared_ffn=plain.ffn,
        ffn_bias=False,
        dense_ffn=fields.count("intermediate_size_mlp") if dense else 0,
        dense_blocks=dense,
        unrotated_blocks=frozenset(n for n in numbers if not rotated[n]),
        head_norm=HeadNorm.PLAIN if fields.flag("use_qk_norm", default=True) else HeadNorm.NONE,
    )


def _deepseek_v3(fields: Fields) -> Architecture:
    """Further predicted tokens (`num_nextn_predict_layers`) are left out, as transformers leaves them out."""
    fields.must_count("moe_layer_freq", 1)
    rotated, apart = fields.count("qk_rope_head_dim"), fields.count("qk_nope_head_dim")
    usual = {name: value for name, value in fields.config.items() if name != "head_dim"}  # theirs is another width
    plain = _llama(Fields(usual | {"head_dim": rotated + apart}, fields.where))
    if "q_lora_rank" not in fields.config:
        raise InputError("q_lora_rank is missing", where=fields.where, hint="null where queries have no latent")
    width = fields.count("moe_intermediate_size")
    first = fields.count("first_k_dense_replace", default=3, least=0, most=MOST_LAYERS)
    return replace(
        plain,
        rotary=rotated,
        query_rank=fields.count("q_lora_rank", default=0),
        kv_rank=fields.count("kv_lora_rank"),
        value_dim=fields.count("v_head_dim"),
        ffn=width,
        ffn_bias=False,
        experts=fields.count("n_routed_experts", "num_local_experts"),
        experts_per_token=fields.count("num_experts_per_tok", default=8),
        shared_ffn=width * fields.count("n_shared_experts", default=1, least=0),
        dense_ffn=plain.ffn,
        dense_blocks=frozenset(range(min(first, plain.layers))),
    )


LLAMA_READERS: Mapping[str, Callable[[Fields], Architecture]] = MappingProxyType(
    {
        "llama": _llama,
        "mistral": partial(_llama, qkv_bias=False, out_bias=False, kv_heads=8),
        "mixtral": _mixtral,
        "qwen2": partial(_llama, qkv_bias=True, out_bias=False),
        "qwen2_moe": _qwen2_moe,
        "qwen3": _qwen3,
        "qwen3_moe": _qwen3_moe,
        "gemma": partial(_llama, head_dim=256, tied=True),
        "gemma2": _gemma2,
        "gemma3_text": _gemma3,
        "phi3": _phi3,
        "gpt_oss": _gpt_oss,
        "llama4_text": _llama4,
        "deepseek_v3": _deepseek_v3,
    }
)
"""By `model_type`."""
