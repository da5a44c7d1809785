"""`hulk report`: a plan as one page that a person can mail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.price import ClusterOption, EngineOption, JobsOption, PlanArgument
from hulk.cli.profile import ProfileOption
from hulk.cli.settings import SetOption

if TYPE_CHECKING:
    from hulk.cost.report import PlanPrice
    from hulk.view.build import Extras, Shown
    from hulk.view.document import ComparisonView

OutOption = Annotated[str, typer.Option("--out", "-o", help="write the report to this file (HTML)")]
TimelineOption = Annotated[bool, typer.Option(help="play a step and draw its timeline; takes seconds")]
HelpOption = Annotated[bool, typer.Option("--what-would-help", help="look for what would help; takes a minute")]
CompareOption = Annotated[
    bool, typer.Option("--compare", help="set Hulk beside the paper's systems, all planned anew; takes a minute or two")
]
AllOption = Annotated[
    bool, typer.Option("--all-baselines", help="set it beside every baseline of `hulk compare`; takes some minutes")
]
OpenOption = Annotated[bool, typer.Option("--open", help="open the report in the browser")]


def report(
    plan: PlanArgument,
    cluster: ClusterOption,
    jobs: JobsOption,
    out: OutOption = "report.html",
    timeline: TimelineOption = True,
    would_help: HelpOption = False,
    compare: CompareOption = False,
    all_baselines: AllOption = False,
    open_it: OpenOption = False,
    engine: EngineOption = "hulk",
    profile: ProfileOption = None,
    settings: SetOption = None,
) -> None:
    """Write one HTML file with a plan's map, cut, timeline and price. It needs no network and no other file.

    Exit code 3 when a job of the plan cannot run; the report says why.
    """
    from hulk.cli.inputs import announce_compilation, load_inputs
    from hulk.cli.screen import console, status
    from hulk.cost.engine import engine_named
    from hulk.io.files import check_output
    from hulk.io.gpus import load_gpus
    from hulk.view.build import Extras, Shown
    from hulk.whatif import suggest

    runner = engine_named(engine)
    inputs = load_inputs(plan, cluster, jobs, settings, profiles=profile)
    check_output(out, "--out")
    announce_compilation(search=would_help or compare or all_baselines)
    shown = Shown(inputs.plan, inputs.cluster, inputs.jobs, inputs.compute, runner)
    price = shown.price()
    hints = None
    if would_help:
        gpus = load_gpus().values()
        hints = suggest(inputs.plan, inputs.cluster, inputs.jobs, compute=inputs.compute, gpus=gpus, engine=runner)
    simulation = None
    if timeline:
        status("playing a step for the timeline …")
        simulation = shown.simulation()
        status("")
    beside = _beside(shown, all_baselines=all_baselines) if compare or all_baselines else None
    write_report(shown, price, Extras(simulation=simulation, whatifs=hints, comparison=beside), out)
    console().print(f"report: {out}")
    if open_it:
        open_report(out)
    if not price.feasible:
        raise typer.Exit(code=3)


def _beside(shown: Shown, *, all_baselines: bool) -> ComparisonView:
    """Hulk and the paper's systems, or all baselines, on the plan's cluster."""
    from hulk.cli.compare import saying
    from hulk.cli.plan import usable_network
    from hulk.cli.screen import status
    from hulk.contestant import compared, paper_systems
    from hulk.search.baselines import BASELINES
    from hulk.search.budget import Effort
    from hulk.view.compare import beside_plan

    entries = BASELINES.entries() if all_baselines else paper_systems()
    found = compared(
        shown.cluster, shown.jobs, entries, compute=shown.compute, network=usable_network(), effort=Effort(),
        say=saying(len(entries)),
    )  # fmt: skip
    status("")
    return beside_plan(found, shown.jobs)


def write_report(shown: Shown, price: PlanPrice, extras: Extras, out: str) -> None:
    """Write the report of a plan to a file, whole or not at all."""
    from hulk.io.files import write_atomic
    from hulk.io.page_files import page_files
    from hulk.view.build import document_of
    from hulk.view.report import report_html

    write_atomic(out, report_html(document_of(shown, price, extras), page_files()))


def open_report(path: str) -> None:
    """Open a report in the person's browser; a line on stderr where there is none."""
    import webbrowser
    from pathlib import Path

    if not webbrowser.open(Path(path).resolve().as_uri()):
        typer.echo(f"warning: no browser was found; open {path} yourself", err=True)
