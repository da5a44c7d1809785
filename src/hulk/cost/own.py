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

from hulk.cost import roofline
from hulk.cost.compute import LayerTime
from hulk.cost.roofline import FITTED, Constants
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer

REACHED = 0.8
"""Share of the peak bandwidth that plain additions and copies of large tensors reach."""

# Written by benchmarks/fit_gpu_runs.py.
OWN: Mapping[str, Constants] = MappingProxyType(
    {
        "h200": replace(
            FITTED,
            half=1.313,
            fp32_wide=1.33,
            fused_forward=0.6215,
            fused_backward=2.65,
            moved_forward=2.285,
            moved_backward=2.836,
            logits_forward=7.843,
            logits_backward=0.9225,
            launch_forward=6.493e-05,
            launch_backward=2.447e-05,
        )
    }
)


def adding_seconds(params: float, gpu: GpuType, precision: Precision) -> float:
    """Seconds to add a microbatch's gradients to those before, in fp32: it reads both and writes one."""
    return params * (precision.bytes + 8.0) / (gpu.memory_bandwidth * REACHED)


def settling_seconds(params: float, gpu: GpuType, precision: Precision) -> float:
    """Seconds after an update: gradients set to zero, and 16-bit weights made of the fp32 ones."""
    return params * (4.0 if precision.bytes == 4 else 10.0) / (gpu.memory_bandwidth * REACHED)


def own_times(
    time: LayerTime,
    layer: Layer,
    gpu: GpuType,
    *,
    precision: Precision,
    attention: Attention,
    microbatch: int,
    tensor_parallel: int,
    known: Constants,
) -> tuple[float, float]:
    """Seconds of a layer's forward and backward pass, from those that constants `known` were fitted for."""
    forward, backward = time.forward, time.backward
    constants = OWN.get(gpu.name)
    if constants is not None:
        (a, b), (c, d) = (
            roofline.layer_time(
                layer,
                gpu,
                precision=precision,
                attention=attention,
                microbatch=microbatch,
                tensor_parallel=tensor_parallel,
                constants=some,
            )
            for some in (constants, known)
        )
        forward, backward = forward * a / c, backward * b / d
    params = (layer.params_split - layer.tied) / tensor_parallel + layer.params_whole
    return forward, backward + adding_seconds(params, gpu, precision)
