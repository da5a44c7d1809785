"""How well the roofline predicts transformer blocks on GPU types it has not seen.

    python benchmarks/layer_accuracy.py                 leave one of the seven types of the Sailor artifact out, in turn
    python benchmarks/layer_accuracy.py --layers FILE   the shipped constants against the blocks of a file

A row of FILE: gpu, model, precision, microbatch, sequence, forward_s, backward_s; attention (fused where not given) and
tensor_parallel (1). The error of a block is |predicted - measured| / measured of forward and backward together; no
profile is used. The bound is on the median over all blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from common import Report, parser
from fit_roofline import carried_to_half, errors, fit
from hulk.cost.ceilings import FITTED
from hulk.errors import HulkError
from layer_points import SAILOR_TYPES, Point, h200_points, read_points, sailor_points

MOST = 20.0
"""Per cent."""
DEVICE_BOUND = 1.5e-3
"""Seconds of a forward pass above which the GPU, not the host, sets the time on the H200's machine."""


def leave_one_out(*, with_rings: bool = True) -> tuple[list[Point], np.ndarray]:
    """Blocks of the seven types, each type predicted from a fit on the other six; errors as predicted / measured - 1.

    `with_rings=False` withholds the all-reduce measurements too, so that a machine's links are known by datasheet only.
    """
    options = {} if with_rings else {"rings": {}}
    ordered: list[Point] = []
    parts = []
    for name in SAILOR_TYPES:
        unseen = [point for point in sailor_points() if point.gpu.name == name]
        seen = [point for point in sailor_points() if point.gpu.name != name]
        parts.append(errors(unseen, fit(seen, **options), **options))
        ordered += unseen
    return ordered, np.concatenate(parts)


def without_h200() -> tuple[list[Point], np.ndarray]:
    """The H200's blocks from a fit that saw neither the H200 nor any 16-bit or fused attention data."""
    points = list(h200_points())
    return points, errors(points, carried_to_half(fit(sailor_points())))


def percent(deviations: np.ndarray) -> float:
    """The median error in per cent."""
    return float(100.0 * np.median(np.abs(deviations)))


def split_table(
    report: Report, title: str, points: Sequence[Point], deviations: np.ndarray, by: Callable[[Point], object]
) -> None:
    """Median error, bias and the worst tenth for each value of `by`."""
    keys = [by(point) for point in points]
    rows = []
    for key in sorted(set(keys), key=lambda key: (isinstance(key, str), key)):
        part = deviations[[index for index, other in enumerate(keys) if other == key]]
        most = 100 * np.quantile(np.abs(part), 0.9)
        rows.append([key, len(part), f"{percent(part):.1f} %", f"{100 * np.median(part):+.1f} %", f"{most:.1f} %"])
    report.table(title, ["", "blocks", "median error", "bias", "9 of 10 within"], rows)


def unseen_report() -> Report:
    """Leave one type out, and the H200 out."""
    report = Report("layer_accuracy")
    points, deviations = leave_one_out()
    report.figure("median_error_percent", percent(deviations), most=MOST)
    for name in SAILOR_TYPES:
        own = [point.gpu.name == name for point in points]
        report.figure(f"{name}.median_error_percent", percent(deviations[own]))
    _, datasheet = leave_one_out(with_rings=False)
    report.figure("without_collectives.median_error_percent", percent(datasheet), most=MOST)
    split_table(report, "by GPU type, left out of the fit", points, deviations, lambda p: p.gpu.name)
    split_table(report, "by tensor parallel degree", points, deviations, lambda p: p.tensor_parallel)
    split_table(report, "by model", points, deviations, lambda p: p.model)
    h200, unseen = without_h200()
    fitted = errors(h200, FITTED)
    for precision in sorted({point.precision for point in h200}):
        own = [point.precision is precision for point in h200]
        busy = [same and point.forward >= DEVICE_BOUND for same, point in zip(own, h200, strict=True)]
        report.figure(f"h200.{precision}.left_out_median_error_percent", percent(unseen[own]))
        report.figure(f"h200.{precision}.left_out_device_bound_median_error_percent", percent(unseen[busy]))
        report.figure(f"h200.{precision}.fitted_median_error_percent", percent(fitted[own]))
    split_table(report, "H200, left out of the fit", h200, unseen, lambda p: f"{p.precision} {p.attention}")
    split_table(report, "H200, in the fit", h200, fitted, lambda p: f"{p.precision} {p.attention}")
    return report


def file_report(path: Path) -> Report:
    """The shipped constants against a file of measured blocks."""
    report = Report(f"layer_accuracy {path.name}")
    points = read_points(path)
    deviations = errors(points, FITTED)
    report.figure("median_error_percent", percent(deviations), most=MOST)
    report.figure("blocks", len(points))
    split_table(report, "by GPU type", points, deviations, lambda p: p.gpu.name)
    split_table(report, "by precision and attention", points, deviations, lambda p: f"{p.precision} {p.attention}")
    split_table(report, "by model", points, deviations, lambda p: p.model)
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--layers", type=Path, help="measured blocks: a profile of `hulk profile`, or JSON lines")
    options = arguments.parse_args()
    try:
        report = file_report(options.layers) if options.layers else unseen_report()
        return report.finish(options.json)
    except (HulkError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)


if __name__ == "__main__":
    sys.exit(main())
