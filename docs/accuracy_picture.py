"""Draws docs/images/accuracy.svg: predicted against measured seconds of every run there is, one dot each.

.venv/bin/python docs/accuracy_picture.py
"""

from __future__ import annotations

import sys
from collections import defaultdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from hulk.cost.compute import ComputeModel
from hulk.io.profiles import bundled_profiles

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import published  # noqa: E402
import published_runs  # noqa: E402
import runs  # noqa: E402
import step_accuracy  # noqa: E402

COLOURS = {
    "megatron": "#1d5d91",
    "megatron-deepspeed": "#d1495b",
    "torchtitan": "#edae49",
    "hulk": "#66a182",
}
OTHER = "#8d5a2b"
BAND = 0.1


class Point(NamedTuple):
    """A run. `said`: whether a plan says all of it."""

    engine: str
    measured: float
    predicted: float
    said: bool = True


def points() -> list[Point]:
    """The published runs, those of the Sailor artifact, and our own readings."""
    found = [
        Point(o.run.engine.name, o.run.step, o.price.step, o.expressible)
        for o in published.predict(published_runs.read_runs())
    ]
    compute = ComputeModel(bundled_profiles())
    for model, entries in runs.bundled_sets().values():
        found += [
            Point("megatron-deepspeed", measured.step, step_accuracy.predict(run, model, compute).step)
            for run, measured in entries
        ]
    if find_spec("gpu_runs"):  # readings of our own
        own = import_module("gpu_runs")
        found += [
            Point("hulk", float(row["step_s"]), own.predict(row, compute).step)
            for path in (own.READINGS, own.PLANS)
            for row in own.read_rows(path)
            if row.get("step_s") is not None
        ]
    return found


def main() -> None:
    """Draw it."""
    matplotlib.rcParams.update({"svg.hashsalt": "hulk", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(figsize=(6.4, 5.6), layout="constrained")
    found = points()
    least = min(min(p.measured, p.predicted) for p in found) / 1.3
    most = max(max(p.measured, p.predicted) for p in found) * 1.3
    ends = [least, most]
    axes.fill_between(ends, [x * (1 - BAND) for x in ends], [x * (1 + BAND) for x in ends], color="#eceff1", zorder=0)
    axes.plot(ends, ends, color="#90a4ae", linewidth=0.8, zorder=1)
    by_engine = defaultdict(list)
    for point in found:
        by_engine[point.engine].append(point)
    for engine, own in sorted(by_engine.items()):
        colour = COLOURS.get(engine, OTHER)
        for said in (True, False):
            part = [p for p in own if p.said is said]
            if part:
                label = f"{engine} ({len(part)})" if said else f"{engine}, nearest plan ({len(part)})"
                axes.scatter(
                    [p.measured for p in part], [p.predicted for p in part], s=18, label=label, zorder=2,
                    facecolors=colour if said else "none", edgecolors=colour, linewidths=0.9,
                )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_xlabel("measured, seconds a step")
    axes.set_ylabel("predicted, seconds a step")
    axes.set_aspect("equal")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(ROOT / "docs" / "images" / "accuracy.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
