"""The `hulk` command: verbs, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hulk import __version__
from hulk.cli import (
    catalogue,
    compare,
    explain,
    gnn,
    plan,
    price,
    replan,
    run,
    schema,
    show,
    simulate,
    testbed,
    validate,
)
from hulk.errors import HulkError, InputError

app = typer.Typer(
    name="hulk",
    help="Plan the training of large models on GPUs scattered over regions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("plan")(plan.plan)
app.command("explain")(explain.explain)
app.command("compare")(compare.compare)
app.command("replan")(replan.replan)
app.command("show")(show.show)
app.command("price")(price.price)
app.command("simulate")(simulate.simulate)
app.command("run")(run.run)
app.command("validate")(validate.validate)
app.command("schema")(schema.schema)
app.command("list")(catalogue.catalogue)
app.add_typer(gnn.app, name="gnn")
app.add_typer(testbed.app, name="testbed")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hulk {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Plan the training of large models on GPUs scattered over regions."""


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 other errors, 2 wrong input, 3 right input without an answer."""
    try:
        app()
    except HulkError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # `hulk show … | head`: the reader has had enough. Point stdout at nothing, so that the flush at exit is quiet.
        sys.stdout = None
        sys.exit(0)
    except RecursionError:
        wrong = InputError("the input is nested too deeply")
        typer.echo(f"error: {wrong}", err=True)
        sys.exit(wrong.exit_code)
