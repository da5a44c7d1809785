"""Draws the README's picture: where a plan's jobs run, and one job's step as a timeline.

.venv/bin/python docs/pictures.py
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from hulk.cost.compute import ComputeModel
from hulk.cost.prepared import Prepared, prepare
from hulk.domain.cluster import Cluster
from hulk.domain.plan import Plan
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import load_plan
from hulk.io.profiles import bundled_profiles
from hulk.simulate import JobTimeline, SpanKind, simulate

WINDOW = 0.1
ROOT = Path(__file__).parent.parent
JOB_COLOURS = ["#d1495b", "#00798c", "#edae49", "#66a182", "#5c4d7d", "#8d5a2b"]
KIND_COLOURS = {
    SpanKind.FORWARD: "#4c9fd4",
    SpanKind.BACKWARD: "#1d5d91",
    SpanKind.SYNC: "#d1495b",
    SpanKind.UPDATE: "#edae49",
}


def draw_map(axes: Axes, cluster: Cluster, plan: Plan) -> None:
    """Regions at their places, sized by GPUs; a job's regions in its colour, its pipelines as lines."""
    at = {r.name: (r.longitude or 0.0, r.latitude or 0.0) for r in cluster.regions}
    for region in cluster.regions:
        gpus = sum(m.gpus for m in cluster.in_region(region.name))
        x, y = at[region.name]
        axes.scatter(x, y, s=6 * gpus, color="#cfd8dc", zorder=1)
        axes.annotate(region.label or region.name, (x, y), textcoords="offset points", xytext=(8, -3), fontsize=7)
    handles = []
    for colour, (name, job) in zip(JOB_COLOURS, plan.jobs.items(), strict=False):
        regions = [[cluster.machine(s.machine).region for s in p.stages] for p in job.pipelines]
        for path in regions:
            for a, b in pairwise(path):
                axes.plot(*zip(at[a], at[b], strict=True), color=colour, linewidth=2, zorder=2)
        for region in sorted({r for path in regions for r in path}):
            axes.scatter(*at[region], s=42, color=colour, zorder=3)
        handles.append(Patch(color=colour, label=name))
    axes.legend(handles=handles, loc="lower left", fontsize=8, frameon=False)
    axes.set_xlim(-180, 180)
    axes.set_ylim(-45, 75)
    axes.set_aspect("auto")
    axes.set_xticks(range(-180, 181, 60))
    axes.set_yticks(range(-30, 61, 30))
    axes.tick_params(labelsize=6, colors="#90a4ae", length=0)
    axes.grid(color="#eceff1", linewidth=0.6)
    for side in axes.spines.values():
        side.set_visible(False)


def draw_timeline(axes: Axes, timeline: JobTimeline, prepared: Prepared) -> None:
    """Every pass of every stage of the first pipeline, over time; the others are mostly like it."""
    rows = [(0, s) for s in range(len(prepared.plan.pipelines[0].stages))]
    window = WINDOW * timeline.step
    for row, place in enumerate(rows):
        for kind, colour in KIND_COLOURS.items():
            bars = [
                (span.start, span.seconds)
                for span in timeline.spans
                if span.kind is kind and (span.pipeline, span.stage) == place and span.start < window
            ]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=colour, linewidth=0)
    axes.set_xlim(0, window)
    axes.set_yticks(range(len(rows)), [s.machine for s in prepared.plan.pipelines[0].stages], fontsize=5)
    axes.invert_yaxis()
    axes.set_xlabel(
        f"{timeline.job}: the first seconds of a step of {timeline.step:.0f} s in its first pipeline, stage by stage",
        fontsize=8,
    )
    axes.tick_params(axis="x", labelsize=7)
    axes.legend(
        handles=[Patch(color=c, label=str(k)) for k, c in KIND_COLOURS.items()],
        ncols=4, fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1, 1),
    )  # fmt: skip
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main() -> None:
    """Draw docs/images/hulk47.png."""
    cluster, jobs = load_cluster("hulk47"), {job.name: job for job in load_jobs("paper4")}
    plan = load_plan(ROOT / "examples" / "hulk47.plan.json")
    compute = ComputeModel(bundled_profiles())
    prepared = [prepare(jobs[name], job_plan, cluster, compute=compute) for name, job_plan in plan.jobs.items()]
    ready = [p for p in prepared if isinstance(p, Prepared)]
    chosen = next(p for p in ready if p.job.name == "opt-175b")
    result = simulate(ready, cluster)
    timeline = result.jobs[chosen.job.name]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(10, 8.2), height_ratios=[1.3, 1], layout="constrained")
    draw_map(top, cluster, plan)
    draw_timeline(bottom, timeline, chosen)
    figure.savefig(ROOT / "docs" / "images" / "hulk47.png", dpi=130)


if __name__ == "__main__":
    main()
