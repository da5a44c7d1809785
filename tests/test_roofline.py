"""The roofline: physical floors, how it scales, and its error on GPU types that the fit has not seen."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hulk.cost.ceilings import FITTED, Unit, unit_of
from hulk.cost.collectives import KNOWN_RINGS, MEASURED_RINGS, REPORTED_RINGS, Operation, collective_time, ring
from hulk.cost.roofline import Conditions, layer_time
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer
from hulk.io.gpus import gpu, load_gpus
from hulk.io.models import build_named_model

MODELS = ("gpt2-xl", "llama-3-8b", "bert-large", "t5-11b", "mixtral-8x7b", "xlnet-large")
CARDS = sorted({card.name for card in load_gpus().values()})

cards = st.sampled_from(CARDS).map(gpu)
layers = st.builds(
    lambda name, at: build_named_model(name, 512).layers[at], st.sampled_from(MODELS), st.sampled_from((0, 1, 2, -1))
)
precisions, attentions = st.sampled_from(Precision), st.sampled_from(Attention)
microbatches, degrees = st.integers(1, 64), st.sampled_from((1, 2, 4, 8))


def seconds(layer: Layer, card: GpuType, **how: object) -> tuple[float, float]:
    given = {"precision": Precision.BF16, "attention": Attention.FUSED, "microbatch": 1, "tensor_parallel": 1}
    return layer_time(layer, card, Conditions(**(given | how)))


@settings(max_examples=200, deadline=None)
@given(layers, cards, precisions, attentions, microbatches, degrees)
def test_never_below_the_physical_floor(
    layer: Layer, card: GpuType, precision: Precision, attention: Attention, microbatch: int, degree: int
) -> None:
    forward, backward = seconds(
        layer, card, precision=precision, attention=attention, microbatch=microbatch, tensor_parallel=degree
    )
    weights = sum(m.flops for m in layer.matmuls if m.weight)
    # fused attention may skip the half that a causal mask hides
    inside = sum(m.flops for m in layer.matmuls if not m.weight) * (0.5 if attention is Attention.FUSED else 1.0)
    floor = microbatch * (weights + inside) / degree / card.rate(precision)
    assert forward >= floor * (1 - 1e-9)
    assert backward >= 2 * floor * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(layers, cards, precisions, attentions, microbatches, degrees)
def test_more_samples_never_take_less_and_never_more_than_in_proportion(
    layer: Layer, card: GpuType, precision: Precision, attention: Attention, microbatch: int, degree: int
) -> None:
    how = {"precision": precision, "attention": attention, "tensor_parallel": degree}
    one = seconds(layer, card, microbatch=microbatch, **how)
    two = seconds(layer, card, microbatch=2 * microbatch, **how)
    for smaller, larger in zip(one, two, strict=True):
        assert smaller <= larger <= 2 * smaller * (1 + 1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_eager_attention_costs_more_than_fused_at_long_sequences(name: str) -> None:
    block = build_named_model(name, 512).layers[2]
    how = {"microbatch": 64}
    assert sum(seconds(block, gpu("h200"), attention=Attention.EAGER, **how)) > sum(
        seconds(block, gpu("h200"), attention=Attention.FUSED, **how)
    )


def test_backward_takes_about_twice_forward_where_products_dominate() -> None:
    forward, backward = seconds(build_named_model("opt-30b", 2048).layers[1], gpu("a100-80"), microbatch=4)
    assert 1.7 < backward / forward < 2.6


def test_tensor_parallel_pays_less_over_slow_links() -> None:
    block = build_named_model("opt-30b", 2048).layers[1]
    nvlink, pcie = (
        sum(seconds(block, gpu(name), microbatch=8)) / sum(seconds(block, gpu(name), microbatch=8, tensor_parallel=8))
        for name in ("h100", "rtx-4090")
    )
    assert 3 < nvlink < 8
    assert pcie < 0.7 * nvlink


def test_units() -> None:
    assert unit_of(gpu("v100-16"), Precision.TF32) is Unit.FP32
    assert unit_of(gpu("h200"), Precision.FP32) is Unit.FP32_WIDE
    assert unit_of(gpu("a100-40"), Precision.TF32) is Unit.TF32
    assert unit_of(gpu("h200"), Precision.TF32) is Unit.TF32_TURNING
    assert unit_of(gpu("rtx-3090"), Precision.BF16) is Unit.HALF


class TestCollectives:
    def test_one_gpu_exchanges_nothing(self) -> None:
        assert collective_time(Operation.ALL_REDUCE, 1e9, gpu("h200"), 1) == 0.0

    def test_an_all_reduce_moves_what_its_two_halves_move(self) -> None:
        card, size, count = gpu("a100-40"), 1e9, 4
        halves = [collective_time(half, size, card, count) for half in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)]
        whole = collective_time(Operation.ALL_REDUCE, size, card, count)
        assert whole == pytest.approx(sum(halves) - ring(card, count).latency)

    def test_measured_all_reduces_are_met(self) -> None:
        text = (Path(__file__).parents[1] / "src/hulk/data/profiles/collectives.json").read_text()
        for row in json.loads(text)["collectives"]:
            predicted = collective_time(Operation.ALL_REDUCE, row["bytes"][-1], gpu(row["gpu"]), row["gpus"])
            assert predicted == pytest.approx(row["seconds"][-1], rel=0.15)

    def test_a_card_that_nothing_is_known_of_takes_its_link(self) -> None:
        assert "l40s" not in KNOWN_RINGS
        assert ring(gpu("l40s"), 8).bandwidth < gpu("l40s").link_bandwidth
        assert ring(gpu("gh200-144"), 4) == ring(gpu("gh200-96"), 4)

    def test_what_was_measured_goes_before_what_is_reported(self) -> None:
        assert ring(gpu("a100-40"), 4) == MEASURED_RINGS["a100-40"][4]
        assert ring(gpu("a100-40"), 8) == REPORTED_RINGS["a100-40"][8]

    @pytest.mark.parametrize(("name", "gpus", "least", "most"), [("a100-80", 8, 200, 240), ("h100", 8, 430, 490)])
    def test_large_all_reduces_of_usual_machines(self, name: str, gpus: int, least: float, most: float) -> None:
        size = 1e9
        bus = 2 * (gpus - 1) / gpus * size / collective_time(Operation.ALL_REDUCE, size, gpu(name), gpus)
        assert least < bus / 1e9 < most


class TestAccuracy:
    def test_types_left_out_of_the_fit_are_within_20_percent(self) -> None:
        from layer_accuracy import leave_one_out, percent

        for with_rings in (True, False):
            points, deviations = leave_one_out(with_rings=with_rings)
            assert len(points) == 213
            assert percent(deviations) <= 20.0

    def test_shipped_constants_on_the_h200_are_within_20_percent(self) -> None:
        from fit_roofline import errors
        from layer_accuracy import percent
        from layer_points import h200_points

        for precision in set(Precision) - {Precision.FP8}:
            points = [point for point in h200_points() if point.precision is precision]
            assert len(points) > 30
            assert percent(errors(points, FITTED)) <= 20.0

    def test_the_fit_reproduces_the_shipped_constants(self) -> None:
        from fit_roofline import fit_shipped

        again = asdict(fit_shipped())
        for name in (field.name for field in fields(FITTED)):
            assert again[name] == pytest.approx(getattr(FITTED, name), rel=0.02), name

    def test_a_file_of_layers(self, tmp_path: Path) -> None:
        from layer_accuracy import file_report

        block = build_named_model("llama-3-8b", 1024).layers[1]
        forward, backward = seconds(block, gpu("h200"), microbatch=2)
        row = {"gpu": "NVIDIA H200", "model": "llama-3-8b", "precision": "bf16", "microbatch": 2, "sequence": 1024}
        path = tmp_path / "layers.jsonl"
        path.write_text(json.dumps(row | {"forward_s": forward, "backward_s": backward}) + "\n")
        report = file_report(path)
        assert report.ok
        assert report.figures["median_error_percent"] == pytest.approx(0.0, abs=1e-6)
        path.write_text(json.dumps(row | {"forward_s": 2 * forward, "backward_s": 2 * backward}) + "\n")
        assert not file_report(path).ok


def test_blocks_measured_after_the_fit_are_predicted_within_the_bound() -> None:
    """84 bf16 blocks on an H200 that no constant was fitted on."""
    from layer_accuracy import file_report

    report = file_report(Path(__file__).parents[1] / "benchmarks" / "data" / "h200_heldout.jsonl")
    assert report.figures["blocks"] == 84
    assert report.holds("median_error_percent"), report.figures
