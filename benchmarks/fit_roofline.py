"""Fit the roofline's constants on measured blocks.

    python benchmarks/fit_roofline.py             print the constants and how well they fit
    python benchmarks/fit_roofline.py --write     and write them into src/hulk/cost/ceilings.py
    python benchmarks/fit_roofline.py --collectives   print the table of src/hulk/cost/collectives.py

Deterministic: least squares of the logarithm of predicted over measured seconds (forward, backward and both together),
with a loss that grows only linearly for outliers, from a fixed start. Every model on every GPU type in every precision
counts the same, however many of its blocks were measured. A weak pull towards the start decides what the data leaves
open, so the start is what one expects before any measurement (see `PRIOR`).
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, nnls

from common import format_table, parser
from hulk.cost import roofline
from hulk.cost.ceilings import Constants, flash_of, unit_of
from hulk.cost.collectives import MEASURED_RINGS, Rings
from hulk.cost.roofline import Conditions, Work
from hulk.domain.model import LayerKind
from layer_points import Point, h200_points, sailor_points

ROOT = Path(__file__).resolve().parents[1]
LEAST_LATENCY = 20e-6  # seconds; no all-reduce among GPUs is faster than its launch
PULL = 0.1  # a constant off its prior by a factor e counts as much as one block off by 10 %

PRIOR = Constants(
    # Large cuBLAS products reach 90 % of the peak on plain fp32 units; tensor cores 80 %.
    fp32=1.1,
    fp32_wide=1.25,
    tf32=1.25,
    half=1.25,
    tf32_turned=1.0,
    attention=1.0,
    # FlashAttention-2 (arXiv 2307.08691, section 4): 73 % of the peak forward; 2.5 times the FLOPs at 63 % backward.
    fused_forward=1.4,
    fused_backward=4.0,
    operands=0.5,
    # 4 bytes: product (1), scale and mask (4), softmax (2), product (1); backward: two products (3), softmax (3), mask
    # and scale (4), two products (2). 2 bytes: the softmax writes fp32, which is then read and cast (5 more).
    scores_forward=8.0,
    scores_backward=12.0,
    scores16_forward=13.0,
    scores16_backward=17.0,
    moved_forward=1.25,
    moved_backward=2.5,
    logits_forward=1.25,
    logits_backward=1.25,
    launch_forward=20e-6,
    launch_backward=30e-6,
    parallel=100e-6,
)
NAMES = tuple(field.name for field in fields(Constants))
# No unit beats its peak; fused attention may skip the half of its products that a causal mask hides.
FLOORS = dict.fromkeys(("fp32", "fp32_wide", "tf32", "half", "tf32_turned", "attention"), 1.0) | {
    "fused_forward": 0.5,
    "fused_backward": 1.0,
}


def conditions(point: Point) -> Conditions:
    """How a point was measured."""
    return Conditions(point.precision, point.attention, point.microbatch, point.tensor_parallel)


class Batch:
    """Points that share a formula (unit, element size, attention, all-reduces), as arrays."""

    def __init__(self, points: Sequence[Point], rings: Rings) -> None:
        """All points must agree in what `pass_times` branches on."""
        first = points[0]
        self.kind, self.gpu, self.how = first.layer.kind, first.gpu, conditions(first)
        self.reductions = first.layer.reductions if first.tensor_parallel > 1 else 0
        self.work = Work(*np.array([roofline.work(p.layer, p.gpu, conditions(p)) for p in points]).T)
        exchanges = [roofline.exchange_times(p.layer, p.gpu, conditions(p), rings=rings) for p in points]
        self.exchange = np.array(exchanges).T
        self.measured = np.array([(p.forward, p.backward) for p in points]).T

    def predict(self, constants: Constants) -> np.ndarray:
        """Forward and backward seconds, 2 × points."""
        passes = roofline.pass_times(
            self.work,
            constants,
            kind=self.kind,
            gpu=self.gpu,
            how=self.how,
            reductions=self.reductions,
        )
        return np.array(passes) + self.exchange


def fit(
    points: Sequence[Point], *, rings: Rings = MEASURED_RINGS, names: Sequence[str] = NAMES, start: Constants = PRIOR
) -> Constants:
    """The constants called `names` that fit these points best, the others as they are at the start."""
    groups: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in points:
        groups[_formula(point)].append(point)
    batches = [Batch(group, rings) for group in groups.values()]
    sizes = Counter(map(_family, points))
    weights = [np.array([sizes[_family(point)] ** -0.5 for point in group]) for group in groups.values()]
    scale = 1.0 / np.mean(np.concatenate(weights))
    prior = np.log([getattr(start, name) for name in names])

    def at(logs: np.ndarray) -> Constants:
        return replace(start, **dict(zip(names, np.exp(logs), strict=True)))

    def residuals(logs: np.ndarray) -> np.ndarray:
        constants = at(logs)
        parts = [PULL * (logs - prior)]
        for batch, weight in zip(batches, weights, strict=True):
            predicted = batch.predict(constants)
            both = np.log(predicted.sum(axis=0) / batch.measured.sum(axis=0))
            each = np.log(predicted / batch.measured)
            parts += [both * weight * scale, *(0.5 * each * weight * scale)]
        return np.concatenate(parts)

    floors = np.array([np.log(FLOORS[name]) if name in FLOORS else -np.inf for name in names])
    found = least_squares(residuals, np.maximum(prior, floors), bounds=(floors, np.inf), loss="soft_l1", f_scale=0.1)
    return at(found.x)


def fit_shipped() -> Constants:
    """The constants that Hulk ships: from all blocks, and then those of the head from all heads."""
    blocks = fit([*sailor_points(), *h200_points()])
    heads = [*sailor_points(LayerKind.HEAD), *h200_points(LayerKind.HEAD)]
    return fit(heads, names=("logits_forward", "logits_backward"), start=blocks)


def carried_to_half(constants: Constants) -> Constants:
    """For a fit that saw no 16-bit data: its tensor cores taken to do as well as the TF32 ones, forward."""
    return replace(constants, half=constants.tf32)


def errors(points: Sequence[Point], constants: Constants, *, rings: Rings = MEASURED_RINGS) -> np.ndarray:
    """Predicted over measured seconds of forward and backward together, less one."""
    predicted = [
        sum(roofline.layer_time(p.layer, p.gpu, conditions(p), constants=constants, rings=rings)) for p in points
    ]
    return np.array(predicted) / np.array([p.seconds for p in points]) - 1.0


def fit_rings() -> list[tuple[str, int, float, float]]:
    """(GPU, GPUs, latency, bandwidth) of the measured all-reduces: least relative error, outliers damped."""
    rows = json.loads((ROOT / "src/hulk/data/profiles/collectives.json").read_text())["collectives"]
    results = []
    for row in rows:
        seconds, sent = np.array(row["seconds"]), np.array(row["bytes"]) * 2 * (row["gpus"] - 1) / row["gpus"]
        weight = 1.0 / seconds
        for _ in range(30):
            (latency, inverse), _ = nnls(np.stack([weight, weight * sent / 1e9], axis=1), weight * seconds)
            error = np.abs((latency + inverse * sent / 1e9) / seconds - 1.0)
            weight = 1.0 / seconds / np.sqrt(np.maximum(error, 0.01))
        results.append((row["gpu"], row["gpus"], max(float(latency), LEAST_LATENCY), float(1e9 / inverse)))
    return results


def write(constants: Constants) -> None:
    """Replace the constants in ceilings.py."""
    path = ROOT / "src/hulk/cost/ceilings.py"
    body = "".join(f"    {name}={value:.4g},\n" for name, value in asdict(constants).items())
    block = re.compile(r"^FITTED = Constants\(\n.*?^\)", flags=re.MULTILINE | re.DOTALL)
    text, count = block.subn(f"FITTED = Constants(\n{body})", path.read_text())
    if count != 1:
        raise SystemExit(f"no constants to replace in {path}")
    path.write_text(text)


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--collectives", action="store_true")
    options = arguments.parse_args()
    if options.collectives:
        rows = [[name, count, f"{wait * 1e6:.0f}", f"{speed / 1e9:.3g}"] for name, count, wait, speed in fit_rings()]
        print(format_table(["GPU", "GPUs", "latency µs", "GB/s"], rows))
        return 0
    points = [*sailor_points(), *h200_points()]
    constants = fit_shipped()
    values = asdict(constants)
    if options.json:
        print(json.dumps(values))
    else:
        print(format_table(["constant", "value"], [[name, f"{value:.4g}"] for name, value in values.items()]))
        middle = np.median(np.abs(errors(points, constants)))
        print(f"\nmedian error on the {len(points)} blocks fitted: {middle:.1%}")
    if options.write:
        write(constants)
    return 0


def _formula(point: Point) -> tuple[object, ...]:
    unit = unit_of(point.gpu, point.precision)
    parallel = point.tensor_parallel > 1
    return (
        point.layer.kind,
        unit,
        flash_of(point.gpu),
        point.precision.bytes,
        point.attention,
        parallel,
        point.layer.reductions,
    )


def _family(point: Point) -> tuple[object, ...]:
    return point.layer.kind, point.gpu.name, point.model, point.precision


if __name__ == "__main__":
    sys.exit(main())
