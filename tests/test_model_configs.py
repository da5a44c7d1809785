"""Models by name and from files: what is wrong in a config comes out as an InputError that says so."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hulk.cost.layers import build_model
from hulk.errors import InputError
from hulk.io.hf_config import architecture_from_config, load_config
from hulk.io.models import build_model_from_path, build_named_model, hub_name, load_catalogue_models

LLAMA = load_catalogue_models()["llama-3-8b"].config
GPT2 = load_catalogue_models()["gpt2"].config


def test_names() -> None:
    assert build_named_model("GPT2-1.5B").name == "gpt2-xl"
    assert build_named_model("bert-large", 128).sequence == 128
    with pytest.raises(InputError, match="did you mean 'opt-30b'"):
        build_named_model("opt-30")
    with pytest.raises(InputError, match="1 to 512"):
        build_named_model("roberta-large", 513)
    with pytest.raises(InputError, match="encoder-decoder"):
        build_named_model("gpt2", 128, 64)


def test_model_from_path(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(GPT2))
    model = build_model_from_path(folder)
    assert (model.name, model.sequence, model.params) == ("mine", 1024, build_named_model("gpt2").params)
    (folder / "llama.json").write_text(json.dumps({"model_type": "any", "text_config": LLAMA}))
    assert build_model_from_path(folder / "llama.json", 32).name == "llama"
    with pytest.raises(InputError, match="give a sequence length"):
        build_model_from_path(folder / "llama.json")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("meta-llama/Meta-Llama-3-8B", "the catalogue has this model of huggingface.co as 'llama-3-8b'"),
        ("https://huggingface.co/meta-llama/meta-llama-3-8b", "as 'llama-3-8b'"),
        ("Qwen/Qwen2.5-7B", "`hf download Qwen/Qwen2.5-7B config.json --local-dir Qwen2.5-7B`, then give the path"),
        ("models/mine", "then give the path mine/config.json"),
    ],
)
def test_names_of_the_hub_say_what_to_do(tmp_path: Path, given: str, hint: str) -> None:
    for path, folder in ((given, tmp_path), (given, None)):
        with pytest.raises(InputError) as raised:
            build_model_from_path(path, 32, folder=folder)
        assert "no such file or folder" in raised.value.message
        assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    "given",
    [
        "a",
        "a/b/c",
        "./a/b",
        "/a/b",
        "../b",
        "a/config.json",
        "a/b.yaml",
        "a b/c",
        "a/",
        "/a",
        "https://else.org/a/b",
        "",
    ],
)
def test_paths_are_no_names_of_the_hub(given: str) -> None:
    assert hub_name(given) is None


def test_a_folder_that_is_there_is_no_name_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "meta-llama" / "Meta-Llama-3-8B").mkdir(parents=True)
    (tmp_path / "meta-llama" / "Meta-Llama-3-8B" / "config.json").write_text(json.dumps(LLAMA | {"hidden_size": 64}))
    assert build_model_from_path("meta-llama/Meta-Llama-3-8B", 32, folder=tmp_path).name == "Meta-Llama-3-8B"


def test_the_catalogue_names_repositories_once() -> None:
    entries = {entry.name: entry for entry in load_catalogue_models().values()}
    named = [each.lower() for entry in entries.values() for each in entry.hub]
    assert len(set(named)) == len(named) and all(hub_name(each) == each for each in named)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"{", b"[]", b"", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b" " * 10_000_001],
    ids=["not UTF-8", "not JSON", "a list", "empty", "deep", "many digits", "large"],
)
def test_unreadable_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"config\.json: "):
        load_config(path)


def test_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path, Path("a\0b")):
        with pytest.raises(InputError):
            load_config(path)


@pytest.mark.parametrize("value", [-1, 0, True, "64", 1e30, 10**30, math.nan, math.inf, 64.0, [64], {}])
@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "vocab_size", "num_key_value_heads"])
def test_impossible_numbers(field: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^here: {field} is "):
        architecture_from_config(LLAMA | {field: value}, where="here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "lama"}, "did you mean 'llama'"),
        ({"model_type": None}, "model_type is None"),
        ({"model_type": ["opt"]}, "expected a name"),
        ({"hidden_size": None}, r"hidden_size is missing \(or n_embd or d_model\)"),
        ({"hidden_act": "gelo"}, "did you mean 'gelu'"),
        ({"attention_dropout": 1.5}, "probability"),
        ({"attention_dropout": math.nan}, "probability"),
        ({"tie_word_embeddings": "no"}, "true or false"),
        ({"num_attention_heads": 7}, "not a multiple of its 7 heads"),
        ({"num_key_value_heads": 3}, "evenly"),
        ({"num_attention_heads": 6, "head_dim": 128}, "evenly"),
        ({"add_cross_attention": True}, "not supported"),
        ({"model_type": "mixtral", "num_key_value_heads": 4, "num_experts_per_tok": 9}, "9 of 8 experts"),
    ],
)
def test_wrong_configs_say_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        architecture_from_config(LLAMA | change, where="here")
    assert raised.value.where == "here"


CONFIGS = {name: entry.config for name, entry in load_catalogue_models().items()}
FIELDS = sorted({key for config in CONFIGS.values() for key in config} | {"text_config", "hidden_act", "head_dim"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(1, 64) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(CONFIGS)), changes=st.dictionaries(st.sampled_from(FIELDS) | st.text(), JSON))
def test_any_json_object_is_a_model_or_an_input_error(name: str, changes: dict[str, Any]) -> None:
    try:
        architecture = architecture_from_config(CONFIGS[name] | changes, where="here")
        model = build_model(architecture, name="any", sequence=16)
    except InputError as error:
        assert str(error)
    else:
        assert model.params > 0
        assert 0 < model.flops_per_sample < math.inf
