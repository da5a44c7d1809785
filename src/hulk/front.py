"""Hulk in Python and in notebooks: the verbs of the command line as functions whose answers print, draw and save.

`import hulk` has these names; they are loaded when they are first used (`hulk.__getattr__`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hulk.contestant import PLANNED, compared
from hulk.cost.compute import ComputeModel
from hulk.cost.report import PlanPrice
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.errors import InputError
from hulk.io.cluster_file import load_cluster
from hulk.io.files import write_atomic
from hulk.io.gpus import load_gpus
from hulk.io.jobs_file import load_jobs
from hulk.io.page_files import page_files
from hulk.io.plan_file import load_plan, save_plan
from hulk.io.profiles import bundled_compute
from hulk.io.settings import apply_settings
from hulk.planner import plan_in_parallel
from hulk.propose import bundled_network
from hulk.replan import Change, replan
from hulk.search.baselines import BASELINES
from hulk.search.budget import Effort
from hulk.search.request import Request
from hulk.simulate import Simulation
from hulk.view.build import Extras, Shown, document_of
from hulk.view.compare import comparison_view, ranked
from hulk.view.document import ComparisonView, Document, Words
from hulk.view.pictures import Picture, bars_picture, map_picture, timeline_picture
from hulk.view.price import price_json
from hulk.view.replanned import replan_lines
from hulk.view.report import report_html
from hulk.view.words import plan_words
from hulk.whatif import suggest

_DAY = 86400.0


def cluster(path_or_name: str | Path) -> Cluster:
    """A cluster file, or a bundled cluster by its name: `hulk.cluster("hulk47")`."""
    return load_cluster(path_or_name)


def jobs(path_or_name: str | Path) -> tuple[Job, ...]:
    """A jobs file, or bundled jobs by their name: `hulk.jobs("paper4")`."""
    return load_jobs(path_or_name)


def plan(
    on: Cluster | str | Path,
    work: Sequence[Job] | str | Path,
    *,
    seconds: float = Effort().time_limit,
    evaluations: int = Effort().evaluations,
    seed: int = 0,
    workers: int = Effort().workers,
) -> Planned:
    """The best plan that a search finds, as `hulk plan` does; at most so many `seconds`."""
    machines, to_do = _cluster(on), _jobs(work)
    if seconds <= 0 or evaluations < 1 or workers < 1:
        raise InputError("seconds, evaluations and workers must be more than nothing")
    request = Request(machines, to_do, bundled_compute(), PLANNED)
    found = plan_in_parallel(request, Effort(seconds, evaluations, seed, workers), network=bundled_network())
    return Planned(found.plan, machines, to_do, request.compute)


def load(path: str | Path, on: Cluster | str | Path, work: Sequence[Job] | str | Path) -> Planned:
    """A plan file with its cluster and jobs."""
    machines, to_do, found = _cluster(on), _jobs(work), load_plan(path)
    check_plan(found, machines, to_do)
    return Planned(found, machines, to_do, bundled_compute())


def compare(
    on: Cluster | str | Path,
    work: Sequence[Job] | str | Path,
    *,
    baselines: Sequence[str] | None = None,
    seconds: float = Effort().time_limit,
    evaluations: int = Effort().evaluations,
    seed: int = 0,
) -> Comparison:
    """Hulk beside other planners, all of them or those named, as `hulk compare` does; so many seconds for each."""
    machines, to_do, compute = _cluster(on), _jobs(work), bundled_compute()
    effort = Effort(seconds, evaluations, seed)
    entries = BASELINES.entries() if baselines is None else [BASELINES.get(name) for name in baselines]
    found = compared(machines, to_do, entries, compute=compute, network=bundled_network(), effort=effort)
    view = comparison_view(ranked(found.results, to_do), to_do, found.left_out)
    return Comparison(view, view["verdict"], tuple(view["notes"]))


@dataclass(frozen=True)
class Planned:
    """A plan with its cluster and jobs. It prints as `hulk explain` does (without what would help), and draws itself
    in notebooks."""

    plan: Plan
    cluster: Cluster
    jobs: tuple[Job, ...]
    compute: ComputeModel
    story: tuple[str, ...] = ()
    """What became of the jobs, where this plan was made after a change."""

    @cached_property
    def price(self) -> PlanPrice:
        """What it takes: seconds, bytes, dollars, by job."""
        return self._shown.price()

    @cached_property
    def words(self) -> Words:
        """What the terminal says of it."""
        return plan_words(self.plan, self.price, self.cluster, self.jobs, None, self.story)

    @cached_property
    def simulation(self) -> Simulation:
        """A step played event by event; takes seconds for large plans."""
        return self._shown.simulation()

    def document(self, *, timeline: bool = False) -> Document:
        """All that the page shows; with the timeline, which takes longer."""
        extras = Extras(simulation=self.simulation if timeline else None, notes=self.story)
        return document_of(self._shown, self.price, extras)

    def map(self) -> Picture:
        """Where the jobs run, on a map."""
        return map_picture(self.document(), json.loads(page_files().land))

    def timeline(self, job: str | None = None) -> Picture:
        """What each stage of a job (the first, if none is named) does in a step."""
        return timeline_picture(self.document(timeline=True), job)

    def would_help(self) -> tuple[str, ...]:
        """What would help most, in words; takes a while."""
        found = suggest(self.plan, self.cluster, self.jobs, compute=self.compute, gpus=load_gpus().values())
        return tuple(f"{hint.job}: {hint.text}" for hint in found)

    def lose(self, *machines: str, horizon: float = _DAY, seconds: float = Effort().time_limit) -> Planned:
        """The plan after these machines are lost, as `hulk replan` finds it; a change must pay back within `horizon`
        seconds."""
        request = Request(self.cluster, self.jobs, self.compute, PLANNED)
        found = replan(
            self.plan, request, Change(machines), horizon=horizon, effort=Effort(seconds), network=bundled_network()
        )
        story = tuple("".join(text for text, _ in line) for line in replan_lines(found, horizon))
        return Planned(found.plan, found.cluster, self.jobs, self.compute, story)

    def with_settings(self, *settings: str) -> Planned:
        """The same plan where something of the cluster is different: "link rome-paris bandwidth=10 Gbit/s"."""
        return replace(self, cluster=apply_settings(self.cluster, settings)[0])

    def save(self, path: str | Path) -> None:
        """Write it: a plan file, or, where the name ends in .html, a report."""
        if str(path).endswith(".html"):
            write_atomic(path, report_html(self.document(timeline=True), page_files()))
        else:
            save_plan(self.plan, path, cluster=self.cluster)

    def to_json(self) -> dict[str, object]:
        """The price as `hulk price --json` prints it."""
        return price_json(self.price)

    @property
    def _shown(self) -> Shown:
        return Shown(self.plan, self.cluster, self.jobs, self.compute)

    def __str__(self) -> str:
        lines = []
        for name, told in self.words["jobs"].items():
            lines.append(f"{name}: {told['headline']}")
            lines += [f"  {part['part']:<9}{part['text']:>9}  {part['share']:4.0%}" for part in told["step"]]
            lines.append(f"  {told['plan']}")
            lines.append(f"  bottleneck: {told['bottleneck']}")
        lines += [f"{name} cannot run: {why}" for name, why in self.words["cannot_run"].items()]
        lines += [f"{name} waits: {why}" for name, why in self.words["waiting"].items()]
        return "\n".join(lines + [f"idle: {self.words['idle']}"] * bool(self.words["idle"]))

    def __repr__(self) -> str:
        return f"<plan of {', '.join(job.name for job in self.jobs)} on {self.cluster.name}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"{self.map().svg}<pre>{escape(str(self))}</pre>"


@dataclass(frozen=True)
class Comparison:
    """Hulk beside other planners. It prints its verdict and draws bars in notebooks."""

    view: ComparisonView
    verdict: str
    notes: tuple[str, ...]

    def bars(self) -> Picture:
        """Computation and communication by job and system, as the paper draws them."""
        return bars_picture(self.view)

    def __str__(self) -> str:
        return "\n".join((self.verdict, *self.notes))

    def _repr_html_(self) -> str:
        from html import escape

        return f"{self.bars().svg}<p>{escape(self.verdict)}</p>"


def _cluster(given: Cluster | str | Path) -> Cluster:
    return given if isinstance(given, Cluster) else load_cluster(given)


def _jobs(given: Sequence[Job] | str | Path) -> tuple[Job, ...]:
    return load_jobs(given) if isinstance(given, str | Path) else tuple(given)
