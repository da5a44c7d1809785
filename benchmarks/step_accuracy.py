"""Predicted against measured: step time and peak memory of training runs that really ran.

    python benchmarks/step_accuracy.py                              the bundled runs
    python benchmarks/step_accuracy.py --runs DIR --model opt-350m  run files in the format of the Sailor artifact

A prediction knows the placement, the microbatch and the global batch; the measured fields are read afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import Report, parser
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import MEGATRON_DEEPSPEED
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible, JobPrice
from hulk.errors import HulkError
from hulk.io.profiles import bundled_profiles
from runs import Measurement, Run, artifact_runs, bundled_sets, scenario

# Mean absolute error in percent, (time, memory): machines of one kind with a card per GPU, and mixed machines.
BOUNDS = {"gh200-96": (6.0, 5.0), "mixed": (4.0, 15.0)}


def predict(run: Run, model: str, compute: ComputeModel) -> JobPrice:
    """The price of a run, from its placement alone."""
    cluster, job, plan = scenario(run, model)
    price = price_job(job, plan, cluster, compute=compute, engine=MEGATRON_DEEPSPEED)
    if isinstance(price, Infeasible):
        raise HulkError(f"run {run.name}: predicted not to fit, although it ran: {price.reason}")
    return price


def peak_memory(price: JobPrice) -> float:
    """Bytes of the worst GPU."""
    return max(stage.memory.used for pipeline in price.pipelines for stage in pipeline)


def resident_memory(price: JobPrice) -> float:
    """Bytes that the worst GPU cannot do without: weights, gradients, optimizer state and the activations of a single
    microbatch; nothing that a library reserves. A reading below it is not of a GPU that held its stage."""
    worst = 0.0
    for pipeline in price.pipelines:
        for position, stage in enumerate(pipeline):
            memory = stage.memory
            in_flight = len(pipeline) - position
            state = memory.weights + memory.gradients + memory.optimizer
            worst = max(worst, state + memory.activations / in_flight)
    return worst


def evaluate(report: Report, name: str, model: str, runs: list[tuple[Run, Measurement]]) -> None:
    """Add one set of runs to the report."""
    compute = ComputeModel(bundled_profiles())
    rows, times, memories = [], [], []
    kinds = {place.gpu for run, _ in runs for group in run.groups for row in group.placements for place in row}
    for run, measured in runs:
        price = predict(run, model, compute)
        memory = peak_memory(price)
        possible = measured.memory >= resident_memory(price)
        times.append(price.step / measured.step - 1)
        error = memory / measured.memory - 1
        if possible:
            memories.append(error)
        rows.append(
            [
                run.name,
                f"{measured.step:.3f}",
                f"{price.step:.3f}",
                f"{times[-1]:+.1%}",
                f"{measured.memory / 1e9:.2f}",
                f"{memory / 1e9:.2f}",
                f"{error:+.1%}" + ("" if possible else " !"),
                *(f"{part / price.step:.0%}" for part in (price.breakdown.transfer, price.breakdown.sync)),
            ]
        )
    columns = ["run", "step s", "predicted", "error", "GB", "predicted", "error", "transfer", "sync"]
    report.table(f"{name} ({model})", columns, rows)
    most_time, most_memory = BOUNDS["gh200-96" if kinds == {"gh200-96"} else "mixed"]
    report.figure(f"{name}.time_error_percent", _mean(times), most=most_time)
    report.figure(f"{name}.memory_error_percent", _mean(memories), most=most_memory)
    report.figure(f"{name}.impossible_memory_readings", len(runs) - len(memories))
    if len(memories) < len(runs):
        report.note(
            f"{name}: ! marks a reading below what weights, gradients, optimizer state and one microbatch's "
            "activations take; the runs' timing rules out recomputation, so it is not of a GPU that held its stage. "
            "It is left out of the memory's error."
        )


def _mean(errors: list[float]) -> float:
    return 100 * sum(abs(error) for error in errors) / len(errors) if errors else float("nan")


def build_report(runs: Path | None = None, model: str | None = None) -> Report:
    """The bundled sets, or the run files of a folder."""
    report = Report("step_accuracy")
    if runs is None:
        for name, (its_model, entries) in bundled_sets().items():
            evaluate(report, name, model or its_model, entries)
    else:
        entries = artifact_runs(runs)
        layers = sum(entries[0][0].groups[0].layers)
        evaluate(report, runs.name, model or {26: "opt-350m", 34: "gpt-neo-2.7b"}.get(layers, "opt-350m"), entries)
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=Path, help="a folder of run files (JSON)")
    arguments.add_argument("--model", help="catalogue name of the model that ran")
    given = arguments.parse_args()
    try:
        return build_report(given.runs, given.model).finish(given.json)
    except HulkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
