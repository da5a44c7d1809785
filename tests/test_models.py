"""Models: parameters and FLOPs against transformers and torch, activations against measured facts and autograd."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from hulk.cost.layers import build_model
from hulk.domain.model import Layer, LayerKind, Model
from hulk.io.hf_config import architecture_from_config
from hulk.io.models import build_named_model, load_catalogue_models, model_names

PLAIN = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
OPT = {"model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 256}
T5 = {"model_type": "t5", "d_model": 64, "num_layers": 2, "num_heads": 4, "d_kv": 24, "d_ff": 256}
NEO = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 128}
SMALL: dict[str, dict[str, Any]] = {
    "opt": OPT,
    "opt projected": OPT | {"word_embed_proj_dim": 32, "do_layer_norm_before": False},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "gpt_neo": NEO | {"attention_types": [[["global", "local"], 1]]},
    "bert": PLAIN,
    "roberta": PLAIN,
    "xlnet": {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 256},
    "t5": T5 | {"num_decoder_layers": 3},
    "t5 gated": T5 | {"feed_forward_proj": "gated-gelu"},
    "llama": PLAIN,
    "mistral": PLAIN | {"num_key_value_heads": 2},
    "mixtral": PLAIN | {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": PLAIN | {"num_key_value_heads": 2},
    "gemma": PLAIN | {"num_key_value_heads": 1, "head_dim": 32},
}
SEQUENCE, TARGET = 64, 48


def small_config(kind: str) -> dict[str, Any]:
    return {"model_type": kind, "vocab_size": 300} | SMALL[kind]


def small_model(kind: str, **changes: Any) -> Model:
    architecture = architecture_from_config(small_config(kind), where=kind)
    target = TARGET if kind.startswith("t5") else None
    return build_model(replace(architecture, **changes), name=kind, sequence=SEQUENCE, target_sequence=target)


@cache
def transformers_class(model_type: str) -> tuple[type, type]:
    import transformers as tf

    classes = {
        "opt": "OPTForCausalLM",
        "t5": "T5ForConditionalGeneration",
        "gpt2": "GPT2LMHeadModel",
        "gpt_neo": "GPTNeoForCausalLM",
        "bert": "BertForMaskedLM",
        "roberta": "RobertaForMaskedLM",
        "xlnet": "XLNetLMHeadModel",
        "llama": "LlamaForCausalLM",
        "mistral": "MistralForCausalLM",
        "mixtral": "MixtralForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
        "gemma": "GemmaForCausalLM",
    }
    model_class = getattr(tf, classes[model_type])
    return model_class, model_class.config_class


def build_reference(config: dict[str, Any], device: str = "meta", **options: Any) -> Any:
    """The transformers model of a config, with its own defaults for what the config leaves out."""
    import torch

    model_class, config_class = transformers_class(config["model_type"])
    fields = {key: value for key, value in config.items() if key != "model_type"} | options
    if config["model_type"] == "t5":
        fields["decoder_start_token_id"] = 0
    with torch.device(device):
        return model_class._from_config(config_class(**fields), attn_implementation="eager")


# ---- Parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_names())
def test_catalogue_has_the_parameters_of_transformers(name: str) -> None:
    reference = build_reference(dict(load_catalogue_models()[name].config))
    assert build_named_model(name).params == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize("kind", SMALL)
def test_small_models_have_the_parameters_of_transformers(kind: str) -> None:
    reference = build_reference(small_config(kind))
    assert small_model(kind).params == sum(p.numel() for p in reference.parameters())


def test_known_sizes_and_layer_counts() -> None:
    assert len(build_named_model("opt-350m").layers) == 26
    assert len(build_named_model("gpt-neo-2.7b").layers) == 34
    assert len(build_named_model("t5-11b").layers) == 1 + 24 + 1 + 24 + 1
    assert build_named_model("opt-175b").params == pytest.approx(175e9, rel=0.01)
    assert build_named_model("mixtral-8x7b").params == pytest.approx(46.7e9, rel=0.01)


# ---- FLOPs ----------------------------------------------------------------------------------------------------------


def training_inputs(kind: str) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    tokens = torch.randint(6, 300, (1, SEQUENCE))
    if kind.startswith("t5"):
        return {"input_ids": tokens, "labels": torch.randint(6, 300, (1, TARGET))}
    inputs = {"input_ids": tokens, "labels": tokens}
    if kind == "xlnet":
        inputs["token_type_ids"] = torch.zeros_like(tokens)
    return inputs


def on_cpu(kind: str) -> Any:
    config = small_config(kind)
    options = {"experts_implementation": "eager"} if kind == "mixtral" else {}
    model = build_reference(config, "cpu", **options)
    if "experts_implementation" in options:
        model.config._experts_implementation = "eager"
    return model.train()


@pytest.mark.parametrize("kind", SMALL)
def test_flops_agree_with_torch(kind: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    reference, model = on_cpu(kind), small_model(kind)
    with FlopCounterMode(display=False) as forward:
        loss = reference(**training_inputs(kind), use_cache=False).loss
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    counted_forward = sum(layer.flops_forward for layer in model.layers)
    counted_backward = sum(layer.flops_backward for layer in model.layers)
    if kind == "xlnet":
        # Two products of a block have a left side without a gradient: see `relative_attention`.
        counted_backward -= sum(layer.matmuls[1].flops + layer.matmuls[4].flops for layer in model.layers[1:-1])
    assert counted_forward == pytest.approx(forward.get_total_flops(), rel=0.01)
    assert counted_backward == pytest.approx(backward.get_total_flops(), rel=0.01)


# ---- Activations ----------------------------------------------------------------------------------------------------


def block_of(name: str) -> tuple[Layer, float, Model]:
    model = build_named_model(name)
    return model.layers[1], model.layers[1].output, model


@pytest.mark.parametrize("name", ["opt-30b", "opt-350m", "opt-125m"])
def test_opt_block_holds_what_was_measured(name: str) -> None:
    """Megatron-DeepSpeed, fp32, eager: whole 4, split 8, one score matrix, two dropout masks."""
    block, unit, model = block_of(name)
    heads = load_catalogue_models()[name].architecture().heads
    assert (block.held_whole, block.held_split, block.mask_bytes) == (4 * unit, 8 * unit, 2 * unit)
    assert block.scores == heads * model.sequence**2


def test_gelu_block_holds_what_was_measured() -> None:
    block, unit, model = block_of("gpt-neo-2.7b")
    assert (block.held_whole, block.held_split, block.mask_bytes) == (4 * unit, 12 * unit, 0)
    assert block.scores == 20 * model.sequence**2


def test_bert_holds_the_same_after_the_norm_as_gpt2_before_it() -> None:
    for name in ("bert-large", "gpt2-xl"):
        block, unit, model = block_of(name)
        heads = load_catalogue_models()[name].architecture().heads
        assert (block.held_whole, block.held_split, block.mask_bytes) == (4 * unit, 12 * unit, 2 * unit)
        # attention dropout: softmax, its dropped-out copy, and a mask of a quarter of an fp32 element
        assert block.scores == 2.25 * heads * model.sequence**2


def test_llama_block_holds_gate_up_activation_and_product() -> None:
    block, unit, model = block_of("llama-3-8b")
    assert block.held_split == (1 + 0.25 + 0.25 + 1) * unit + 4 * model.sequence * 14336
    assert block.held_whole == 6 * unit  # two norms: input, normalised input; and their outputs


def test_ends_hold_output_and_logits() -> None:
    model = build_named_model("opt-30b")
    unit = model.layers[0].output
    assert (model.layers[0].held_whole, model.layers[0].mask_bytes) == (unit, 0)
    assert (model.layers[-1].held_whole, model.layers[-1].held_split) == (2 * unit, 2 * model.sequence * 50272)


# On CPU, torch keeps masks as floats, so dropout stays out of the comparison with autograd.
NO_DROPOUT = {f"{part}_dropout": 0.0 for part in ("hidden", "attention", "embedding", "inner", "output")}


def held_by_autograd(reference: Any, blocks: Any, inputs: dict[str, Any]) -> int:
    """Elements that autograd saves while the blocks run, each tensor once.

    Left out: parameters, indices, and what is smaller than half a hidden state (deviations of norms, rotary tables).
    """
    import torch

    known = {p.untyped_storage().data_ptr() for p in reference.parameters()}
    kept: dict[int, torch.Tensor] = {}
    inside = [0]

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if inside[0] and tensor.is_floating_point() and tensor.numel() > SEQUENCE * 32:
            pointer = tensor.untyped_storage().data_ptr()
            if pointer not in known:
                kept[pointer] = tensor
        return tensor

    for block in blocks:
        block.register_forward_pre_hook(lambda *_: inside.__setitem__(0, inside[0] + 1))
        block.register_forward_hook(lambda *_: inside.__setitem__(0, inside[0] - 1))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = reference(**inputs, use_cache=False)
    assert output.loss is not None
    return sum(tensor.untyped_storage().nbytes() // 4 for tensor in kept.values())


@pytest.mark.parametrize(
    ("kind", "blocks", "options"),
    [
        ("opt", "model.decoder.layers", {"dropout": 0.0}),
        ("opt projected", "model.decoder.layers", {"dropout": 0.0}),
        ("bert", "bert.encoder.layer", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
        ("gpt2", "transformer.h", {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "activation_function": "gelu"}),
        ("gpt_neo", "transformer.h", {"activation_function": "gelu"}),
        ("llama", "model.layers", {}),
        ("gemma", "model.layers", {}),
        ("t5", "encoder.block", {"dropout_rate": 0.0}),
    ],
)
def test_autograd_holds_what_is_counted(kind: str, blocks: str, options: dict[str, Any]) -> None:
    reference = build_reference(small_config(kind), "cpu", **options).train()
    model = small_model(kind, **NO_DROPOUT)
    modules: Any = reference
    for part in blocks.split("."):
        modules = getattr(modules, part)
    count = len(modules)
    counted = sum(layer.held_split + layer.held_whole + layer.scores for layer in model.layers[1 : 1 + count])
    assert held_by_autograd(reference, modules, training_inputs(kind)) == counted


# ---- Layers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_names())
def test_layers_are_whole_and_consistent(name: str) -> None:
    model = build_named_model(name)
    architecture = load_catalogue_models()[name].architecture()
    assert model.layers[0].kind is LayerKind.EMBEDDING
    assert model.layers[-1].kind is LayerKind.HEAD
    by_shape: dict[str, Layer] = {}
    for layer in model.layers:
        first = by_shape.setdefault(layer.shape, layer)
        for one, other in ((layer, first), (layer.own or layer, first.own or first)):
            assert replace(one, name=other.name, own=None) == replace(other, own=None)
        assert layer.tied <= layer.params
        assert layer.kernels > 0 and layer.output > 0
        assert layer.head_width == (architecture.kv_heads if layer.kind is LayerKind.BLOCK else 0)
        assert all(math.isfinite(value) and value >= 0 for value in _amounts(layer))
        weights = sum(m.batch * m.inner * m.columns for m in layer.matmuls if m.weight)
        if layer.kind is LayerKind.BLOCK:
            assert weights <= layer.params <= 1.02 * weights
    assert len({layer.name for layer in model.layers}) == len(model.layers)


def _amounts(layer: Layer) -> Iterator[float]:
    yield from (layer.moved_split, layer.moved_whole, layer.scores, layer.held_split, layer.held_whole)


def test_decoder_of_t5_carries_the_encoders_output() -> None:
    model = build_named_model("t5-small")
    assert model.layers[7].name == "decoder embedding"
    assert model.layers[7].tied == 32128 * 512
    assert model.layers[8].output == (512 + 114) * 512
    assert model.layers[8].reductions == 3
    assert [layer.shape for layer in model.layers[7:10]] == [
        "decoder embedding",
        "first decoder block",
        "decoder block",
    ]


def test_experts_see_their_share_of_tokens() -> None:
    block = build_named_model("mixtral-8x7b", 4096).layers[1]
    experts = [m for m in block.matmuls if m.batch == 8]
    assert [(m.rows, m.inner, m.columns) for m in experts] == [(1024, 4096, 28672), (1024, 14336, 4096)]
