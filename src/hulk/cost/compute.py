"""How long a layer takes: measured where a profile has it, else from the roofline, and which of the two it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from hulk.cost.ceilings import FITTED, REACHED_BANDWIDTH, SUSTAINED, Constants, generation
from hulk.cost.profiles import Curve, CurveKey, ProfileBook
from hulk.cost.roofline import Conditions, layer_time
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Optimizer
from hulk.domain.model import Layer, LayerKind, Model


class TimeOrigin(StrEnum):
    """Where a layer's time comes from.

    measured    a profile of this layer on this GPU, at or between measured microbatches (or beyond the largest)
    calibrated  the roofline, scaled to agree with the nearest measurement of the same layer on the same GPU; or the
                measurement of a near relative of the layer, scaled by FLOPs
    roofline    computed from the GPU's datasheet
    """

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    ROOFLINE = "roofline"


class LayerTime(NamedTuple):
    """Seconds of one microbatch on one GPU of the tensor parallel group, its all-reduces included."""

    forward: float
    backward: float
    origin: TimeOrigin


SAME_FLOPS = 0.02
"""A profile whose FLOPs differ by less than this share was measured of this very layer (vocabularies are padded)."""
RELATED_FLOPS = 0.5
"""A profile whose FLOPs differ by more is of another layer under the same name, and is not used."""

# Bytes an update moves for each parameter, with one fused kernel. fp32: weight, gradient and states are read, weight
# and states written, 4 bytes each (AdamW: 4 reads + 3 writes = 28). 16-bit: the gradient is read and the weight written
# in 2 bytes, the fp32 master weight and the states read and written (AdamW: 2 + 2 + 3 × 8 = 28). Adafactor's states are
# rows and columns only, but it passes over the gradient once more to find them and the update once more to clip it.
_UPDATE_BYTES = {
    Optimizer.ADAMW: 28.0,
    Optimizer.ADAM: 28.0,
    Optimizer.MOMENTUM: 20.0,
    Optimizer.SGD: 12.0,
    Optimizer.ADAFACTOR: 20.0,
}
_UPDATE_EFFICIENCY = 0.55
"""Share of memory bandwidth that fused AdamW reached on an H200 (336M parameters in 3.7 ms; 28 bytes each)."""


def update_time(
    params: float, gpu: GpuType, precision: Precision, optimizer: Optimizer, *, copies: float = 0.0
) -> float:
    """Seconds of the (fused) optimizer step for that many parameters on one GPU. `copies`: bytes that an engine moves
    besides for each parameter, where weights are in 16 bits.

    The bytes are the same for fp32 weights and for 16-bit weights with an fp32 master copy, see `_UPDATE_BYTES`.
    """
    passes = _UPDATE_BYTES[optimizer] / _UPDATE_EFFICIENCY
    passes += copies / REACHED_BANDWIDTH if precision.bytes == 2 else 0.0
    return params * passes / gpu.memory_bandwidth


# By a GPU's generation, bytes/s between it and the host, one way: PCIe 3, 4 and 5 with 16 lanes at about 80 % of the
# 16, 32 and 63 GB/s that they carry; Grace's NVLink-C2C, of its 450 GB/s each way.
_HOST_LINKS = {8: 25e9, 9: 50e9, 10: 50e9, 12: 50e9}
_OLDER_HOST_LINK = 12.5e9
_OWN_HOST_LINK = {"gh200-96": 360e9, "gh200-144": 360e9}
_HOST_UPDATE = 0.25e-9 * 8
"""Seconds a parameter that a host's processors take for each of its GPUs: CPU-Adam does a billion parameters in 0.22 to
0.26 s on two sockets (Ren et al., ZeRO-Offload, 2021, table 4), taken to be shared by eight GPUs."""


def host_update_time(params: float, gpu: GpuType, precision: Precision, gradient: float) -> float:
    """Seconds of an optimizer step by the host for that many parameters of one GPU, one after the other: `gradient`
    bytes each to the host, the update, the weights back."""
    link = _OWN_HOST_LINK.get(gpu.family) or _HOST_LINKS.get(generation(gpu)[0], _OLDER_HOST_LINK)
    return params * ((gradient + precision.bytes) / link + _HOST_UPDATE)


@dataclass(frozen=True)
class ComputeModel:
    """Layer times from profiles and the roofline. Answers are kept, so asking again is a dictionary lookup."""

    profiles: ProfileBook = field(default_factory=ProfileBook)
    constants: Constants = FITTED
    sustained: Mapping[int, float] = field(default_factory=lambda: SUSTAINED)
    _known: dict[tuple[object, ...], LayerTime] = field(default_factory=dict, init=False, repr=False, compare=False)
    _together: dict[tuple[object, ...], tuple[LayerTime, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def times_of(self, model: Model, layers: tuple[Layer, ...], gpu: GpuType, how: Conditions) -> tuple[LayerTime, ...]:
        """`layer_times` of several layers, asked for at once: a search's tables ask for the same ones again and
        again."""
        key = (model.name, model.sequence, layers, gpu.name, how)
        known = self._together.get(key)
        if known is None:
            known = self._together[key] = tuple(self.layer_times(model, layer, gpu, how) for layer in layers)
        return known

    def layer_times(self, model: Model, layer: Layer | int, gpu: GpuType, how: Conditions) -> LayerTime:
        """Forward and backward seconds of a layer of `model`, given itself or as its index."""
        asked = model.layers[layer] if isinstance(layer, int) else layer
        key = (model.name, model.sequence, asked, gpu.name, how)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._answer(_Question(model, asked, gpu, how))
        return known

    def share_of(self, part: Layer, model: Model, layer: Layer, gpu: GpuType, how: Conditions) -> float:
        """What a part of a layer takes forward, over what the layer takes; by the roofline."""
        whole = self._roofline(_Question(model, layer, gpu, how))[0]
        return self._roofline(_Question(model, part, gpu, how))[0] / whole if whole > 0 else 0.0

    def _answer(self, question: _Question) -> LayerTime:
        how = question.how
        if how.sequence_parallel or how.context > 1 or how.expert > 1 or how.slices:
            # measured without, on one machine: the roofline says what it changes
            alone = replace(how, sequence_parallel=False, context=1, expert=1, slices=None, sharers=None)
            plain = question._replace(how=alone)
            time = self.layer_times(plain.model, plain.layer, plain.gpu, plain.how)
            before, now = self._roofline(plain), self._roofline(question)
            return LayerTime(time.forward * now[0] / before[0], time.backward * now[1] / before[1], time.origin)
        forward, backward = self._roofline(question)
        curve = self._curve(question)
        if curve is not None and (found := curve.at(question.how.microbatch)) is not None:
            scale = _flops_ratio(question.layer, curve)
            exact = abs(scale - 1.0) <= SAME_FLOPS
            origin = TimeOrigin.MEASURED if exact else TimeOrigin.CALIBRATED
            scale = 1.0 if exact else scale
            return LayerTime(
                found.forward * scale, backward if found.backward is None else found.backward * scale, origin
            )
        ratio = self._calibration(question)
        if ratio is None:
            return LayerTime(forward, backward, TimeOrigin.ROOFLINE)
        return LayerTime(forward * ratio[0], backward * ratio[1], TimeOrigin.CALIBRATED)

    def _calibration(self, question: _Question) -> tuple[float, float] | None:
        """Measured over computed at the nearest measured point: nearest in tensor parallel, then in microbatch."""
        key, here = question.key, question.how.tensor_parallel
        degrees = () if key is None else self.profiles.degrees(key)
        for degree in sorted(degrees, key=lambda degree: max(degree / here, here / degree)):
            asked = question.at(question.how.microbatch, degree)
            curve = self._curve(asked)
            if curve is None:
                continue
            microbatch = curve.nearest(question.how.microbatch)
            found = curve.at(microbatch)
            assert found is not None  # a measured microbatch
            scale = _flops_ratio(question.layer, curve)
            forward, backward = self._roofline(question.at(microbatch, degree))
            missing = found.backward is None
            return found.forward * scale / forward, 1.0 if missing else (found.backward or 0.0) * scale / backward
        return None

    def _curve(self, question: _Question) -> Curve | None:
        """The profile of the layer asked for, or of a near relative of it under the same name."""
        curve = None if question.key is None else self.profiles.curve(question.key)
        if curve is None or abs(_flops_ratio(question.layer, curve) - 1.0) > RELATED_FLOPS:
            return None
        return curve

    def _sustained(self, question: _Question) -> float:
        """How much longer 16-bit products take at the clock that a GPU keeps for hours."""
        if not question.how.power_limited or question.how.precision.bytes != 2:
            return 1.0
        return self.sustained.get(generation(question.gpu)[0], 1.0)

    def _roofline(self, question: _Question) -> tuple[float, float]:
        return layer_time(
            question.layer, question.gpu, question.how, constants=self.constants, sustained=self._sustained(question)
        )


class _Question(NamedTuple):
    model: Model
    layer: Layer
    gpu: GpuType
    how: Conditions

    @property
    def key(self) -> CurveKey | None:
        return CurveKey.of(self.model, self.layer, self.gpu, self.how)

    def at(self, microbatch: int, tensor_parallel: int) -> _Question:
        return self._replace(how=replace(self.how, microbatch=microbatch, tensor_parallel=tensor_parallel))


def _flops_ratio(layer: Layer, curve: Curve) -> float:
    """FLOPs of the layer asked for over those of the layer measured; 1 where the profile does not say, or has none."""
    if layer.kind is LayerKind.EMBEDDING or curve.flops <= 0.0 or layer.flops_forward <= 0.0:
        return 1.0
    return layer.flops_forward / curve.flops
