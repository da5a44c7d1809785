"""How long a layer takes on a GPU that it was not measured on.

The work of a pass is taken apart into terms that each have a physical ceiling, in seconds at that ceiling:

    products    FLOPs of the products with weights / peak matrix rate of the unit
    attention   FLOPs of attention's own products / the same rate
    operands    bytes of the operands and results of the products with weights / memory bandwidth
    scores      bytes of one score matrix / memory bandwidth (eager attention only)
    moved       bytes that the memory-bound operations read and write / memory bandwidth
    kernels     launches, each of which costs the host a fixed time

A pass takes the sum of the first five, each times a constant (one over the share of its ceiling that is reached, or how
often the bytes are moved), but not less than the host needs to launch it; the two are joined by a smooth maximum. The
all-reduces of tensor parallel come on top. The backward pass does the products twice (gradients of inputs and weights).

The constants are the same for all GPU types. They are fitted by `benchmarks/fit_roofline.py`; docs/roofline.md has the
errors on GPU types that the fit has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from hulk.cost.collectives import MEASURED_RINGS, Operation, Rings, collective_time
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer, Matmul, Split

_SMOOTH = 4
"""Exponent of the smooth maximum of device and host time."""


class Work(NamedTuple):
    """One forward pass of one microbatch on one GPU: seconds at the ceilings (see the module), and launches."""

    products: float
    attention: float
    operands: float
    scores: float
    moved: float
    kernels: int


@dataclass(frozen=True, slots=True)
class PassConstants:
    """The multiples of `Work`'s terms that one pass takes. Seconds per launch for `launch`.

    attention_eager, attention_fused   of the attention term; fused attention computes its products in tiles on chip, and
                                       again in backward
    operands, scores, moved            how often the bytes are moved, over the share of memory bandwidth that is reached
    parallel                           seconds on the host for tensor parallel's own calls
    """

    attention_eager: float
    attention_fused: float
    operands: float
    scores: float
    moved: float
    launch: float
    parallel: float


@dataclass(frozen=True, slots=True)
class Constants:
    """`products`: by unit, one over the share of its peak rate that large products reach."""

    products: Mapping[Precision, float]
    forward: PassConstants
    backward: PassConstants


FITTED = Constants(
    products=MappingProxyType(
        {Precision.FP32: 1.064, Precision.TF32: 1.262, Precision.FP16: 1.262, Precision.BF16: 1.262}
    ),
    forward=PassConstants(0.35, 1.5, 0.094, 7.67, 3.08, 10e-6, 1.1e-3),
    backward=PassConstants(0.70, 4.0, 0.188, 26.4, 5.82, 14e-6, 1.1e-3),
)


def work(layer: Layer, gpu: GpuType, *, precision: Precision, microbatch: int, tensor_parallel: int) -> Work:
    """What one forward pass asks of the GPU."""
    rate, bandwidth, size = gpu.rate(precision), gpu.memory_bandwidth, precision.bytes
    products = attention = operands = scores = 0.0
    for matmul in layer.matmuls:
        rows, inner, columns, batch = _on_one_gpu(matmul, microbatch, tensor_parallel)
        flops = 2.0 * rows * inner * columns * batch
        if matmul.weight:
            products += flops
            operands += batch * (rows * inner + inner * columns + rows * columns)
        else:
            attention += flops
            # queries × keys writes a score matrix, its softmax × values reads one: half of it for each
            scores += batch * rows * max(inner, columns) / 2.0
    moved = microbatch * (layer.moved_split / tensor_parallel + layer.moved_whole)
    return Work(
        products=products / rate,
        attention=attention / rate,
        operands=operands * size / bandwidth,
        scores=scores * size / bandwidth,
        moved=moved * size / bandwidth,
        kernels=layer.kernels,
    )


def layer_time(
    layer: Layer,
    gpu: GpuType,
    *,
    precision: Precision,
    attention: Attention,
    microbatch: int,
    tensor_parallel: int,
    constants: Constants = FITTED,
    rings: Rings = MEASURED_RINGS,
) -> tuple[float, float]:
    """Seconds of the forward and of the backward pass of one microbatch, tensor parallel's all-reduces included."""
    done = work(layer, gpu, precision=precision, microbatch=microbatch, tensor_parallel=tensor_parallel)
    exchange = layer.reductions * collective_time(
        Operation.ALL_REDUCE, microbatch * layer.output * precision.bytes, gpu, tensor_parallel, rings=rings
    )
    slowdown = constants.products[gpu.unit_for(precision)]
    parallel = tensor_parallel > 1
    forward = pass_time(done, constants.forward, products=slowdown, attention=attention, parallel=parallel)
    backward = pass_time(done, constants.backward, products=2.0 * slowdown, attention=attention, parallel=parallel)
    return forward + exchange, backward + exchange


def pass_time(
    done: Work, constants: PassConstants, *, products: float, attention: Attention, parallel: bool
) -> float:
    """Seconds of one pass without all-reduces: the device's time, but not less than the host's."""
    device = products * done.products + constants.operands * done.operands + constants.moved * done.moved
    if attention is Attention.EAGER:
        device += constants.attention_eager * done.attention + constants.scores * done.scores
    else:
        device += constants.attention_fused * done.attention
    host = constants.launch * done.kernels + (constants.parallel if parallel else 0.0)
    return float((device**_SMOOTH + host**_SMOOTH) ** (1.0 / _SMOOTH))


def _on_one_gpu(matmul: Matmul, microbatch: int, tensor_parallel: int) -> tuple[float, float, float, float]:
    """Rows, inner, columns and batch of one GPU's share of a product for a whole microbatch."""
    rows, inner, columns, batch = float(matmul.rows), float(matmul.inner), float(matmul.columns), float(matmul.batch)
    if matmul.weight:
        rows *= microbatch
    else:
        batch *= microbatch
    match matmul.split:
        case Split.COLUMNS:
            columns /= tensor_parallel
        case Split.INNER:
            inner /= tensor_parallel
        case Split.BATCH:
            batch /= tensor_parallel
        case Split.NONE:
            pass
    return rows, inner, columns, batch
