"""What all benchmarks share: options, figures against bounds, the machine, and tables.

report = Report("layer_accuracy")
report.figure("median_error_percent", 5.5, most=20)
report.table("by GPU", ["GPU", "error"], [["v100-16", "2.3 %"]])
sys.exit(report.finish(options.json))
"""

from __future__ import annotations

import argparse
import json as json_module
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = ("hulk", "numpy", "scipy", "numba", "torch", "transformers")
CHANGED = "-changed"
"""Follows a commit's hash where files were not as in that commit."""
CODE = ("src", "benchmarks")
"""Where a file that git does not know counts as a change: elsewhere it is nobody's business."""
WRITTEN = ("benchmarks/results", "benchmarks/data/gnn.json", "benchmarks/data/optimality.json")
"""What a plain run of the benchmarks writes itself: no change of what was measured."""


def commit(root: Path = ROOT) -> str | None:
    """The short hash of the commit that is checked out, with a mark where files differ from it; None where the project
    is no git checkout of its own."""
    try:
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None
        found = _git(root, "rev-parse", "--short", "HEAD")
        but = [f":(exclude){path}" for path in WRITTEN]
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", *but)
        new = _git(root, "ls-files", "--others", "--exclude-standard", "--", *CODE, *but)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{found}{CHANGED}" if changed or new else found


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser with --json, which every benchmark has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    return made


@dataclass
class Report:
    """Figures with bounds, and tables for people. A bound is (least, most); None where that side is open. The commit is
    that of the moment when the report is begun."""

    title: str
    figures: dict[str, float] = field(default_factory=dict)
    bounds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    commit: str | None = field(default_factory=commit)
    _text: list[str] = field(default_factory=list)

    def figure(self, name: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        """Record a number, with the bounds it must keep where it has any."""
        self.figures[name] = value
        if least is not None or most is not None:
            self.bounds[name] = (least, most)

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table for people; left out of the JSON."""
        self._text.append(f"{title}\n{format_table(head, rows)}")

    def note(self, text: str) -> None:
        """A line for people; left out of the JSON."""
        self._text.append(text)

    def holds(self, name: str) -> bool:
        """Whether a figure is within its bounds (NaN is within none; a figure without bounds is within)."""
        least, most = self.bounds.get(name, (None, None))
        value = self.figures[name]
        return (least is None or value >= least) and (most is None or value <= most)

    @property
    def ok(self) -> bool:
        """Whether every bound is kept."""
        return all(self.holds(name) for name in self.bounds)

    def as_dict(self) -> dict[str, Any]:
        """The result as one JSON object."""
        return {
            "ok": self.ok,
            "figures": self.figures,
            "bounds": {name: list(bound) for name, bound in self.bounds.items()},
            "commit": self.commit,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
        }

    def finish(self, json: bool) -> int:
        """Print the report and return the exit code: 1 where a bound is missed."""
        if json:
            print(json_module.dumps(self.as_dict()))
        else:
            rows = [[name, f"{value:.4g}", self._bound(name)] for name, value in self.figures.items()]
            print("\n\n".join([self.title, *self._text, format_table(["figure", "value", "bound"], rows)]))
        return 0 if self.ok else 1

    def _bound(self, name: str) -> str:
        if name not in self.bounds:
            return ""
        least, most = self.bounds[name]
        words = [f"≥ {least:g}" if least is not None else "", f"≤ {most:g}" if most is not None else ""]
        return " ".join(word for word in words if word) + ("" if self.holds(name) else "  MISSED")


def format_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns of equal width, the first to the left and the others to the right."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * width for width in widths), *map(line, cells[1:])])


def machine() -> str:
    """Processor, cores and system of this machine, in words."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are here."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
