"""Predictions against runs on a real GPU, with the bounds of benchmarks/gpu_runs.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_cases import read_rows
from gpu_runs import GIB, PLANS, READINGS, build_report


@pytest.mark.parametrize("readings", [READINGS, PLANS], ids=["runs", "plans"])
def test_memory_and_time_are_as_measured(readings: Path) -> None:
    report = build_report(readings)
    assert report.figures["runs"] >= 20
    missed = {name: report.figures[name] for name in report.bounds if not report.holds(name)}
    assert not missed


def test_half_of_the_plans_fill_the_gpu() -> None:
    """Where little memory is left free, a price that is too low ends a run."""
    rows = read_rows(PLANS)
    assert sum(row["memory_bytes"] > 105 * GIB for row in rows) >= len(rows) / 2
    assert not [row["name"] for row in rows if row["failed"]]


@pytest.mark.parametrize("change", [{"memory_bytes": 1.1}, {"step_s": 1.5}, {"failed": "out of memory"}])
def test_other_readings_are_held_to_the_same(change: dict[str, object], tmp_path: Path) -> None:
    """One reading of twenty that is off is seen."""
    rows = [json.loads(line) for line in PLANS.read_text(encoding="utf-8").splitlines()]
    for key, value in change.items():
        rows[3][key] = rows[3][key] * value if isinstance(value, float) else value
    path = tmp_path / "other.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not build_report(path).ok
