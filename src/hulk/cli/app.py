"""The `hulk` command: verbs, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import os
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
from hulk.cli.streams import guard
from hulk.cli.verb import Verb
from hulk.errors import HulkError, InputError, OutputError
from hulk.text import one_line

TRACEBACK = "HULK_TRACEBACK"
"""The environment variable that shows where a fault in Hulk itself is."""

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
for group in (app, gnn.app, testbed.app):
    for command in group.registered_commands:
        command.cls = Verb


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
    from hulk.io.files import forget_reads

    forget_reads()


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 other errors, 2 wrong input, 3 right input without an answer."""
    guard()
    code = _command()
    try:
        sys.stdout.flush()
    except OutputError as error:
        code = _failed(error)
    sys.exit(code)


def _command() -> int:
    """Run the verb; its exit code."""
    try:
        app(prog_name="hulk")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except HulkError as error:
        return _failed(error)
    except RecursionError:
        return _failed(InputError("the input is nested too deeply"))
    except MemoryError:
        return _failed(HulkError("there is not enough memory for this"))
    except Exception as error:
        if TRACEBACK in os.environ:
            raise
        fault = f"{type(error).__name__}: {one_line(str(error))[:200]}"
        return _failed(HulkError(f"a fault in hulk itself: {fault} ({TRACEBACK}=1 shows where)"))
    return 0


def _failed(error: HulkError) -> int:
    """Say what went wrong, on one line; the error's exit code."""
    if str(error):
        sys.stderr.write(f"error: {one_line(str(error))}\n")
    return error.exit_code
