"""Predicted against measured: training runs that others have published.

    python benchmarks/published.py                 the bundled runs (data/published_runs.jsonl)
    python benchmarks/published.py --runs FILE     others, as JSON lines with the same fields (see published_runs.py)
    python benchmarks/published.py --json          one JSON object
    python benchmarks/published.py --points FILE   also write name, engine, predicted and measured seconds as JSON lines
    python benchmarks/published.py --leave-out     also each group by what is fitted on the others (some minutes)

A run is priced with the engine that it names, or the nearest bundled one. What a plan cannot say (interleaved
stages whose microbatches are no multiple of the stages) is listed, and the nearest plan is priced: such runs count
among `all`, not among `expressible`. Bias is the mean of the signed errors.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from common import Report, parser
from hulk.cost import ceilings
from hulk.cost.compute import ComputeModel
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible, JobPrice
from hulk.errors import HulkError
from hulk.io.profiles import bundled_profiles
from published_runs import DATA, Published, read_runs

MOST_ERROR, MOST_MEAN, MOST_BIAS = 10.0, 15.0, 5.0
FIT_ALL_BUT_ONE_IN = 20
FACTORS = tuple(1.0 + 0.05 * i for i in range(7))
FEWEST = 4


@dataclass(frozen=True)
class Outcome:
    """A run with its price."""

    run: Published
    price: JobPrice

    @property
    def error(self) -> float:
        """Of the step's time: predicted over measured, less one."""
        return self.price.step / self.run.step - 1.0

    @property
    def memory(self) -> float:
        """Bytes of the worst GPU."""
        return max(stage.memory.used for pipeline in self.price.pipelines for stage in pipeline)

    @property
    def fits(self) -> bool:
        """Whether every GPU holds its part."""
        return self.memory <= self.run.cluster.machines[0].gpu.memory

    @property
    def expressible(self) -> bool:
        """Whether a plan says all of the run."""
        return not self.run.missing


def predict(runs: Sequence[Published], compute: ComputeModel | None = None) -> list[Outcome]:
    """The price of every run."""
    compute = compute or ComputeModel(bundled_profiles())
    outcomes = []
    for run in runs:
        price = price_job(run.job, run.plan, run.cluster, compute=compute, engine=run.engine)
        if isinstance(price, Infeasible):
            raise HulkError(f"{run.name}: {price.reason}")
        outcomes.append(Outcome(run, price))
    return outcomes


def generation(run: Published) -> int:
    """Of the run's GPUs: the first number of their compute capability."""
    return ceilings.generation(run.cluster.machines[0].gpu)[0]


def left_out(runs: Sequence[Published]) -> list[float]:
    """Errors of the runs that a plan can say, each by what is fitted without its group: how much longer products take
    than in a short measurement, for each generation of GPUs (`hulk.cost.ceilings.SUSTAINED`). The fit makes the mean
    error least; it sees runs that a plan cannot quite say only where a generation has too few others."""
    errors: dict[float, dict[str, float]] = {}
    for factor in FACTORS:
        compute = ComputeModel(bundled_profiles(), sustained=dict.fromkeys(range(20), factor))
        errors[factor] = {outcome.run.name: outcome.error for outcome in predict(runs, compute)}
    result = []
    for run in runs:
        if run.missing:
            continue
        others = [
            o for o in runs if generation(o) == generation(run) and o.group != run.group and "fp8" not in o.missing
        ]
        said = [o for o in others if not o.missing]
        seen = said if len(said) >= FEWEST else others
        best = min(FACTORS, key=lambda f: fmean(abs(errors[f][o.name]) for o in seen) if seen else f)
        result.append(errors[best][run.name])
    return result


def build_report(outcomes: Sequence[Outcome]) -> Report:
    """Figures for what a plan can say, and for all; a table of the runs, and one of the groups."""
    report = Report("published")
    report.table(
        "runs",
        ["run", "engine", "step s", "predicted", "error", "GiB", "predicted", "sync", "transfer", "not said"],
        [_line(outcome) for outcome in outcomes],
    )
    groups = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.run.group].append(outcome)
    report.table(
        "groups",
        ["group", "runs", "median error", "bias"],
        [[group, len(own), f"{_middle(own):.1f} %", f"{_bias(own):+.1f} %"] for group, own in groups.items()],
    )
    said = [outcome for outcome in outcomes if outcome.expressible]
    for name, own in (("expressible", said), ("all", outcomes)):
        if not own:
            continue
        report.figure(f"{name}_runs", len(own))
        report.figure(f"{name}_median_error_percent", _middle(own), most=MOST_ERROR)
        report.figure(f"{name}_mean_error_percent", 100.0 * fmean(abs(o.error) for o in own), most=MOST_MEAN)
        report.figure(f"{name}_bias_percent", _bias(own), least=-MOST_BIAS, most=MOST_BIAS)
        most = 0 if name == "expressible" else len(own) // FIT_ALL_BUT_ONE_IN
        report.figure(f"{name}_not_fitting", sum(not o.fits for o in own), most=most)
        held = [abs(o.memory / o.run.memory - 1.0) for o in own if o.run.memory is not None]
        if held:
            report.figure(f"{name}_memory_median_error_percent", 100.0 * median(held))
    return report


def _line(outcome: Outcome) -> list[str]:
    run, price = outcome.run, outcome.price
    return [
        run.name,
        run.engine.name,
        f"{run.step:.3f}",
        f"{price.step:.3f}",
        f"{outcome.error:+.1%}",
        "" if run.memory is None else f"{run.memory / 2**30:.2f}",
        f"{outcome.memory / 2**30:.2f}" + ("" if outcome.fits else " !"),
        f"{price.breakdown.sync / price.step:.0%}",
        f"{price.breakdown.transfer / price.step:.0%}",
        ", ".join(run.missing),
    ]


def _middle(outcomes: Sequence[Outcome]) -> float:
    return 100.0 * median(abs(outcome.error) for outcome in outcomes)


def _bias(outcomes: Sequence[Outcome]) -> float:
    return 100.0 * fmean(outcome.error for outcome in outcomes)


def write_points(path: Path, outcomes: Sequence[Outcome]) -> None:
    """One JSON object a line for pictures of predicted against measured."""
    rows = [
        {
            "name": outcome.run.name,
            "engine": outcome.run.engine.name,
            "measured_s": outcome.run.step,
            "predicted_s": outcome.price.step,
            "expressible": outcome.expressible,
        }
        for outcome in outcomes
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=Path, default=DATA, help="published runs, as JSON lines")
    arguments.add_argument("--points", type=Path, help="where to write predicted and measured seconds")
    arguments.add_argument("--leave-out", action="store_true", help="fit without each group in turn")
    options = arguments.parse_args()
    try:
        outcomes = predict(read_runs(options.runs))
        if options.points:
            write_points(options.points, outcomes)
        report = build_report(outcomes)
        if options.leave_out:
            errors = left_out([outcome.run for outcome in outcomes])
            report.figure("left_out_median_error_percent", 100.0 * median(map(abs, errors)))
            report.figure("left_out_bias_percent", 100.0 * fmean(errors))
        return report.finish(options.json)
    except (HulkError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)


if __name__ == "__main__":
    sys.exit(main())
