"""Predicted against measured: step time and peak memory of training runs that really ran.

    python benchmarks/step_accuracy.py                              the bundled runs
    python benchmarks/step_accuracy.py --leave-out                  each run by constants fitted to all the others
    python benchmarks/step_accuracy.py --runs DIR --model opt-350m  run files in the format of the Sailor artifact

A prediction knows the placement, the microbatch and the global batch; the measured fields are read afterwards.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

from common import Report, parser
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import MEGATRON_DEEPSPEED, Engine
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible, JobPrice
from hulk.errors import HulkError
from hulk.io.profiles import bundled_profiles
from runs import Measurement, Run, artifact_runs, bundled_sets, scenario

# Mean absolute error in percent, (time, memory): machines of one kind with a card per GPU, and mixed machines.
BOUNDS = {"gh200-96": (6.0, 5.0), "mixed": (4.0, 15.0)}


# What `--leave-out` chooses from: seconds a message, and the share of its cards that a GH200 node's all-reduce reaches.
MESSAGES = (0.0, 1e-3, 1.5e-3, 2e-3, 2.5e-3, 3e-3, 4e-3)
SHARES = (0.25, 0.35, 0.45, 0.55, 0.7, 1.0)
CARD_EACH = "gh200-96"


def predict(run: Run, model: str, compute: ComputeModel, engine: Engine = MEGATRON_DEEPSPEED) -> JobPrice:
    """The price of a run, from its placement alone."""
    cluster, job, plan = scenario(run, model)
    price = price_job(job, plan, cluster, compute=compute, engine=engine)
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


def leave_out() -> Report:
    """Each of the bundled runs by what is fitted to all others: steps by the best of some values of the engine's two
    constants, memory by the median of what a set's other runs take beyond their tensors."""
    report, compute, sets = Report("step_accuracy"), ComputeModel(bundled_profiles()), bundled_sets()
    runs = [(name, model, *entry) for name, (model, entries) in sets.items() for entry in entries]
    errors = []
    for message, share in product(MESSAGES, SHARES):
        engine = replace(MEGATRON_DEEPSPEED, message_overhead=message, ring_share_of={CARD_EACH: share})
        errors.append([predict(run, model, compute, engine).step / read.step - 1 for _, model, run, read in runs])
    table = np.array(errors)
    plain = replace(MEGATRON_DEEPSPEED, reserve=0.0, reserve_of={})
    prices = [predict(run, model, compute, plain) for _, model, run, _ in runs]
    beyond = [read.memory - peak_memory(price) for price, (_, _, _, read) in zip(prices, runs, strict=True)]
    possible = [read.memory >= resident_memory(price) for price, (_, _, _, read) in zip(prices, runs, strict=True)]
    times: dict[str, list[float]] = {}
    memories: dict[str, list[float]] = {}
    for i, (name, _, _, read) in enumerate(runs):
        others = np.arange(len(runs)) != i
        best = np.abs(table[:, others]).mean(axis=1).argmin()
        times.setdefault(name, []).append(float(table[best, i]))
        known = [beyond[j] for j, run in enumerate(runs) if j != i and possible[j] and run[0] == name]
        if possible[i]:
            memories.setdefault(name, []).append((read.memory - beyond[i] + median(known)) / read.memory - 1)
    for name, its_times in times.items():
        report.figure(f"{name}.left_out_time_error_percent", _mean(its_times))
        report.figure(f"{name}.left_out_memory_error_percent", _mean(memories[name]))
    return report


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
    arguments.add_argument("--leave-out", action="store_true", help="each run by what is fitted to the others")
    given = arguments.parse_args()
    if given.leave_out and (given.runs or given.model):
        arguments.error("--leave-out fits to the bundled runs; it goes with neither --runs nor --model")
    try:
        if given.leave_out:
            return leave_out().finish(given.json)
        return build_report(given.runs, given.model).finish(given.json)
    except HulkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
