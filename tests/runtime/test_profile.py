"""`hulk profile` on this computer's processor: every kind of model is timed, whole and in slices, and prices use it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hulk.cli import main
from hulk.cost.compute import TimeOrigin
from hulk.cost.roofline import Conditions
from hulk.domain.gpu import Precision
from hulk.domain.job import Attention
from hulk.domain.model import LayerKind, Model
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.models import build_model_from_path
from hulk.io.profiles import compute_with
from hulk.runtime.layer_times import ROW, Way, time_layers, typical_blocks
from hulk.runtime.profile import Group, curves

CPU = torch.device("cpu")
GPT = {"model_type": "gpt2", "n_embd": 32, "n_layer": 6, "n_head": 4, "vocab_size": 101, "n_positions": 64}
LLAMA = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
LLAMA |= {"num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 100, "max_position_embeddings": 64}
OPT = {"model_type": "opt", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64}
OPT |= {"vocab_size": 100, "max_position_embeddings": 64, "word_embed_proj_dim": 32}
BERT = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT |= {"intermediate_size": 64, "vocab_size": 100, "max_position_embeddings": 64}
T5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 3, "vocab_size": 100}
NEO = {"model_type": "gpt_neo", "hidden_size": 32, "num_heads": 4, "num_layers": 2, "vocab_size": 100}
NEO |= {"max_position_embeddings": 64, "attention_types": [[["global", "local"], 1]]}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take longer than these layers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model_of(folder: Path, config: dict) -> Model:
    path = folder / f"{config['model_type']}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return build_model_from_path(path, 16)


@pytest.mark.parametrize("config", [GPT, LLAMA, OPT, BERT, T5, NEO], ids=lambda config: config["model_type"])
@pytest.mark.parametrize("slices", [1, 2])
def test_every_kind_of_model_is_timed(tmp_path, config, slices):
    model = model_of(tmp_path, config)
    times = list(time_layers(model, Way(CPU, Precision.FP32, Attention.FUSED, slices), [1]))
    assert [each.layer.kind for each in times] == [LayerKind.EMBEDDING, LayerKind.HEAD, LayerKind.BLOCK]
    assert all(each.forward > 0 and each.backward > 0 and each.held > 0 for each in times)


def test_blocks_are_those_a_model_has_most_of(tmp_path):
    model = model_of(tmp_path, GPT)
    blocks = typical_blocks(model)
    assert len(blocks) == ROW
    assert {model.layers[index].kind for index in blocks} == {LayerKind.BLOCK}
    assert len({model.layers[index].shape for index in typical_blocks(model_of(tmp_path, T5))}) == 1


def test_more_samples_hold_more_and_slices_hold_less(tmp_path):
    model = model_of(tmp_path, GPT)

    def held(slices: int) -> list[float]:
        times = time_layers(model, Way(CPU, Precision.FP32, Attention.EAGER, slices), [2, 4])
        return [each.held for each in times if each.layer.kind is LayerKind.HEAD]

    whole, half = held(1), held(2)
    assert whole[0] < whole[1]
    assert half[1] <= whole[1]


def test_a_slice_has_its_groups_all_reduces_added(tmp_path):
    model, card = model_of(tmp_path, GPT), gpu("v100-16")
    group = Group(model, Precision.FP32, Attention.FUSED, 2)
    times = list(time_layers(model, Way(CPU, Precision.FP32, Attention.FUSED, 2), [1]))
    heads = [each for each in times if each.layer.kind is LayerKind.HEAD]
    (row,) = [row for row in curves(group, heads, card) if row["kind"] == "head"]
    assert row["forward"][0] == pytest.approx(heads[0].forward, rel=1e-3)  # a head reduces in backward alone
    assert row["backward"][0] > heads[0].backward


def hulk(monkeypatch, folder: Path, *arguments: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["hulk", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


PAGE = (Path(__file__).parents[2] / "docs" / "profile.md").read_text(encoding="utf-8")
FILES = ("tiny.json", "cluster.yaml", "jobs.yaml")


def test_the_page_works_as_it_stands(tmp_path, monkeypatch, capsys):
    section = PAGE.partition("## To try it out")[2].partition("\n## ")[0]
    for name, block in zip(FILES, re.findall(r"^```(?:json|yaml)\n(.*?)^```$", section, re.M | re.S), strict=True):
        (tmp_path / name).write_text(block, encoding="utf-8")
    lines = re.search(r"^```sh\n(.*?)^```$", section, re.M | re.S)[1].splitlines()
    for line in lines:
        command, *arguments = shlex.split(line)
        assert command == "hulk"
        assert hulk(monkeypatch, tmp_path, *arguments) == 0, capsys.readouterr().err
    assert "calibrated" not in (said := capsys.readouterr().out)
    assert "measured" in said


ON_CPU = ("--device", "cpu", "--gpu", "v100-16", "--precision", "fp32", "--sequence", "16")


def test_a_profile_is_written_and_prices_use_it(tmp_path, monkeypatch, capsys):
    model = model_of(tmp_path, GPT)
    given = ("profile", "gpt2.json", *ON_CPU, "--microbatch", "1,2", "--tensor-parallel", "1,2,3", "-o", "p.json")
    assert hulk(monkeypatch, tmp_path, *given) == 0
    assert "roofline" in capsys.readouterr().out
    profile = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert "torch" in profile["source"]
    assert {row["tensor_parallel"] for row in profile["curves"]} == {1, 2}  # 3 does not divide 4 heads
    compute, card = compute_with([tmp_path / "p.json"]), gpu("v100-16")
    how = Conditions(Precision.FP32, Attention.FUSED, microbatch=2, tensor_parallel=1)
    found = compute.layer_times(model, len(model.layers) - 1, card, how)
    (row,) = [row for row in profile["curves"] if row["kind"] == "head" and row["tensor_parallel"] == 1]
    assert found == (row["forward"][1], row["backward"][1], TimeOrigin.MEASURED)
    assert hulk(monkeypatch, tmp_path, *given) == 2
    assert "this file exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-model", "-o", "p.json", *ON_CPU), "unknown model"),
        (("xlnet-large", "-o", "p.json", *ON_CPU), "cannot be built here"),
        (("gpt2", "gpt2", "-o", "p.json", *ON_CPU), "given twice"),
        (("gpt2", "-o", "p.json", *ON_CPU[:2]), "which GPU"),
        (("gpt2", "-o", "p.json", *ON_CPU, "--precision", "int3"), "unknown value 'int3'"),
        (("gpt2", "-o", "p.json", *ON_CPU, "--microbatch", "1,x"), "whole numbers"),
        (("gpt2", "-o", "p.json", *ON_CPU, "--device", "tpu"), "cuda or cpu"),
        (("gpt2", "-o", "no/such/p.json", *ON_CPU), "No such file"),
    ],
)
def test_bad_input(tmp_path, monkeypatch, capsys, arguments, words):
    assert hulk(monkeypatch, tmp_path, "profile", *arguments) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", '{"source": "x", "curves": [7]}', '{"source": "x"}', "é"])
def test_a_file_that_is_no_profile(tmp_path, text):
    (tmp_path / "p.json").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"p\.json"):
        compute_with([tmp_path / "p.json"])
