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

The constants are the same for all GPU types. They are fitted by `benchmarks/fit_roofline.py` on eager PyTorch;
docs/roofline.md has the errors on GPU types that the fit has not seen. An engine that joins memory-bound operations
into few kernels (`Engine.fused_kernels`) is counted instead: how often a tensor is read and written, over the share of
the bandwidth that such kernels reach (`JOINED`). What attention in one kernel reaches is known by GPU generation
(`FLASH_BY_GENERATION`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from hulk.cost.collectives import KNOWN_RINGS, Operation, Rings, collective_time
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer, LayerKind, Matmul, Split

_SMOOTH = 4.0
"""Exponent of the smooth maximum of device and host time: 19 % above the larger where both are equal."""
_DROPOUT_PASSES = 1.8
"""Attention dropout holds 1.25 more score matrices (a copy, a mask of a quarter) and moves 2.25: read, write, mask."""
_TABLE_PASSES = 2.0
"""An embedding's gradient is a whole table: filled with zeros, then written."""


REACHED_BANDWIDTH = 0.8
"""Share of the peak bandwidth that large memory-bound kernels reach in training (a plain copy reaches 0.9)."""


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


@dataclass(frozen=True, slots=True)
class Joined:
    """What kernels that join several operations take, in passes over the bytes at the memory's peak bandwidth.

    moved_*     the forward pass's memory-bound operations. Backward: a norm reads its input and a gradient and writes
                one (3 for the forward's 2), gelu the same, dropout and residual 2.25 and the sum of gradients 3 (for
                3.5), and the gradients of biases are summed up (9 for a block's 21): 38 for 21
    """

    moved_forward: float
    moved_backward: float


JOINED = Joined(moved_forward=1.0 / REACHED_BANDWIDTH, moved_backward=1.8 / REACHED_BANDWIDTH)

# Passes over a 16-bit score matrix, forward and backward, where the softmax is one kernel that works in fp32 inside.
# Fused softmax: product (1), scale-mask-softmax (2), product (1); backward: two products (2), softmax (3), two products
# (2). A kernel for each: scale and mask (4) forward, scale (2) backward, on top. Dropout counts in `Work.dropped`.
SCORE_PASSES: Mapping[Attention, tuple[float, float]] = MappingProxyType(
    {Attention.FUSED_SOFTMAX: (4.0, 7.0), Attention.EAGER: (8.0, 9.0)}
)


@dataclass(frozen=True, slots=True)
class Flash:
    """Attention in one kernel under a causal mask: half of its products forward, five quarters backward, which computes
    the scores again; each over the share of the peak that is reached at long sequences. Shorter ones fill the GPU less:
    as if they were `short` tokens longer."""

    forward: float
    backward: float
    short: float


# FlashAttention-2 on an A100 (arXiv 2307.08691): up to 73 % of the peak forward and 63 % backward; under a causal mask,
# roughly, by its figures: 64 % and 57 % at 16k tokens, 82 % of that at 2k. Other generations: as fitted on the H200
# (`Constants.fused_*`; FlashAttention-2 reaches 35 % there, arXiv 2407.08608).
FLASH_BY_GENERATION: Mapping[int, Flash] = MappingProxyType({8: Flash(0.5 / 0.64, 1.25 / 0.57, 450.0)})


# How much longer 16-bit products take in runs of hours, where power limits the clock, than in a short measurement; by
# generation, fitted on published runs (docs/accuracy.md). For comparison, the largest products reach
# 83 of a V100's 125 TFLOP/s (Markidis et al., IPDPSW 2018), and at most 0.86 of an A100's and 0.80 of an H100's peak
# (stas00/ml-engineering, maximum achievable matmul FLOPS).
SUSTAINED: Mapping[int, float] = MappingProxyType({7: 1.2, 8: 1.1, 9: 1.15})


class Work(NamedTuple):
    """One forward pass of one microbatch on one GPU: seconds at the ceilings (see the module) and launches.

    flash     `attention` in one kernel, longer by what a short sequence leaves idle
    dropped   bytes that attention's dropout moves / memory bandwidth (eager attention only)
    table     bytes of an embedding's table / memory bandwidth: its gradient
    """

    products: float
    attention: float
    flash: float
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
            return Unit.TF32_TURNING if generation(gpu) >= (9, 0) else Unit.TF32
        case Precision.FP16 | Precision.BF16:
            return Unit.HALF
        case Precision.FP32:
            return Unit.FP32_WIDE if generation(gpu) >= (8, 6) else Unit.FP32


def work(
    layer: Layer, gpu: GpuType, *, precision: Precision, microbatch: int, tensor_parallel: int, fused: bool = False
) -> Work:
    """What one forward pass asks of one GPU. `fused`: memory-bound operations are joined into few kernels."""
    products = attention = flash = operands = scores = 0.0
    short = known.short if (known := flash_of(gpu)) else 0.0
    for matmul in layer.matmuls:
        rows, inner, columns, batch = _on_one_gpu(matmul, microbatch, tensor_parallel)
        flops = 2.0 * rows * inner * columns * batch
        if matmul.weight:
            products += flops
            operands += batch * (rows * inner + inner * columns + rows * columns)
        else:
            attention += flops
            flash += flops * (1.0 + short / max(inner, columns))
            # queries × keys writes a score matrix, its softmax × values reads one: half of it for each
            scores += batch * rows * max(inner, columns) / 2.0
    held = microbatch * layer.scores / tensor_parallel
    scores = min(scores, held)  # XLNet has more such products than score matrices
    split, whole, kernels = layer.moved_split, layer.moved_whole, layer.kernels
    if fused:
        split, whole = split - layer.spared_split, whole - layer.spared_whole
        kernels -= layer.spared_kernels
    moved = microbatch * (split / tensor_parallel + whole)
    table = layer.params_split / tensor_parallel if layer.kind is LayerKind.EMBEDDING else 0.0
    rate, per_element = gpu.rate(precision), precision.bytes / gpu.memory_bandwidth
    return Work(
        products=products / rate,
        attention=attention / rate,
        flash=flash / rate,
        operands=operands * per_element,
        scores=scores * per_element,
        dropped=_DROPOUT_PASSES * (held - scores) * per_element,
        moved=moved * per_element,
        table=_TABLE_PASSES * table * per_element,
        kernels=kernels,
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
    flash: Flash | None = None,
    joined: Joined | None = None,
    sustained: float = 1.0,
) -> tuple[float, float]:
    """Seconds of the forward and the backward pass, `reductions` all-reduces launched but not waited for.

    `flash`: what attention in one kernel reaches on this GPU, where that is known. `joined`: for an engine that joins
    memory-bound operations. `sustained`: how much longer products take at the clock that a GPU keeps for hours. Plain
    arithmetic: `done` may hold arrays of many layers.
    """
    c = constants
    moving: Constants | Joined = joined or c
    slowdown, turned = _slowdown(c, unit)
    slowdown *= sustained
    head = kind is LayerKind.HEAD
    forward = slowdown * done.products + c.operands * done.operands
    forward += (c.logits_forward if head else moving.moved_forward) * done.moved
    backward = 2.0 * (slowdown * turned * done.products + c.operands * done.operands) + done.table
    backward += (c.logits_backward if head else moving.moved_backward) * done.moved
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


def flash_of(gpu: GpuType) -> Flash | None:
    """What attention in one kernel reaches on a GPU's generation; None where only the fitted constants tell."""
    return FLASH_BY_GENERATION.get(generation(gpu)[0])


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
    rings: Rings = KNOWN_RINGS,
    fused: bool = False,
    hidden: float = 0.0,
    sustained: float = 1.0,
) -> tuple[float, float]:
    """Seconds of the forward and of the backward pass of one microbatch, tensor parallel's all-reduces included.
    `fused`: the engine joins memory-bound operations into few kernels. `hidden`: the share of the all-reduces that it
    hides behind products. `sustained`: as in `pass_times`."""
    forward, backward = pass_times(
        work(layer, gpu, precision=precision, microbatch=microbatch, tensor_parallel=tensor_parallel, fused=fused),
        constants,
        kind=layer.kind,
        unit=unit_of(gpu, precision),
        precision=precision,
        attention=attention,
        reductions=layer.reductions if tensor_parallel > 1 else 0,
        flash=flash_of(gpu),
        joined=JOINED if fused else None,
        sustained=sustained,
    )
    there, back = exchange_times(
        layer, gpu, precision=precision, microbatch=microbatch, tensor_parallel=tensor_parallel, rings=rings
    )
    seen = 1.0 - hidden
    return forward + seen * there, backward + seen * back


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


def generation(gpu: GpuType) -> tuple[int, int]:
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
