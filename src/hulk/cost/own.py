"""What a layer takes in Hulk's own runtime, where that is not what eager PyTorch with transformers' modules takes.

The roofline's constants stand for transformers' own blocks, measured alone. The runtime has fewer kernels, adds up the
gradients of every microbatch in fp32, and computes its loss over some rows of the logits at a time. For a GPU type
whose runs were measured (benchmarks/data/h200_runs.jsonl) it has constants of its own, fitted to all of those runs at
once; times of layers, measured ones too, are changed by the ratio of the two rooflines. docs/accuracy.md has the
errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hulk.cost.ceilings import FITTED, Constants
from hulk.cost.compute import LayerTime
from hulk.cost.roofline import Conditions, layer_time
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.model import Layer

REACHED = 0.8
"""Share of the peak bandwidth that plain additions and copies of large tensors reach."""

# As benchmarks/fit_gpu_runs.py finds them.
OWN: Mapping[str, Constants] = MappingProxyType(
    {
        "h200": replace(
            FITTED,
            half=1.337,
            fp32_wide=1.332,
            fused_forward=0.5756,
            fused_backward=2.34,
            moved_forward=1.276,
            moved_backward=5.056,
            logits_forward=8.545,
            logits_backward=0.917,
            launch_forward=8.041e-05,
            launch_backward=4.988e-05,
        )
    }
)

WATCHED = 1.54
"""How many times as long the host takes for a forward pass's kernels where a layer is computed again: torch's
checkpoint watches every tensor that autograd keeps, in Python."""


def adding_seconds(params: float, gpu: GpuType, precision: Precision) -> float:
    """Seconds to add a microbatch's gradients to those before, in fp32: it reads both and writes one."""
    return params * (precision.bytes + 8.0) / (gpu.memory_bandwidth * REACHED)


def settling_seconds(params: float, gpu: GpuType, precision: Precision) -> float:
    """Seconds after an update: gradients set to zero, and 16-bit weights made of the fp32 ones. As `own_times`, where
    it was measured."""
    if gpu.family not in OWN:
        return 0.0
    return params * (4.0 if precision.bytes == 4 else 10.0) / (gpu.memory_bandwidth * REACHED)


def own_times(time: LayerTime, layer: Layer, gpu: GpuType, how: Conditions, *, again: bool) -> LayerTime:
    """A layer's time in the runtime, from the time that eager PyTorch takes; the same on a GPU type without constants
    of its own. `again`: whether the layer is one that backward computes again."""
    constants = OWN.get(gpu.family)
    if constants is None:
        return time
    if again:
        constants = replace(constants, launch_forward=WATCHED * constants.launch_forward)
    now = layer_time(layer.own or layer, gpu, how, constants=constants)
    before = layer_time(layer, gpu, how)
    params = (layer.params_split - layer.tied) / how.tensor_parallel + layer.params_whole
    forward, backward = time.forward * now[0] / before[0], time.backward * now[1] / before[1]
    return LayerTime(forward, backward + adding_seconds(params, gpu, how.precision), time.origin)
