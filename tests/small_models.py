"""Small models of many types, by their configs, and transformers' models of the same."""

from __future__ import annotations

from typing import Any

from hulk.cost.layers import build_model
from hulk.domain.model import Model
from hulk.io.hf_config import architecture_from_config

SEQUENCE = 64
PLAIN = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
GROUPS = PLAIN | {"num_key_value_heads": 2}
EXPERTS = GROUPS | {"moe_intermediate_size": 96, "num_experts": 8, "num_experts_per_tok": 2}
FALCON = {"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA4 = GROUPS | {"model_type": "llama4_text", "head_dim": 16, "num_local_experts": 4, "intermediate_size_mlp": 192}
DEEPSEEK = PLAIN | {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 48,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": 40,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
}
SMALL: dict[str, dict[str, Any]] = {
    "llama": PLAIN | {"attention_bias": True, "mlp_bias": True},
    "mistral": GROUPS | {"sliding_window": 16},
    "mixtral": GROUPS | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": GROUPS,
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 80},
    "qwen2_moe mixed": EXPERTS
    | {"num_hidden_layers": 5, "shared_expert_intermediate_size": 80, "decoder_sparse_step": 2, "qkv_bias": False},
    "qwen3": GROUPS | {"head_dim": 24},
    "qwen3 biased": GROUPS | {"head_dim": 24, "attention_bias": True, "tie_word_embeddings": True},
    "qwen3_moe": EXPERTS | {"head_dim": 24},
    "qwen3_moe mixed": EXPERTS | {"num_hidden_layers": 5, "mlp_only_layers": [0, 3], "attention_bias": True},
    "gemma2": GROUPS | {"head_dim": 24, "num_hidden_layers": 3},
    "gemma2 uncapped": GROUPS | {"head_dim": 24, "final_logit_softcapping": None, "attn_logit_softcapping": None},
    "gemma3_text": GROUPS | {"head_dim": 24, "num_hidden_layers": 6, "sliding_window": 16},
    "phi3": GROUPS | {"pad_token_id": 0},
    "phi3 in part": PLAIN
    | {"pad_token_id": 0, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    "gpt_neox": PLAIN,
    "gpt_neox in turn": PLAIN | {"use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0},
    "falcon": FALCON,
    "falcon rw": FALCON | {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
    "falcon new": FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 200},
    "falcon 11b": FALCON
    | {
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "num_ln_in_parallel_attn": 1,
        "tie_word_embeddings": False,
    },
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4},
    "mpt": {"d_model": 64, "n_layers": 3, "n_heads": 4},
    "gpt_oss": GROUPS | {"head_dim": 24, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
    "llama4_text": LLAMA4 | {"num_hidden_layers": 5},
    "llama4_text mixed": LLAMA4
    | {"num_hidden_layers": 6, "interleave_moe_layer_step": 2, "use_qk_norm": False, "num_experts_per_tok": 2},
    "deepseek_v3": DEEPSEEK,
    "deepseek_v3 lite": DEEPSEEK | {"q_lora_rank": None, "n_shared_experts": 1, "attention_bias": True},
}


def small_config(kind: str) -> dict[str, Any]:
    return {"model_type": kind.split(maxsplit=1)[0], "vocab_size": 300} | SMALL[kind]


def model_of(config: dict[str, Any], sequence: int = SEQUENCE) -> Model:
    return build_model(architecture_from_config(config, where="here"), name="any", sequence=sequence)


def build_reference(config: dict[str, Any], device: str = "meta") -> Any:
    """transformers' model of a config."""
    import torch
    import transformers

    fields = {name: value for name, value in config.items() if name != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **fields)
    made._experts_implementation = "eager"
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager")


def count(reference: Any) -> int:
    return sum(each.numel() for each in reference.parameters())
