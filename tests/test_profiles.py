"""Measured layer profiles: lookups give back what was measured, and something sensible around it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hulk.cost.compute import ComputeModel, TimeOrigin, update_time
from hulk.cost.profiles import Curve, CurveKey, Measured, ProfileBook
from hulk.cost.roofline import Conditions
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention, Optimizer
from hulk.domain.model import LayerKind, Model
from hulk.errors import InputError
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_profiles, parse_profiles

KEY = CurveKey("opt-350m", "v100-16", Precision.FP32, Attention.EAGER, 2048, 1, LayerKind.BLOCK)
CURVE = Curve(microbatch=(2, 4, 8), forward=(0.02, 0.03, 0.07), backward=(0.04, 0.06, 0.14))
HOW = Conditions(Precision.TF32, Attention.EAGER, microbatch=1, tensor_parallel=1)


@pytest.fixture(scope="module")
def model() -> Model:
    return build_named_model("opt-350m", 2048)


@pytest.fixture
def v100() -> GpuType:
    return gpu("v100-16")


def block_times(book: ProfileBook, model: Model, card: GpuType, microbatch: int, tensor_parallel: int = 1):
    how = replace(HOW, microbatch=microbatch, tensor_parallel=tensor_parallel)
    return ComputeModel(book).layer_times(model, 1, card, how)


class TestCurve:
    @pytest.mark.parametrize(("microbatch", "forward"), [(2, 0.02), (4, 0.03), (8, 0.07)])
    def test_a_measured_microbatch_is_given_back_exactly(self, microbatch: int, forward: float) -> None:
        assert CURVE.at(microbatch) == Measured(forward, 2 * forward)

    def test_between_two_it_is_linear(self) -> None:
        assert CURVE.at(6) == Measured(pytest.approx(0.05), pytest.approx(0.10))

    def test_above_the_largest_it_follows_the_last_two(self) -> None:
        assert CURVE.at(12) == Measured(pytest.approx(0.11), pytest.approx(0.22))

    def test_below_the_smallest_there_is_nothing(self) -> None:
        assert CURVE.at(1) is None

    def test_a_single_point_scales_with_the_microbatch(self) -> None:
        assert Curve((2,), (0.02,), None).at(6) == Measured(pytest.approx(0.06), None)

    def test_a_falling_end_is_not_followed_below(self) -> None:
        assert Curve((1, 2), (0.02, 0.01), None).at(8) == Measured(pytest.approx(0.02), None)

    @given(st.integers(2, 64))
    def test_more_samples_never_take_less(self, microbatch: int) -> None:
        smaller, larger = CURVE.at(microbatch), CURVE.at(microbatch + 1)
        assert smaller is not None
        assert larger is not None
        assert larger.forward >= smaller.forward

    @pytest.mark.parametrize(
        "bad",
        [
            {"microbatch": (4, 2, 8)},
            {"microbatch": (0, 2, 8)},
            {"microbatch": (2, 4)},
            {"forward": (0.02, 0.0, 0.07)},
            {"backward": (0.04,)},
        ],
    )
    def test_impossible_curves_are_refused(self, bad: dict[str, tuple[float, ...]]) -> None:
        with pytest.raises(InputError):
            replace(CURVE, **bad)


class TestBook:
    def test_a_tf32_job_finds_the_fp32_profile_where_the_card_has_no_tf32(self, model: Model, v100: GpuType) -> None:
        assert block_times(ProfileBook({KEY: CURVE}), model, v100, 4) == (0.03, 0.06, TimeOrigin.MEASURED)
        assert block_times(ProfileBook({KEY: CURVE}), model, gpu("a100-40"), 4).origin is TimeOrigin.ROOFLINE

    def test_a_16_bit_job_does_not_find_an_fp32_profile(self, model: Model, v100: GpuType) -> None:
        assert CurveKey.of(model, model.layers[1], v100, HOW) == KEY
        half = replace(HOW, precision=Precision.BF16)  # which a V100 does in fp32
        assert CurveKey.of(model, model.layers[1], v100, half) is None
        assert ComputeModel(ProfileBook({KEY: CURVE})).layer_times(model, 1, v100, half).origin is TimeOrigin.ROOFLINE

    def test_every_bundled_measurement_is_given_back_exactly(self, model: Model) -> None:
        book = bundled_profiles()
        assert len(book.curves) > 150
        for key, curve in book.curves.items():
            asked = CurveKey.of(
                replace(model, name=key.model, sequence=key.sequence), replace(model.layers[0], kind=key.kind),
                gpu(key.gpu), Conditions(key.precision, key.attention, 1, key.tensor_parallel),
            )  # fmt: skip
            found = book.curve(asked)
            assert key.tensor_parallel in book.degrees(asked)
            for index, microbatch in enumerate(curve.microbatch):
                backward = curve.backward[index] if curve.backward else None
                assert found.at(microbatch) == (curve.forward[index], backward)

    def test_the_artifacts_own_numbers(self) -> None:
        """Three values read off the SOSP '25 Sailor artifact by hand."""
        curves = bundled_profiles().curves
        head = curves[KEY._replace(kind=LayerKind.HEAD)]
        assert head.forward[head.microbatch.index(1)] == pytest.approx(18.64e-3, rel=1e-3)
        neo = KEY._replace(model="gpt-neo-2.7b", gpu="gh200-96", precision=Precision.TF32, tensor_parallel=4)
        assert curves[neo].backward[curves[neo].microbatch.index(8)] == pytest.approx(13.93e-3, rel=1e-3)
        # Ran without TF32: 18 TFLOP/s on a card of 19.5.
        assert KEY._replace(model="opt-30b", gpu="a100-40") in curves

    def test_embedding_backward_and_gpt_neo_head_are_missing(self) -> None:
        for key, curve in bundled_profiles().curves.items():
            if key.gpu == "h200":  # not the artifact's
                continue
            assert (curve.backward is None) == (key.kind is LayerKind.EMBEDDING)
            assert (key.model, key.kind) != ("gpt-neo-2.7b", LayerKind.HEAD)

    def test_a_file_that_is_no_profile_is_an_input_error(self) -> None:
        with pytest.raises(InputError, match=r"mine\.json"):
            parse_profiles('{"source": "x", "curves": [{"model": "m"}]}', where="mine.json")
        row = {"model": "m", "gpu": "g", "precision": "fp32", "attention": "eager", "sequence": 8, "tensor_parallel": 1}
        row |= {"kind": "block", "microbatch": [1], "forward": [-1.0], "backward": None}
        with pytest.raises(InputError, match="above zero"):
            parse_profiles(json.dumps({"source": "x", "curves": [row]}), where="mine.json")


class TestComputeModel:
    def test_measured_where_there_is_a_profile(self, model: Model, v100: GpuType) -> None:
        assert block_times(ProfileBook({KEY: CURVE}), model, v100, 4) == (0.03, 0.06, TimeOrigin.MEASURED)

    def test_roofline_where_there_is_none(self, model: Model, v100: GpuType) -> None:
        assert block_times(ProfileBook(), model, v100, 4).origin is TimeOrigin.ROOFLINE

    def test_calibrated_below_the_range_and_at_other_degrees(self, model: Model, v100: GpuType) -> None:
        plain = block_times(ProfileBook(), model, v100, 2)
        book = ProfileBook({KEY: replace(CURVE, forward=tuple(2 * plain.forward * b / 2 for b in CURVE.microbatch))})
        below, across = block_times(book, model, v100, 1), block_times(book, model, v100, 2, tensor_parallel=2)
        assert below.origin is across.origin is TimeOrigin.CALIBRATED
        assert below.forward == pytest.approx(2 * block_times(ProfileBook(), model, v100, 1).forward)
        uncalibrated = block_times(ProfileBook(), model, v100, 2, tensor_parallel=2)
        assert across.forward == pytest.approx(2 * uncalibrated.forward)

    def test_a_profile_of_a_larger_relative_is_scaled_by_flops(self, model: Model, v100: GpuType) -> None:
        flops = model.layers[1].flops_forward
        related = ProfileBook({KEY: replace(CURVE, flops=1.25 * flops)})
        assert block_times(related, model, v100, 4) == (
            pytest.approx(0.024),
            pytest.approx(0.048),
            TimeOrigin.CALIBRATED,
        )
        stranger = ProfileBook({KEY: replace(CURVE, flops=flops / 3)})
        assert block_times(stranger, model, v100, 4).origin is TimeOrigin.ROOFLINE

    def test_embedding_forward_is_measured_and_backward_computed(self, model: Model, v100: GpuType) -> None:
        book = ProfileBook({KEY._replace(kind=LayerKind.EMBEDDING): Curve((1,), (0.001,), None)})
        found = ComputeModel(book).layer_times(model, 0, v100, HOW)
        plain = ComputeModel().layer_times(model, 0, v100, HOW)
        assert found == (0.001, plain.backward, TimeOrigin.MEASURED)

    def test_a_layer_and_its_index_mean_the_same(self, model: Model, v100: GpuType) -> None:
        compute = ComputeModel(bundled_profiles())
        how = replace(HOW, microbatch=2, tensor_parallel=4)
        by_index, itself = (compute.layer_times(model, layer, v100, how) for layer in (3, model.layers[3]))
        assert by_index == itself


def test_update_moves_28_bytes_a_parameter(v100: GpuType) -> None:
    adamw = update_time(1e9, v100, Precision.FP32, Optimizer.ADAMW)
    assert 28e9 / v100.memory_bandwidth < adamw < 3 * 28e9 / v100.memory_bandwidth
    assert update_time(1e9, v100, Precision.FP32, Optimizer.SGD) < adamw
