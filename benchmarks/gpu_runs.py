"""Predicted against measured: step time and memory of `hulk run` on one GPU.

    python benchmarks/gpu_runs.py                            the bundled readings: runs, and plans of `hulk plan`
    python benchmarks/gpu_runs.py --runs FILE                readings of the same form (benchmarks/gpu_cases.py has it)
    python benchmarks/gpu_runs.py --runs FILE --measure OUT  run the rows of FILE here, and write their readings to OUT

A prediction is that of `hulk run`, from the model, the batch and the plan alone; measured fields are read afterwards.
Errors are predicted / measured - 1.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from common import Report, parser
from gpu_cases import Row, load_case, measure, read_rows
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible, JobPrice
from hulk.errors import HulkError
from hulk.io.profiles import bundled_profiles

READINGS = Path(__file__).parent / "data/h200_runs.jsonl"
PLANS = Path(__file__).parent / "data/h200_plans.jsonl"
MOST_MEMORY, LEAST_MEMORY = 5.0, -3.0
"""Per cent: the mean of the errors of memory, and the lowest of them."""
MOST_TIME, WORST_TIME = 8.0, 20.0
"""Per cent: the mean and the worst error of a step's time."""
GIB = 2.0**30


def predict(row: Row, compute: ComputeModel) -> JobPrice:
    """The price of a row."""
    with tempfile.TemporaryDirectory() as folder:
        job, plan, cluster = load_case(row, Path(folder))
        price = price_job(job, plan, cluster, compute=compute, engine=HULK)
    if isinstance(price, Infeasible):
        raise HulkError(f"{row['name']}: predicted not to fit: {price.reason}")
    return price


def build_report(*paths: Path) -> Report:
    """Compare the readings of files."""
    report = Report("gpu_runs")
    compute = ComputeModel(bundled_profiles())
    rows, memories, times, failed = [], [], [], 0
    for row in [row for path in paths for row in read_rows(path)]:
        if row.get("failed"):
            failed += 1
            rows.append([row["name"], row["failed"][:60], "", "", "", "", ""])
            continue
        price = predict(row, compute)
        memory = price.pipelines[0][0].memory.used
        memories.append(memory / row["memory_bytes"] - 1)
        sizes = [f"{row['memory_bytes'] / GIB:.1f}", f"{memory / GIB:.1f}", f"{memories[-1]:+.1%}"]
        seconds = ["", f"{price.step:.3f}", ""]
        if row.get("step_s") is not None:
            times.append(price.step / row["step_s"] - 1)
            seconds = [f"{row['step_s']:.3f}", f"{price.step:.3f}", f"{times[-1]:+.1%}"]
        rows.append([row["name"], *sizes, *seconds])
    report.table("runs", ["run", "GiB", "predicted", "error", "step s", "predicted", "error"], rows)
    report.figure("runs", len(rows))
    report.figure("out_of_memory_or_failed", failed, most=0)
    report.figure("memory_mean_error_percent", _mean(memories), most=MOST_MEMORY)
    report.figure("memory_lowest_error_percent", 100 * min(memories, default=float("nan")), least=LEAST_MEMORY)
    report.figure("memory_highest_error_percent", 100 * max(memories, default=float("nan")))
    report.figure("time_mean_error_percent", _mean(times), most=MOST_TIME)
    worst = max((abs(error) for error in times), default=float("nan"))
    report.figure("time_worst_error_percent", 100 * worst, most=WORST_TIME)
    return report


def _mean(errors: list[float]) -> float:
    return 100 * sum(abs(error) for error in errors) / len(errors) if errors else float("nan")


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=Path, help="readings, as JSON lines")
    arguments.add_argument("--measure", type=Path, help="run them on this machine's GPU and add the readings here")
    given = arguments.parse_args()
    try:
        if given.measure is not None:
            with tempfile.TemporaryDirectory() as folder:
                measure(read_rows(given.runs or READINGS), Path(folder), given.measure)
            return 0
        return build_report(*([given.runs] if given.runs else [READINGS, PLANS])).finish(given.json)
    except (HulkError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)


if __name__ == "__main__":
    sys.exit(main())
