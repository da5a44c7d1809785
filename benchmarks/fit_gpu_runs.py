"""Fit the constants of Hulk's own runtime on a GPU type (`hulk.cost.own.OWN`) to the readings of its runs at once.

    python benchmarks/fit_gpu_runs.py            errors of the fit, errors with each run left out, and the constants

Least squares of the logarithms of predicted over measured steps (soft_l1), with a weak pull towards the constants of
eager PyTorch. No constant belongs to a run, a model or a family. The plans' readings are not used.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from common import Report, parser
from gpu_cases import Row, load_case, read_rows
from gpu_runs import READINGS
from hulk.cost import own
from hulk.cost.ceilings import FITTED, Constants
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan

NAMES = (
    "half", "fp32_wide", "fused_forward", "fused_backward", "moved_forward", "moved_backward", "logits_forward",
    "logits_backward", "launch_forward", "launch_backward",
)  # fmt: skip
PRIOR = np.log([*(getattr(FITTED, name) for name in NAMES), 1.0])
PULL = 0.05
"""Weight of the pull towards the constants of eager PyTorch, against 1 for a run."""
SCALE = 0.1
"""Errors above this count less than their square."""


@dataclass(frozen=True)
class Case:
    """A run with its reading."""

    row: Row
    job: Job
    plan: JobPlan
    cluster: Cluster


def cases(gpu: str) -> list[Case]:
    """All readings of a GPU type that have a time."""
    found = []
    for row in read_rows(READINGS):
        if row["gpu"] == gpu and row.get("step_s"):
            with tempfile.TemporaryDirectory() as folder:
                found.append(Case(row, *load_case(row, Path(folder))))
    return found


def errors(values: np.ndarray, runs: list[Case], gpu: str) -> np.ndarray:
    """log(predicted / measured), from the roofline alone: no profile is used. `values`: as `fit` returns them."""
    before = own.OWN, own.WATCHED
    own.OWN, own.WATCHED = {gpu: made(values)}, float(np.exp(values[-1]))
    try:
        steps = []
        for run in runs:
            price = price_job(run.job, run.plan, run.cluster, compute=ComputeModel(), engine=HULK)
            assert isinstance(price, JobPrice)
            steps.append(price.step / run.row["step_s"])
        return np.log(steps)
    finally:
        own.OWN, own.WATCHED = before


def fit(runs: list[Case], gpu: str, start: np.ndarray, *, tries: int | None = None) -> np.ndarray:
    """Logarithms of the constants, and of `own.WATCHED`."""

    def residuals(values: np.ndarray) -> np.ndarray:
        return np.concatenate([errors(values, runs, gpu), PULL * (values - PRIOR)])

    result: np.ndarray = least_squares(residuals, start, loss="soft_l1", f_scale=SCALE, max_nfev=tries).x
    return result


def made(values: np.ndarray) -> Constants:
    """Constants from their logarithms."""
    return replace(FITTED, **dict(zip(NAMES, np.exp(values[:-1]).tolist(), strict=True)))


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--gpu", default="h200", help="catalogue name of the GPU type")
    given = arguments.parse_args()
    runs = cases(given.gpu)
    best = fit(runs, given.gpu, PRIOR)
    inside = np.expm1(errors(best, runs, given.gpu))
    left_out = []
    for index, run in enumerate(runs):
        others = fit(runs[:index] + runs[index + 1 :], given.gpu, best, tries=5)
        left_out.append(float(np.expm1(errors(others, [run], given.gpu))[0]))
    report = Report("fit_gpu_runs")
    rows = [[r.row["name"], f"{a:+.1%}", f"{b:+.1%}"] for r, a, b in zip(runs, inside, left_out, strict=True)]
    report.table("runs", ["run", "error", "left out of the fit"], rows)
    named = zip((*NAMES, "WATCHED"), best, strict=True)
    report.note("\n".join(f"{name}={np.exp(value):.4g}," for name, value in named))
    report.figure("mean_error_percent", float(100 * np.abs(inside).mean()))
    report.figure("worst_error_percent", float(100 * np.abs(inside).max()))
    report.figure("left_out.mean_error_percent", float(100 * np.abs(left_out).mean()))
    report.figure("left_out.worst_error_percent", float(100 * np.abs(left_out).max()))
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
