"""What another engine changes in a price: kernels, attention, memory; and the option that names it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import Result
from typer.testing import CliRunner

import small
from hulk.cli.app import app
from hulk.cost.engine import ENGINES, HULK, MEGATRON, Engine
from hulk.cost.layers import build_model
from hulk.cost.memory import layer_memory
from hulk.cost.roofline import Conditions, layer_time
from hulk.domain.gpu import Precision
from hulk.domain.job import Attention, Job
from hulk.domain.model import Layer
from hulk.domain.options import Options, Recompute
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.hf_config import architecture_from_config
from hulk.io.models import build_named_model

WIDTH, HEADS, SEQUENCE, SAMPLES = 6144, 64, 2048, 4
GPT = {
    "model_type": "gpt2", "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": SEQUENCE, "vocab_size": 51200,
    "resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1,
}  # fmt: skip


def gpt_job(attention: Attention) -> Job:
    model = build_model(architecture_from_config(GPT, where="gpt"), name="gpt", sequence=SEQUENCE)
    return Job("gpt", model, SAMPLES, Precision.FP16, attention=attention)


def held(job: Job, ranks: int, recompute: Recompute = Recompute.NONE, engine: Engine = MEGATRON) -> float:
    """Bytes that one rank keeps of one block."""
    block = job.model.layers[1]
    memory = layer_memory(block, SEQUENCE * WIDTH, job, Options(SAMPLES, recompute=recompute), engine)
    return memory.held_split / ranks + memory.held_whole


class TestMemory:
    """Korthikanti et al. 2022 (arXiv 2205.05198), equations 1 and 2: bytes of a block's activations."""

    unit = SEQUENCE * SAMPLES * WIDTH

    @pytest.mark.parametrize("ranks", [1, 2, 8])
    def test_flash_attention(self, ranks: int) -> None:
        assert held(gpt_job(Attention.FUSED), ranks) == pytest.approx(self.unit * (10 + 24 / ranks))

    @pytest.mark.parametrize("ranks", [1, 2, 8])
    def test_scores(self, ranks: int) -> None:
        scores = 5 * HEADS * SEQUENCE / WIDTH / ranks
        expected = self.unit * (10 + 24 / ranks + scores)
        assert held(gpt_job(Attention.FUSED_SOFTMAX), ranks) == pytest.approx(expected)

    def test_recomputation_keeps_the_input(self) -> None:
        assert held(gpt_job(Attention.FUSED_SOFTMAX), 8, Recompute.FULL) == pytest.approx(2 * self.unit)

    def test_joined_kernels_hold_less_of_a_gated_block(self) -> None:
        model = build_named_model("llama-3-8b", 1024)
        job = Job("llama", model, 1, Precision.BF16)
        memories = [
            layer_memory(model.layers[1], 0.0, job, Options(1), engine) for engine in (HULK, ENGINES["torchtitan"])
        ]
        eager, joined = (memory.held_split + memory.held_whole for memory in memories)
        assert joined < 0.95 * eager

    def test_a_vocabulary_parallel_loss_holds_the_softmax_in_fp32(self) -> None:
        job = gpt_job(Attention.FUSED)
        memory = layer_memory(job.model.layers[-1], SEQUENCE * WIDTH, job, Options(SAMPLES), MEGATRON)
        logits = SAMPLES * SEQUENCE * 51200
        assert memory.held_split == pytest.approx(4 * logits)
        assert memory.peak_split == pytest.approx(2 * logits)


def hulk(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def seconds(layer: Layer, name: str, **how: object) -> float:
    given = {"precision": Precision.FP16, "attention": Attention.FUSED, "microbatch": 4, "tensor_parallel": 1}
    return sum(layer_time(layer, gpu(name), Conditions(**(given | how))))


class TestTime:
    @pytest.mark.parametrize("name", ["v100-32", "a100-80", "h100"])
    def test_each_kind_of_attention_is_dearer_than_the_next(self, name: str) -> None:
        block = gpt_job(Attention.FUSED).model.layers[1]
        order = (Attention.FUSED, Attention.FUSED_SOFTMAX, Attention.EAGER)
        for fused in (False, True):
            times = [seconds(block, name, attention=attention, fused=fused) for attention in order]
            assert times == sorted(times)
            assert times[0] < 0.95 * times[2]

    @pytest.mark.parametrize("model", ["gpt2-xl", "llama-3-8b", "bert-large"])
    def test_joined_kernels_are_quicker(self, model: str) -> None:
        block = build_named_model(model, 512).layers[2]
        assert seconds(block, "a100-80", microbatch=16, fused=True) < seconds(block, "a100-80", microbatch=16)

    def test_flash_attention_takes_a_larger_share_of_an_a100_than_of_an_h100(self) -> None:
        """At 8k tokens, forward and backward: 3.5 times the forward products, half of them hidden by the mask."""
        model = build_model(
            architecture_from_config(GPT | {"n_positions": 8192}, where="gpt"), name="gpt", sequence=8192
        )
        whole = model.layers[1]
        bare = replace(whole, matmuls=tuple(m for m in whole.matmuls if m.weight))
        products = sum(m.flops for m in whole.matmuls if not m.weight)
        shares = {}
        for name in ("a100-80", "h100"):
            spent = seconds(whole, name, microbatch=1) - seconds(bare, name, microbatch=1)
            shares[name] = 0.5 * 3.5 * products / spent / gpu(name).rate(Precision.FP16)
        assert 0.45 < shares["a100-80"] < 0.65
        assert shares["h100"] < 0.45

    def test_hidden_exchange(self) -> None:
        block = gpt_job(Attention.FUSED).model.layers[1]
        bare, half, whole = (seconds(block, "a100-80", tensor_parallel=8, hidden=share) for share in (0.0, 0.5, 1.0))
        assert bare - half == pytest.approx(half - whole)
        assert whole < 0.9 * bare


class TestOption:
    def test_a_price_is_made_for_the_engine_that_is_named(self, tmp_path) -> None:
        steps = {}
        for name in ENGINES:
            done = hulk("price", *small.write_files(tmp_path), "--json", "--engine", name)
            assert done.exit_code == 0, done.output
            steps[name] = json.loads(done.stdout)["jobs"]["bert"]["step_s"]
        assert steps["megatron"] < steps["hulk"]
        assert len(set(steps.values())) == len(steps)

    def test_a_simulation_agrees_with_the_price_of_its_engine(self, tmp_path) -> None:
        done = hulk("simulate", *small.write_files(tmp_path), "--json", "--no-contention", "--engine", "megatron")
        played = json.loads(done.stdout)["jobs"]["second"]
        assert played["step_s"] == pytest.approx(played["price_s"])

    @pytest.mark.parametrize("verb", ["price", "simulate", "explain", "replan"])
    def test_an_unknown_engine_is_refused(self, tmp_path, verb: str) -> None:
        done = hulk(verb, *small.write_files(tmp_path), "--engine", "megatorn")
        assert isinstance(done.exception, InputError)
        assert done.exception.exit_code == 2
        assert "did you mean 'megatron'" in str(done.exception)

    @pytest.mark.parametrize("verb", ["plan", "compare"])
    def test_before_anything_is_planned(self, verb: str) -> None:
        assert isinstance(hulk(verb, "hulk47", "paper4", "--engine", "nobody").exception, InputError)
