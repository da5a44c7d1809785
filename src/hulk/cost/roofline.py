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
all-reduces of tensor parallel come on top. The backward pass does every product twice (for inputs and for weights).

The constants are the same for all GPU types. They are fitted by `benchmarks/fit_roofline.py`; docs/roofline.md has the
errors on GPU types that the fit has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from hulk.cost.collectives import MEASURED_RINGS, Operation, Rings, collective_time
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer, LayerKind, Matmul, Split

_SMOOTH = 4.0
"""Exponent of the smooth maximum of device and host time: 19 % above the larger where both are equal."""
_DROPOUT_PASSES = 1.8
"""Attention dropout holds 1.25 more score matrices (a copy, a mask of a quarter) and moves 2.25: read, write, mask."""
_TABLE_PASSES = 2.0
"""An embedding's gradient is a whole table: filled with zeros, then written."""


class Unit(StrEnum):
    """The kinds of matrix unit that reach different shares of their peak.

    FP32_WIDE: from compute capability 8.6 on an SM has twice the fp32 lanes, which the registers cannot keep fed.
    TF32_TURNING: from Hopper on the tensor cores take TF32 operands in one layout only.
    """

    FP32 = "fp32"
    FP32_WIDE = "fp32_wide"
    TF32 = "tf32"
    TF32_TURNING = "tf32_turning"
    HALF = "half"


@dataclass(frozen=True, slots=True)
class Constants:
    """How many times the ceiling's seconds a term takes; `launch_*` and `parallel` are seconds.

    fp32 ... half        products with weights, by unit
    tf32_turned          backward over forward, for one product, on TF32 units from Hopper on: they take operands in one
                         layout only, and backward has the others
    attention            attention's products in eager attention (they mostly wait for the score matrix)
    fused_*              attention in one kernel, which skips what a causal mask hides and computes the scores again in
                         backward
    operands             of a product
    scores_*, scores16_* a score matrix in 4 or 2 bytes an element; the softmax of 2-byte scores works in fp32
    moved_*              the forward pass's memory-bound operations
    logits_*             the same in the head: few large kernels over the logits
    launch_*             the host's time for one of the forward pass's kernels
    parallel             the host's time for one all-reduce
    """

    fp32: float
    fp32_wide: float
    tf32: float
    half: float
    tf32_turned: float
    attention: float
    fused_forward: float
    fused_backward: float
    operands: float
    scores_forward: float
    scores_backward: float
    scores16_forward: float
    scores16_backward: float
    moved_forward: float
    moved_backward: float
    logits_forward: float
    logits_backward: float
    launch_forward: float
    launch_backward: float
    parallel: float


# Written by benchmarks/fit_roofline.py --write.
FITTED = Constants(
    fp32=1.006,
    fp32_wide=1.396,
    tf32=1.223,
    half=1.238,
    tf32_turned=1.621,
    attention=1,
    fused_forward=1.181,
    fused_backward=5.35,
    operands=0.4446,
    scores_forward=6.431,
    scores_backward=25.4,
    scores16_forward=27.87,
    scores16_backward=26.85,
    moved_forward=3.824,
    moved_backward=2.978,
    logits_forward=2.26,
    logits_backward=0.8143,
    launch_forward=3.014e-05,
    launch_backward=4.538e-05,
    parallel=0.0003728,
)


class Work(NamedTuple):
    """One forward pass of one microbatch on one GPU: seconds at the ceilings (see the module) and launches.

    dropped   bytes that attention's dropout moves / memory bandwidth (eager attention only)
    table     bytes of an embedding's table / memory bandwidth: its gradient
    """

    products: float
    attention: float
    operands: float
    scores: float
    dropped: float
    moved: float
    table: float
    kernels: float


def unit_of(gpu: GpuType, precision: Precision) -> Unit:
    """The unit that does a precision's matrix work on this GPU."""
    match gpu.unit_for(precision):
        case Precision.TF32:
            return Unit.TF32_TURNING if _generation(gpu) >= (9, 0) else Unit.TF32
        case Precision.FP16 | Precision.BF16:
            return Unit.HALF
        case Precision.FP32:
            return Unit.FP32_WIDE if _generation(gpu) >= (8, 6) else Unit.FP32


def work(layer: Layer, gpu: GpuType, *, precision: Precision, microbatch: int, tensor_parallel: int) -> Work:
    """What one forward pass asks of one GPU."""
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
    held = microbatch * layer.scores / tensor_parallel
    scores = min(scores, held)  # XLNet has more such products than score matrices
    moved = microbatch * (layer.moved_split / tensor_parallel + layer.moved_whole)
    table = layer.params_split / tensor_parallel if layer.kind is LayerKind.EMBEDDING else 0.0
    rate, per_element = gpu.rate(precision), precision.bytes / gpu.memory_bandwidth
    return Work(
        products=products / rate,
        attention=attention / rate,
        operands=operands * per_element,
        scores=scores * per_element,
        dropped=_DROPOUT_PASSES * (held - scores) * per_element,
        moved=moved * per_element,
        table=_TABLE_PASSES * table * per_element,
        kernels=layer.kernels,
    )


def pass_times(
    done: Work,
    constants: Constants,
    *,
    kind: LayerKind,
    unit: Unit,
    precision: Precision,
    attention: Attention,
    reductions: int,
) -> tuple[float, float]:
    """Seconds of the forward and the backward pass, `reductions` all-reduces launched but not waited for.

    Plain arithmetic: `done` may hold arrays of many layers.
    """
    c = constants
    slowdown, turned = _slowdown(c, unit)
    head = kind is LayerKind.HEAD
    forward = slowdown * done.products + c.operands * done.operands
    forward += (c.logits_forward if head else c.moved_forward) * done.moved
    backward = 2.0 * (slowdown * turned * done.products + c.operands * done.operands) + done.table
    backward += (c.logits_backward if head else c.moved_backward) * done.moved
    if attention is Attention.EAGER:
        small = precision.bytes == 2
        forward += c.attention * done.attention + done.dropped
        forward += (c.scores16_forward if small else c.scores_forward) * done.scores
        backward += 2.0 * c.attention * done.attention + done.dropped
        backward += (c.scores16_backward if small else c.scores_backward) * done.scores
    else:
        forward += c.fused_forward * done.attention
        backward += c.fused_backward * done.attention
    waiting = c.parallel * reductions
    return (
        _at_least(forward, c.launch_forward * done.kernels + waiting),
        _at_least(backward, c.launch_backward * done.kernels + waiting),
    )


def exchange_times(
    layer: Layer, gpu: GpuType, *, precision: Precision, microbatch: int, tensor_parallel: int, rings: Rings
) -> tuple[float, float]:
    """Seconds of tensor parallel's all-reduces in forward and in backward.

    A block reduces in both. The embedding reduces its output and needs nothing in backward; the head reduces its
    input's gradient and nothing of size in forward (Megatron-LM's vocabulary-parallel layers).
    """
    size = microbatch * layer.output * precision.bytes
    seconds = layer.reductions * collective_time(Operation.ALL_REDUCE, size, gpu, tensor_parallel, rings=rings)
    return (
        0.0 if layer.kind is LayerKind.HEAD else seconds,
        0.0 if layer.kind is LayerKind.EMBEDDING else seconds,
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
    forward, backward = pass_times(
        work(layer, gpu, precision=precision, microbatch=microbatch, tensor_parallel=tensor_parallel),
        constants,
        kind=layer.kind,
        unit=unit_of(gpu, precision),
        precision=precision,
        attention=attention,
        reductions=layer.reductions if tensor_parallel > 1 else 0,
    )
    there, back = exchange_times(
        layer, gpu, precision=precision, microbatch=microbatch, tensor_parallel=tensor_parallel, rings=rings
    )
    return forward + there, backward + back


def _slowdown(constants: Constants, unit: Unit) -> tuple[float, float]:
    """Of a product forward; and of one product backward over that."""
    match unit:
        case Unit.FP32:
            return constants.fp32, 1.0
        case Unit.FP32_WIDE:
            return constants.fp32_wide, 1.0
        case Unit.TF32:
            return constants.tf32, 1.0
        case Unit.TF32_TURNING:
            return constants.tf32, constants.tf32_turned
        case Unit.HALF:
            return constants.half, 1.0


def _at_least(device: float, host: float) -> float:
    """The larger of the two, a little more where they are close."""
    longer: float = (device**_SMOOTH + host**_SMOOTH) ** (1.0 / _SMOOTH)
    return longer


def _generation(gpu: GpuType) -> tuple[int, int]:
    """The compute capability as numbers; (0, 0) where it is not known."""
    major, _, minor = gpu.capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


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
