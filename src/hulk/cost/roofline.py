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

The constants (`hulk.cost.ceilings`) are the same for all GPU types. They are fitted by `benchmarks/fit_roofline.py` on
eager PyTorch; docs/roofline.md has the errors on GPU types that the fit has not seen. An engine that joins memory-bound
operations into few kernels (`Engine.fused_kernels`) is counted instead: how often a tensor is read and written, over
the share of the bandwidth that such kernels reach (`JOINED`). What attention in one kernel reaches is known by GPU
generation (`FLASH_BY_GENERATION`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hulk.cost.axes import BACKWARD_TRIPS, TRIPS, Keys, of_one_gpu
from hulk.cost.ceilings import (
    EIGHT,
    FITTED,
    JOINED,
    REACHED_BANDWIDTH,
    SCORE_PASSES,
    Constants,
    Joined,
    Unit,
    flash_of,
    unit_of,
)
from hulk.cost.collectives import KNOWN_RINGS, Between, Operation, Rings, collective_time
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer, LayerKind, Matmul, Split

_SMOOTH = 4.0
"""Exponent of the smooth maximum of device and host time: 19 % above the larger where both are equal."""
_DROPOUT_PASSES = 1.8
"""Attention dropout holds 1.25 more score matrices (a copy, a mask of a quarter) and moves 2.25: read, write, mask."""
_JOINED_CAST, _CAST = 6.0, 33.0
"""Bytes that making an 8-bit operand of a 16-bit one moves. Joined in two kernels: read for its largest element, read
again, written twice, as it is and turned. With a kernel for each operation: its absolute value (4) and the largest of
these (2), a copy in fp32 (6), scaled (8), clamped (8), and written in 8 bits (5)."""
_TABLE_PASSES = 2.0
"""An embedding's gradient is a whole table: filled with zeros, then written."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a layer's passes depend on besides the layer and the GPU.

    microbatch       samples
    tensor_parallel  GPUs that share the layer
    sequence_parallel  whether they split along the sequence what each would do whole
    context          GPUs, beside these, that share a sequence
    expert           GPUs that split experts
    keys             how keys and values reach those that share a sequence
    fused            whether the engine joins memory-bound operations into few kernels
    hidden           the share of tensor parallel's all-reduces that it hides behind products
    power_limited    whether GPUs run at the clock that they keep for hours
    slices           what lies between the GPUs that share the layer, where they are on several machines
    sharers          the same of those that share a sequence
    """

    precision: Precision
    attention: Attention
    microbatch: int
    tensor_parallel: int
    sequence_parallel: bool = False
    context: int = 1
    expert: int = 1
    keys: Keys = Keys.KEPT
    fused: bool = False
    hidden: float = 0.0
    power_limited: bool = False
    slices: Between | None = None
    sharers: Between | None = None


class Work(NamedTuple):
    """One forward pass of one microbatch on one GPU: seconds at the ceilings (see the module) and launches.

    flash     `attention` in one kernel, longer by what a short sequence leaves idle
    dropped   bytes that attention's dropout moves / memory bandwidth (eager attention only)
    table     bytes of an embedding's table / memory bandwidth: its gradient
    cast_*    bytes that making 8-bit operands of 16-bit ones moves / memory bandwidth
    """

    products: float
    attention: float
    flash: float
    operands: float
    scores: float
    dropped: float
    moved: float
    table: float
    cast_forward: float
    cast_backward: float
    kernels: float


def work(layer: Layer, gpu: GpuType, how: Conditions) -> Work:
    """What one forward pass asks of one GPU."""
    precision, microbatch, tensor_parallel = how.precision, how.microbatch, how.tensor_parallel
    products = attention = flash = operands = scores = cast_forward = cast_backward = 0.0
    short = known.short if (known := flash_of(gpu)) else 0.0
    for matmul in layer.matmuls:
        rows, inner, columns, batch = _on_one_gpu(matmul, microbatch, tensor_parallel)
        flops = 2.0 * rows * inner * columns * batch
        if matmul.weight:
            products += flops
            operands += batch * (rows * inner + inner * columns + rows * columns)
            cast_forward += batch * (rows * inner + inner * columns)
            cast_backward += batch * rows * columns
        else:
            attention += flops
            flash += flops * (1.0 + short / max(inner, columns))
            # queries × keys writes a score matrix, its softmax × values reads one: half of it for each
            scores += batch * rows * max(inner, columns) / 2.0
    held = microbatch * layer.scores / tensor_parallel
    scores = min(scores, held)  # XLNet has more such products than score matrices
    split, whole, kernels = layer.moved_split, layer.moved_whole, layer.kernels
    if how.fused:
        split, whole = split - layer.spared_split, whole - layer.spared_whole
        kernels -= layer.spared_kernels
    moved = microbatch * (split / tensor_parallel + whole / (tensor_parallel if how.sequence_parallel else 1))
    table = layer.params_split / tensor_parallel if layer.kind is LayerKind.EMBEDDING else 0.0
    rate, other, per_element = gpu.rate(precision), gpu.rate(precision.outside), precision.bytes / gpu.memory_bandwidth
    cast = 0.0
    if gpu.unit_for(precision) is Precision.FP8:
        cast = (_JOINED_CAST if how.fused else _CAST) / gpu.memory_bandwidth
    return Work(
        products=products / rate,
        attention=attention / other,
        flash=flash / other,
        operands=operands * per_element,
        scores=scores * per_element,
        dropped=_DROPOUT_PASSES * (held - scores) * per_element,
        moved=moved * per_element,
        table=_TABLE_PASSES * table * per_element,
        cast_forward=cast * cast_forward,
        cast_backward=cast * cast_backward,
        kernels=kernels,
    )


def pass_times(
    done: Work,
    constants: Constants,
    *,
    kind: LayerKind,
    gpu: GpuType,
    how: Conditions,
    reductions: int,
    sustained: float = 1.0,
) -> tuple[float, float]:
    """Seconds of the forward and the backward pass, `reductions` all-reduces launched but not waited for.

    `sustained`: how much longer products take at the clock that a GPU keeps for hours. Plain arithmetic: `done` may
    hold arrays of many layers, of which kind, GPU and conditions agree in what counts here.
    """
    c = constants
    precision, attention = how.precision, how.attention
    joined, flash = JOINED if how.fused else None, flash_of(gpu)
    moving: Constants | Joined = joined or c
    slowdown, turned = _slowdown(c, unit_of(gpu, precision))
    slowdown *= sustained
    head = kind is LayerKind.HEAD
    forward = slowdown * done.products + c.operands * done.operands
    forward += (c.logits_forward if head else moving.moved_forward) * done.moved
    backward = 2.0 * (slowdown * turned * done.products + c.operands * done.operands) + done.table
    backward += (c.logits_backward if head else moving.moved_backward) * done.moved
    forward += done.cast_forward / REACHED_BANDWIDTH
    backward += done.cast_backward / REACHED_BANDWIDTH
    if attention.writes_scores:
        there, back = _score_passes(c, attention, precision, joined)
        dropped = done.dropped if joined is None else _mask_share(precision) / REACHED_BANDWIDTH * done.dropped
        forward += c.attention * done.attention + dropped + there * done.scores
        backward += 2.0 * c.attention * done.attention + dropped + back * done.scores
    elif flash is not None:
        forward += flash.forward * done.flash
        backward += flash.backward * done.flash
    else:
        forward += c.fused_forward * done.attention
        backward += c.fused_backward * done.attention
    waiting = c.parallel * reductions
    return (
        _at_least(forward, c.launch_forward * done.kernels + waiting),
        _at_least(backward, c.launch_backward * done.kernels + waiting),
    )


def _mask_share(precision: Precision) -> float:
    """What dropout moves over what `Work.dropped` counts: a mask of one byte is half of a 16-bit element, not a
    quarter."""
    return (2.0 + 1.0 / precision.bytes) / 2.25


def _score_passes(
    constants: Constants, attention: Attention, precision: Precision, joined: Joined | None
) -> tuple[float, float]:
    """How often a score matrix is moved, forward and backward."""
    if attention is Attention.FUSED_SOFTMAX or (joined is not None and precision.bytes == 2):
        there, back = SCORE_PASSES[attention]
        return there / REACHED_BANDWIDTH, back / REACHED_BANDWIDTH
    if precision.bytes == 2:
        return constants.scores16_forward, constants.scores16_backward
    return constants.scores_forward, constants.scores_backward


def exchange_times(layer: Layer, gpu: GpuType, how: Conditions, *, rings: Rings) -> tuple[float, float]:
    """Seconds of tensor parallel's all-reduces in forward and in backward.

    A block reduces in both. The embedding reduces its output and needs nothing in backward; the head reduces its
    input's gradient and nothing of size in forward (Megatron-LM's vocabulary-parallel layers).
    """
    size = how.microbatch * layer.output * how.precision.bytes
    ranks, between = how.tensor_parallel, how.slices
    once = collective_time(Operation.ALL_REDUCE, size, gpu, ranks, between=between, rings=rings)
    seconds = layer.reductions * once
    return (
        0.0 if layer.kind is LayerKind.HEAD else seconds,
        0.0 if layer.kind is LayerKind.EMBEDDING else seconds,
    )


def layer_time(
    layer: Layer,
    gpu: GpuType,
    how: Conditions,
    *,
    constants: Constants = FITTED,
    rings: Rings = KNOWN_RINGS,
    sustained: float = 1.0,
) -> tuple[float, float]:
    """Seconds of the forward and of the backward pass of one microbatch, tensor parallel's all-reduces and what travels
    between GPUs that share sequences or experts included. `sustained`: as in `pass_times`."""
    layer = of_one_gpu(layer, context=how.context, expert=how.expert)
    reductions = layer.reductions if how.tensor_parallel > 1 else 0
    done = work(layer, gpu, how)
    computed = forward, backward = pass_times(
        done, constants, kind=layer.kind, gpu=gpu, how=how, reductions=reductions, sustained=sustained
    )
    there, back = exchange_times(layer, gpu, how, rings=rings)
    seen = 1.0 - how.hidden
    forward, backward = forward + seen * there, backward + seen * back
    if how.context > 1 and layer.keys:
        idle = done._replace(attention=0.0, flash=0.0, scores=0.0, dropped=0.0)
        rest = pass_times(
            idle, constants, kind=layer.kind, gpu=gpu, how=how, reductions=reductions, sustained=sustained
        )
        there, back = _key_times(layer, gpu, how, rings=rings)
        if how.keys is Keys.AROUND:  # hidden behind attention with all parts but the first
            hides = 1.0 - 1.0 / how.context
            there = max(0.0, there - hides * (computed[0] - rest[0]))
            back = max(0.0, back - hides * (computed[1] - rest[1]))
        forward, backward = forward + there, backward + back
    if how.expert > 1 and layer.experts:
        seconds = TRIPS * _visit_time(layer, gpu, how, rings=rings)
        forward, backward = forward + seconds, backward + seconds
    return forward, backward


def _key_times(layer: Layer, gpu: GpuType, how: Conditions, *, rings: Rings) -> tuple[float, float]:
    """Seconds that keys and values are on their way among the GPUs that share a sequence, forward and backward."""
    size = how.microbatch * layer.keys / how.tensor_parallel * how.precision.bytes
    once = collective_time(Operation.ALL_GATHER, size, gpu, how.context, between=how.sharers, rings=rings)
    return once, BACKWARD_TRIPS[how.keys] * once


def _visit_time(layer: Layer, gpu: GpuType, how: Conditions, *, rings: Rings) -> float:
    """Seconds of one way of tokens to the experts that they visit, or back. Of a GPU's tokens, all but those for its
    own experts leave it; tensor parallel ranks each send theirs where they split along the sequence, else the same
    ones."""
    size = how.microbatch * layer.visits * how.precision.bytes / (how.tensor_parallel if how.sequence_parallel else 1)
    return collective_time(Operation.ALL_TO_ALL, size, gpu, how.expert, rings=rings)


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
        case Unit.EIGHT:
            return EIGHT, 1.0


def _at_least(device: float, host: float) -> float:
    """The larger of the two, a little more where they are close."""
    longer: float = (device**_SMOOTH + host**_SMOOTH) ** (1.0 / _SMOOTH)
    return longer


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
