"""The `hulk` command: verbs, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Annotated

import typer
from typer.main import get_command

from hulk import __version__
from hulk.cli import (
    catalogue,
    compare,
    explain,
    export,
    gnn,
    launch,
    plan,
    price,
    probe,
    profile,
    replan,
    report,
    run,
    schema,
    serve,
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

_OBJECTS = 50_000  # new ones until Python looks for some to throw away: imports make many, and they all stay

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
app.command("report")(report.report)
app.command("serve")(serve.serve)
app.command("show")(show.show)
app.command("price")(price.price)
app.command("simulate")(simulate.simulate)
app.command("run")(run.run)
app.command("launch")(launch.launch)
app.command("agent", hidden=True)(launch.agent)
app.command("export")(export.export)
app.command("profile")(profile.profile)
app.command("validate")(validate.validate)
app.command("schema")(schema.schema)
app.command("list")(catalogue.catalogue)
app.add_typer(gnn.app, name="gnn")
app.add_typer(testbed.app, name="testbed")
app.add_typer(probe.app, name="probe")
for group in (app, gnn.app, probe.app, testbed.app):
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
    gc.set_threshold(_OBJECTS)
    output = guard()
    code = _command()
    with suppress(OutputError):
        output.flush()
    gc.freeze()  # what is left goes with the process: to look through it once more takes a quarter of a second
    sys.exit(code if output.error is None else _failed(output.error))


@cache
def _built() -> Callable[..., object]:
    """All verbs with their options: made once, also for whoever runs the command line again and again."""
    return get_command(app)


def _command() -> int:
    """Run the verb; its exit code."""
    try:
        _built()(prog_name="hulk")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except OutputError as error:
        return error.exit_code  # told when all is done
    except HulkError as error:
        return _failed(error)
    except Exception as error:
        return _failed(_explained(error))
    return 0


def _explained(error: Exception) -> HulkError:
    """What nobody foresaw, for people; the error itself where they ask for it."""
    if isinstance(error, RecursionError):
        return InputError("the input is nested too deeply")
    if isinstance(error, MemoryError):
        return HulkError("there is not enough memory for this")
    if TRACEBACK in os.environ:
        raise error
    if isinstance(error, OSError) and error.filename is not None:
        return HulkError(f"{error.filename}: {error.strerror}")
    what = f"{type(error).__name__}: {one_line(str(error))[:200]}"
    return HulkError(f"a fault in hulk itself: {what} ({TRACEBACK}=1 shows where)")


def _failed(error: HulkError) -> int:
    """Say what went wrong, on one line; the error's exit code."""
    if str(error):
        sys.stderr.write(f"error: {one_line(str(error))}\n")
    return error.exit_code
