"""A plan as an answer worth reading: `hulk.view.words` drawn on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from hulk.cli.screen import bar, styled

if TYPE_CHECKING:
    from rich.console import Console

    from hulk.view.document import BreakdownPart, JobWords, Words


def render_plan(words: Words, screen: Console) -> None:
    """Draw what is said of a plan: every job, what would help it, the jobs that wait, the machines that are idle."""
    for name, told in words["jobs"].items():
        _job(name, told, screen)
    for name, why in words["cannot_run"].items():
        obstacle, _, reason = why.partition(": ")
        screen.print(styled((name, "bold"), ": ", ("cannot run", "red"), f" ({obstacle}): {reason}\n"))
    for name, reason in words["waiting"].items():
        screen.print(styled((name, "bold"), " ", ("waits", "yellow"), f": {reason}"))
    if words["idle"]:
        screen.print(f"idle: {words['idle']}", style="dim")


def _job(name: str, told: JobWords, screen: Console) -> None:
    step, _, rest = told["headline"].partition(" a step")
    screen.print(styled((name, "bold"), ": ", (step, "bold"), f" a step{rest}"))
    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("  group", "\n".join(told["group"]))
    rows.add_row("  plan", told["plan"])
    rows.add_row("", "\n".join(told["cut"]))
    rows.add_row("  step", "\n".join(map(_part, told["step"])))
    if told["sharing"]:
        rows.add_row("  sharing", told["sharing"])
    rows.add_row("  memory", told["memory"])
    rows.add_row("  cost", told["cost"])
    if told["deadline"]:
        rows.add_row("  deadline", told["deadline"])
    rows.add_row("  bottleneck", told["bottleneck"])
    if told["would_help"]:
        rows.add_row("  would help", "\n".join(told["would_help"]))
    screen.print(rows)
    screen.print()


def _part(part: BreakdownPart) -> str:
    return f"{part['part']:<9}{part['text']:>9}  {part['share']:4.0%}  {bar(part['share'])}"
