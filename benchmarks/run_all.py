"""Runs every benchmark with --json and writes the results under benchmarks/results/. Exits 1 when a bound is missed.

A result of this very commit is not made again, so that a run that was stopped goes on where it was; with changed files
everything is. Ctrl-C keeps what is done.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from common import CHANGED, commit
from hulk.io.files import write_atomic

HERE = Path(__file__).parent
BENCHMARKS = (
    "layer_accuracy",
    "step_accuracy",
    "published",
    "gpu_runs",
    "contention",
    "speed",
    "optimality",
    "paper",
    "seeds",
    "scale",
    "testbed",
    "testbed_links",
    "probe",
    "reach",
    "export",
    "datacentre",
    "peers",
    "gnn",
    "hostile",
    "promises",
    "page",
)
GRACE = 20.0
"""Seconds that a benchmark has to end after Ctrl-C, before it is ended."""
STOPPED = 130

Result = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """Benchmarks as scripts in a folder, where their results go, and the commit that is checked out (None: unknown)."""

    scripts: Path
    results: Path
    commit: str | None

    def known(self, name: str) -> Result | None:
        """The result of a benchmark, where it was made at this very commit and no file differs from it."""
        if self.commit is None or self.commit.endswith(CHANGED):
            return None
        try:
            result: Result = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return result if result.get("commit") == self.commit else None

    def made(self, name: str) -> Result | str:
        """Runs a benchmark and writes its result; what it said on stderr where it gave none."""
        # A group of its own: Ctrl-C comes here alone, and goes on to all processes of the benchmark once.
        child = subprocess.Popen(
            [sys.executable, str(self.scripts / f"{name}.py"), "--json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip
        try:
            output, errors = child.communicate()
        except BaseException:
            _end(child)
            raise
        try:
            result: Result = json.loads(output)
        except ValueError:
            return errors
        write_atomic(self._path(name), json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        return result

    def _path(self, name: str) -> Path:
        return self.results / f"{name}.json"


def _end(child: subprocess.Popen[str]) -> None:
    """Ends a benchmark and what it has started."""
    for sign in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
            child.communicate(timeout=GRACE)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def run(bench: Bench, names: Sequence[str], *, fresh: bool, screen: Console) -> int:
    """One after the other, so that they do not disturb each other's clocks; the exit code."""
    bench.results.mkdir(exist_ok=True)
    done: dict[str, Result] = {}
    failed = False
    try:
        for name in names:
            screen.print(f"{name} …", end=" ")
            known = None if fresh else bench.known(name)
            if known is not None:
                screen.print(f"known: made at this commit, {known.get('date')}")
                done[name] = known
                continue
            start = time.perf_counter()
            result = bench.made(name)
            screen.print(f"{time.perf_counter() - start:.0f} s")
            if isinstance(result, str):
                screen.print(f"[red]{name} failed[/red]")
                screen.print(result, markup=False)
                failed = True
            else:
                done[name] = result
    except KeyboardInterrupt:
        screen.print("stopped")
        _show(done, screen)
        screen.print("What is done is kept; the same command goes on from there, if nothing is changed.")
        return STOPPED
    _show(done, screen)
    return 1 if failed or not all(result["ok"] for result in done.values()) else 0


def _show(done: dict[str, Result], screen: Console) -> None:
    """All figures, with their bounds."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("benchmark", "figure", "value", "bounds", ""):
        table.add_column(column, justify="right" if column in ("value", "bounds") else "left")
    for name, result in done.items():
        for figure, value in result["figures"].items():
            least, most = result["bounds"].get(figure, (None, None))
            limits = " ".join(f"{sign} {limit:g}" for sign, limit in (("≥", least), ("≤", most)) if limit is not None)
            missed = (least is not None and value < least) or (most is not None and value > most)
            verdict = "[red]missed[/red]" if missed else "holds" if limits else ""
            table.add_row(name, figure, f"{value:,.4g}", limits, verdict)
    screen.print(table)


def main() -> int:
    """Command line."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--fresh", action="store_true", help="run those too that have a result of this commit")
    arguments.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, metavar="NAME",
        help=f"these alone, of {', '.join(BENCHMARKS)}",
    )  # fmt: skip
    given = arguments.parse_args()
    for sign in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sign) is not signal.SIG_IGN:
            signal.signal(sign, signal.default_int_handler)  # as Ctrl-C: no benchmark is left running
    screen = Console(width=120, highlight=False)
    return run(Bench(HERE, HERE / "results", commit()), given.only, fresh=given.fresh, screen=screen)


if __name__ == "__main__":
    sys.exit(main())
