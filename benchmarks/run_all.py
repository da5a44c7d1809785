"""Runs every benchmark with --json and writes the results under benchmarks/results/. Exits 1 when a bound is missed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

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
    "scale",
    "testbed",
    "peers",
    "gnn",
    "hostile",
    "promises",
)


def main() -> int:
    """One after the other, so that they do not disturb each other's clocks."""
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    screen = Console(width=120, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("benchmark", "figure", "value", "bounds", ""):
        table.add_column(column, justify="right" if column in ("value", "bounds") else "left")
    failed = False
    for name in BENCHMARKS:
        start = time.perf_counter()
        screen.print(f"{name} …", end=" ")
        done = subprocess.run(
            [sys.executable, str(HERE / f"{name}.py"), "--json"], capture_output=True, text=True, check=False
        )
        screen.print(f"{time.perf_counter() - start:.0f} s")
        try:
            result = json.loads(done.stdout)
        except ValueError:
            screen.print(f"[red]{name} failed[/red]\n{done.stderr}")
            failed = True
            continue
        (results / f"{name}.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        failed |= not result["ok"]
        for figure, value in result["figures"].items():
            least, most = result["bounds"].get(figure, (None, None))
            limits = " ".join([f"≥ {least:g}"] * (least is not None) + [f"≤ {most:g}"] * (most is not None))
            missed = (least is not None and value < least) or (most is not None and value > most)
            verdict = "[red]missed[/red]" if missed else "holds" if limits else ""
            table.add_row(name, figure, f"{value:,.4g}", limits, verdict)
    screen.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
