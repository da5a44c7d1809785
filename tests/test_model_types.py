"""Types of models beside those of the catalogue: parameters against transformers, FLOPs against torch, what is held
against autograd, and published models by their configs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hulk.domain.job import Job
from hulk.domain.model import Layer
from hulk.domain.options import Options
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.errors import InputError
from hulk.io.hf_config import architecture_from_config
from hulk.runtime.runnable import MODEL_TYPES, check_runnable
from hulk.runtime.settings import Settings
from small_models import (
    SEQUENCE,
    SMALL,
    build_reference,
    count,
    model_of,
    small_config,
)
from test_models import held_by_autograd

# ---- Parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SMALL)
def test_small_models_have_the_parameters_of_transformers(kind: str) -> None:
    assert model_of(small_config(kind)).params == count(build_reference(small_config(kind)))


# ---- FLOPs ----------------------------------------------------------------------------------------------------------


def idle_flops(kind: str) -> float:
    """transformers' Llama 4 has every token visit all experts; FLOPs of those that its router did not choose."""
    if not kind.startswith("llama4"):
        return 0.0
    config = small_config(kind)
    experts, visits = config["num_local_experts"], config.get("num_experts_per_tok", 1)
    mixed = config["num_hidden_layers"] // config.get("interleave_moe_layer_step", 1)
    return mixed * (experts - visits) * SEQUENCE * 2.0 * 3 * config["hidden_size"] * config["intermediate_size"]


@pytest.mark.parametrize("kind", SMALL)
def test_flops_agree_with_torch(kind: str) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    reference, model = build_reference(small_config(kind), "cpu").train(), model_of(small_config(kind))
    tokens = torch.randint(6, 300, (1, SEQUENCE))
    with FlopCounterMode(display=False) as forward:
        loss = reference(input_ids=tokens, labels=tokens, use_cache=False).loss
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    idle = idle_flops(kind)
    assert sum(layer.flops_forward for layer in model.layers) == pytest.approx(
        forward.get_total_flops() - idle, rel=0.01
    )
    assert sum(layer.flops_backward for layer in model.layers) == pytest.approx(
        backward.get_total_flops() - 2 * idle, rel=0.01
    )


def test_a_token_visits_its_own_experts_and_the_shared_one() -> None:
    block = model_of(small_config("deepseek_v3")).layers[2]
    assert [(m.rows, m.inner, m.columns, m.batch) for m in block.matmuls if m.weight][-5:] == [
        (SEQUENCE, 64, 8, 1),
        (SEQUENCE * 2 / 8, 64, 96, 8),
        (SEQUENCE * 2 / 8, 48, 64, 8),
        (SEQUENCE, 64, 192, 1),
        (SEQUENCE, 96, 64, 1),
    ]


# ---- Activations ----------------------------------------------------------------------------------------------------

# Eager attention also keeps the repeated keys and values of groups, and a view keeps all of what it is a view of: both
# are left out of what is counted, so these have no groups, and heads that are all rotated or all not.
UNGROUPED = ("qwen3", "gemma2", "gemma2 uncapped", "gemma3_text", "falcon", "falcon rw", "bloom", "mpt")


@pytest.mark.parametrize("kind", UNGROUPED)
def test_autograd_holds_what_is_counted(kind: str) -> None:
    config = small_config(kind) | ({"num_key_value_heads": 4} if "num_key_value_heads" in SMALL[kind] else {})
    held, counted = held_and_counted(config)
    assert held == counted


@pytest.mark.parametrize("kind", ["llama4_text", "llama4_text mixed"])
def test_autograd_holds_what_is_counted_of_experts(kind: str) -> None:
    """With all experts visited; transformers' Llama 4 has no routed copies, but as large ones weighed by the router."""
    held, counted = held_and_counted(small_config(kind) | {"num_key_value_heads": 4, "num_experts_per_tok": 4})
    assert counted == pytest.approx(held, rel=0.01)


def held_and_counted(config: dict[str, Any]) -> tuple[float, float]:
    """Elements that autograd keeps for all blocks, and that are counted."""
    import torch

    torch.manual_seed(0)
    reference, model = build_reference(config, "cpu").train(), model_of(config)
    tokens = torch.randint(6, 300, (1, SEQUENCE))
    core = getattr(reference, "model", None) or reference.transformer
    modules = next(getattr(core, name) for name in ("layers", "h", "blocks") if hasattr(core, name))
    blocks = model.layers[1:-1]
    assert len(blocks) == len(modules)
    counted = sum(layer.held_split + layer.held_whole + layer.scores for layer in blocks)
    return held_by_autograd(reference, modules, {"input_ids": tokens, "labels": tokens}), counted


# ---- Layers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SMALL)
def test_layers_of_one_shape_are_equal(kind: str) -> None:
    by_shape: dict[str, Layer] = {}
    for layer in model_of(small_config(kind)).layers:
        first = by_shape.setdefault(layer.shape, layer)
        for one, other in ((layer, first), (layer.own or layer, first.own or first)):
            assert replace(one, name=other.name, own=None) == replace(other, own=None)
            amounts = (one.moved_split, one.moved_whole, one.scores, one.held_split, one.held_whole)
            spared = (one.spared_split, one.spared_whole, 0, one.spared_held_split, one.spared_held_whole)
            assert all(0 <= less <= all_of_it < math.inf for all_of_it, less in zip(amounts, spared, strict=True))


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("deepseek_v3", ["dense block", *["block"] * 3]),
        ("qwen2_moe mixed", ["dense block", "block", "dense block", "block", "dense block"]),
        ("qwen3_moe mixed", ["dense block", "block", "block", "dense block", "block"]),
        ("llama4_text", [*["block"] * 3, "unrotated block", "block"]),
        (
            "llama4_text mixed",
            ["dense block", "block", "dense block", "unrotated block", "dense block", "block"],
        ),
        ("gemma3_text", ["block"] * 6),
    ],
)
def test_unlike_blocks_have_shapes_of_their_own(kind: str, shapes: list[str]) -> None:
    assert [layer.shape for layer in model_of(small_config(kind)).layers[1:-1]] == shapes


# ---- Published models -----------------------------------------------------------------------------------------------

SIZE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def sized(model_type: str, *size: int, **fields: Any) -> dict[str, Any]:
    return {"model_type": model_type, **dict(zip(SIZE, size, strict=True)), **fields}


V3 = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
V3 |= {"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "first_k_dense_replace": 3}
SCOUT = {"num_key_value_heads": 8, "intermediate_size_mlp": 16384}
GROUPED_40B = {"new_decoder_architecture": True, "num_kv_heads": 8}
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "Mistral-7B": (sized("mistral", 4096, 14336, 32, 32, 32000, num_key_value_heads=8), 7_241_732_096),
    "Qwen2.5-7B": (sized("qwen2", 3584, 18944, 28, 28, 152064, num_key_value_heads=4), 7_615_616_512),
    "Qwen3-30B-A3B": (
        sized("qwen3_moe", 2048, 6144, 48, 32, 151936, head_dim=128, moe_intermediate_size=768, num_experts=128),
        30_532_122_624,
    ),
    "Gemma-2-9B": (sized("gemma2", 3584, 14336, 42, 16, 256000, num_key_value_heads=8, head_dim=256), 9_241_705_984),
    "Phi-3-mini": (sized("phi3", 3072, 8192, 32, 32, 32064), 3_821_079_552),
    "GPT-NeoX-20B": (sized("gpt_neox", 6144, 24576, 44, 64, 50432), 20_554_567_680),
    "Falcon-7B": (sized("falcon", 4544, 4 * 4544, 32, 71, 65024), 6_921_720_704),
    "Falcon-40B": (sized("falcon", 8192, 4 * 8192, 60, 128, 65024, **GROUPED_40B), 41_303_293_952),
    "BLOOM": ({"model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "n_head": 112, "vocab_size": 250880},
              176_247_271_424),
    "MPT-7B": ({"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432},
               6_649_286_656),
    "gpt-oss-20b": (sized("gpt_oss", 2880, 2880, 24, 64, 201088, num_local_experts=32), 20_914_757_184),
    "Llama-4-Scout": (sized("llama4_text", 5120, 8192, 48, 40, 202048, **SCOUT), 107_769_861_120),
    # 671 billion; what corrects the choice of experts is no parameter that is trained
    "DeepSeek-V3": (sized("deepseek_v3", 7168, 18432, 61, 128, 129280, **V3), 671_026_404_352),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_their_parameters(name: str) -> None:
    config, params = PUBLISHED[name]
    assert model_of(config).params == params == count(build_reference(config))


@pytest.mark.parametrize(("name", "billions"), [("DeepSeek-V3", 37), ("Qwen3-30B-A3B", 3.3), ("Llama-4-Scout", 17)])
def test_published_models_use_some_of_their_parameters(name: str, billions: float) -> None:
    """Published as activated for a token; the token table is among them, but has no product."""
    config = PUBLISHED[name][0]
    flops = sum(m.flops for layer in model_of(config).layers for m in layer.matmuls if m.weight)
    used = flops / (2 * SEQUENCE) + config["vocab_size"] * config["hidden_size"]
    assert used / 1e9 == pytest.approx(billions, rel=0.03)


# ---- Models of several parts ----------------------------------------------------------------------------------------


def test_of_several_parts_the_text_is_counted() -> None:
    """As google/gemma-3-4b-it has it, which leaves out what is as in transformers."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    config = {"model_type": "gemma3", "text_config": text | {"model_type": "gemma3_text"}, "vision_config": {}}
    assert model_of(config).params == 3_880_263_168
    assert model_of(config | {"text_config": text}).params == 3_880_263_168
    assert count(build_reference(text | {"model_type": "gemma3_text"})) == 3_880_263_168
    llama = {"model_type": "llama4", "text_config": small_config("llama4_text")}
    assert model_of(llama).params == model_of(small_config("llama4_text")).params


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gemma3"}, "only the text part is counted, and there is no text_config"),
        ({"model_type": "llama4", "text_config": []}, "only the text part is counted"),
        ({"model_type": "gemma3", "text_config": {}}, "text_config: hidden_size is missing"),
        ({"model_type": "gemma3", "text_config": {"model_type": "siglip"}}, "unknown model_type 'siglip'"),
    ],
)
def test_parts_that_are_not_there(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        architecture_from_config(config, where="here")


# ---- What is wrong or cannot be counted -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("qwen2", {"layer_types": ["linear_attention"] * 2}, "'linear_attention', which is not supported"),
        ("qwen2", {"layer_types": "full_attention"}, "a list of names"),
        ("qwen2", {"layer_types": [1]}, "a list of names"),
        ("qwen3", {"head_dim": "128"}, "head_dim is '128'"),
        ("qwen3_moe", {"mlp_only_layers": 3}, "a list of at most 10000 whole numbers"),
        ("qwen3_moe", {"mlp_only_layers": [0.5]}, "a list of at most 10000 whole numbers"),
        ("qwen3_moe", {"mlp_only_layers": [True]}, "a list of at most 10000 whole numbers"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
        ("qwen3_moe", {"moe_intermediate_size": None}, "moe_intermediate_size is missing"),
        ("qwen3_moe", {"num_experts_per_tok": 9}, "9 of 8 experts"),
        ("qwen2_moe", {"shared_expert_intermediate_size": -1}, "shared_expert_intermediate_size is -1"),
        ("qwen2_moe", {"qkv_bias": "yes"}, "true or false"),
        ("gemma2", {"attn_logit_softcapping": "50"}, "a number above 0, or null"),
        ("gemma2", {"final_logit_softcapping": True}, "a number above 0, or null"),
        ("gemma3_text", {"final_logit_softcapping": math.nan}, "a number above 0, or null"),
        ("phi3", {"partial_rotary_factor": 1.5}, "above 0, at most 1"),
        ("phi3", {"rope_parameters": []}, "an object with fields"),
        ("phi3", {"rope_parameters": {"partial_rotary_factor": "x"}}, "rope_parameters: partial_rotary_factor is 'x'"),
        ("phi3", {"resid_pdrop": 1}, "probability"),
        ("gpt_neox", {"rotary_pct": 0}, "above 0, at most 1"),
        ("gpt_neox", {"num_attention_heads": 7}, "not a multiple of its 7 heads"),
        ("falcon", {"num_attention_heads": 7}, "not a multiple of its 7 heads"),
        ("falcon", {"num_ln_in_parallel_attn": 2}, "for Falcon's new architecture"),
        ("falcon", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn is 3"),
        ("falcon new", {"parallel_attn": False}, "parallel_attn: true only"),
        ("falcon new", {"num_kv_heads": 3}, "evenly"),
        ("falcon", {"activation": 3}, "expected a name"),
        ("bloom", {"n_head": 5}, "not a multiple of its 5 heads"),
        ("bloom", {"n_layer": "3"}, "n_layer is '3'"),
        ("mpt", {"attn_config": 1}, "an object with fields"),
        ("mpt", {"attn_config": {"alibi": False}}, "attn_config: models with alibi: false are not supported"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "qk_ln: true are not supported"),
        ("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, "only MPT models with attn_type"),
        ("mpt", {"expansion_ratio": 2}, "only models with expansion_ratio: 4"),
        ("mpt", {"no_bias": False}, "no_bias: false are not supported"),
        ("gpt_oss", {"num_local_experts": 0}, "num_local_experts is 0"),
        ("llama4_text", {"no_rope_layers": [1, 1]}, "2 entries for 5 layers"),
        ("llama4_text", {"no_rope_layers": [2] * 5}, "from 0 to 1"),
        ("llama4_text", {"moe_layers": {"0": 1}}, "a list of at most 10000 whole numbers"),
        ("llama4_text mixed", {"intermediate_size_mlp": None}, "intermediate_size_mlp is missing"),
        ("deepseek_v3", {"num_key_value_heads": 2}, "cannot have 2 key-value heads"),
        ("deepseek_v3", {"moe_layer_freq": 2}, "only models with moe_layer_freq: 1"),
        ("deepseek_v3", {"kv_lora_rank": None}, "kv_lora_rank is missing"),
        ("deepseek_v3", {"v_head_dim": 0}, "v_head_dim is 0"),
        ("deepseek_v3", {"q_lora_rank": "1536"}, "q_lora_rank is '1536'"),
        ("deepseek_v3", {"first_k_dense_replace": -1}, "first_k_dense_replace is -1"),
    ],
)
def test_wrong_configs_say_what_is_wrong(kind: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        architecture_from_config(small_config(kind) | change, where="here")
    assert str(raised.value.where).startswith("here")


def test_a_latent_for_queries_is_not_guessed() -> None:
    config = small_config("deepseek_v3")
    del config["q_lora_rank"]
    with pytest.raises(InputError, match="q_lora_rank is missing"):
        architecture_from_config(config, where="here")


WORTHLESS = [-1, 0, 0.5, True, "64", 10**30, math.nan, [64], {}, [[]], {"a": 1}, None]


@pytest.mark.parametrize("kind", SMALL)
def test_a_field_of_any_value_is_counted_or_refused(kind: str) -> None:
    config = small_config(kind)
    extra = ("layer_types", "rope_parameters", "attn_config", "moe_layers", "no_rope_layers", "mlp_only_layers")
    for field in (*config, *extra, "attention_bias", "hidden_act", "final_logit_softcapping", "text_config"):
        for value in WORTHLESS:
            try:
                model = model_of(config | {field: value})
            except InputError as error:
                assert str(error)
            else:
                assert model.params > 0 and 0 < model.flops_per_sample < math.inf


# ---- Running --------------------------------------------------------------------------------------------------------


def runnable(config: dict[str, Any]) -> str | None:
    """The reason why a job with this model cannot be run; None: it can."""
    model = replace(model_of(config), config=config)
    job = Job("any", model, global_batch=1)
    plan = JobPlan((Pipeline((Stage("one", (0,), 0, len(model.layers) - 1),), 1),), Options(microbatch_size=1))
    try:
        check_runnable(job, plan, Settings(data=Path("text")))
    except InputError as error:
        return error.message
    return None


@pytest.mark.parametrize("kind", SMALL)
def test_types_that_cannot_be_run_are_refused(kind: str) -> None:
    config = small_config(kind)
    if config["model_type"] in MODEL_TYPES:
        assert runnable(config) is None
        assert "text part of a larger model" in str(runnable(config | {"text_config": config}))
        return
    experts = architecture_from_config(config, where="here").experts
    reason = "its experts would have to be spread" if experts else "there is no way to build its layers"
    assert f"({config['model_type']}) cannot be run: {reason}" in str(runnable(config))
