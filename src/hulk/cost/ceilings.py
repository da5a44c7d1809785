"""How near GPUs come to their ceilings: the constants of the roofline (`hulk.cost.roofline`), fitted and published, and
which of them a GPU goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType

from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention

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
    EIGHT = "eight"


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

EIGHT = 1.26
"""How many times as long as at its peak rate a product of 8-bit numbers takes, as `Constants.half` for 16 bits. On an
H200 (torch 2.11, 18 shapes of Llama's products, 4,096 to 16,384 rows) it took 1.48 times as long where one of 16 bits
took 1.46 times: the same share, a little less."""

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


def unit_of(gpu: GpuType, precision: Precision) -> Unit:
    """The unit that does a precision's matrix work on this GPU."""
    match gpu.unit_for(precision):
        case Precision.TF32:
            return Unit.TF32_TURNING if generation(gpu) >= (9, 0) else Unit.TF32
        case Precision.FP16 | Precision.BF16:
            return Unit.HALF
        case Precision.FP8:
            return Unit.EIGHT
        case Precision.FP32:
            return Unit.FP32_WIDE if generation(gpu) >= (8, 6) else Unit.FP32


def flash_of(gpu: GpuType) -> Flash | None:
    """What attention in one kernel reaches on a GPU's generation; None where only the fitted constants tell."""
    return FLASH_BY_GENERATION.get(generation(gpu)[0])


def generation(gpu: GpuType) -> tuple[int, int]:
    """The compute capability as numbers; (0, 0) where it is not known."""
    return _numbers(gpu.capability)


@cache
def _numbers(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
