"""Predictions against training runs that really ran, with the bounds of benchmarks/step_accuracy.py."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from statistics import fmean

import pytest

import runs
import step_accuracy
from hulk.cost.compute import ComputeModel
from hulk.errors import InputError
from hulk.io.profiles import bundled_profiles


@pytest.fixture(scope="module")
def report():
    return step_accuracy.build_report()


@pytest.mark.parametrize(
    "figure",
    [
        "gh200-opt350.time_error_percent",
        "gh200-opt350.memory_error_percent",
        "mixed-rtx-opt350.time_error_percent",
        "mixed-rtx-opt350.memory_error_percent",
    ],
)
def test_bound_holds(report, figure):
    assert figure in report.bounds
    assert report.holds(figure), report.figures[figure]


def _needs_no_less(one: runs.Run, two: runs.Run) -> bool:
    """Whether a run holds, on every GPU, what another one holds, or more: the same cuts and microbatch, and no stage on
    more GPUs."""
    first, second = one.groups[0], two.groups[0]
    if (first.layers, one.microbatch) != (second.layers, two.microbatch):
        return False
    ranks = [[{place.ranks for place in row} for row in group.placements] for group in (first, second)]
    return all(max(a) <= min(b) for a, b in zip(*ranks, strict=True))


def test_only_readings_that_contradict_others_are_left_out(report):
    """N2_D1 has each stage on 2 GPUs, N4_D2 and N6_D3 have the same stages on 8, and yet read more: whatever a model
    says, if it never gives fewer GPUs less to hold, its mean error on all four readings is above the bound. The best
    predictions that keep such an order are readings themselves, so that all can be tried."""
    assert report.figures["mixed-rtx-opt350.impossible_memory_readings"] == 2
    assert report.figures["gh200-opt350.impossible_memory_readings"] == 0
    _, entries = runs.bundled_sets()["mixed-rtx-opt350"]
    order = [
        (i, k) for i, (one, _) in enumerate(entries) for k, (two, _) in enumerate(entries) if _needs_no_less(one, two)
    ]
    assert {(entries[i][0].name, entries[k][0].name) for i, k in order if i != k} >= {
        ("N2_D1", "N4_D2"),
        ("N2_D1", "N6_D3"),
    }
    readings = [measured.memory for _, measured in entries]
    errors = [
        fmean(abs(said / read - 1) for said, read in zip(guess, readings, strict=True))
        for guess in product(readings, repeat=len(readings))
        if all(guess[i] >= guess[k] for i, k in order)
    ]
    assert min(errors) == pytest.approx(0.163, abs=0.001)
    assert min(errors) > step_accuracy.BOUNDS["mixed"][1] / 100


def test_every_run_is_there():
    sizes = {name: len(entries) for name, (_, entries) in runs.bundled_sets().items()}
    assert sizes == {"gh200-opt350": 15, "mixed-rtx-opt350": 4}


def test_prediction_does_not_depend_on_what_was_measured(monkeypatch):
    """Garbled measurements leave every prediction as it is."""
    compute = ComputeModel(bundled_profiles())
    model, entries = runs.bundled_sets()["gh200-opt350"]
    before = [step_accuracy.predict(run, model, compute).step for run, _ in entries]
    monkeypatch.setattr(runs, "Measurement", lambda step, memory: replace(entries[0][1], step=step * 7, memory=1.0))
    model, garbled = runs.bundled_sets()["gh200-opt350"]
    assert garbled[3][1].step == pytest.approx(7 * entries[3][1].step)
    assert [step_accuracy.predict(run, model, compute).step for run, _ in garbled] == before


def test_artifact_files_are_read_by_counting_layers(tmp_path):
    """The labels of one stage have a slip; the count decides."""
    stage = [[[["GH-96", 4, "zone"]], 4]]
    document = {
        "pipeline_list": [
            {
                "num_stages": 2,
                "layers_per_stage": [list(range(12)), [*range(12, 19), 29, *range(20, 26)]],
                "tmp_per_stage": [stage, stage],
                "dp": [1, 1],
            }
        ],
        "mbs": 8, "gbs": 32, "real": 0.65705, "max_mem": 26942111744, "N": 2,
    }  # fmt: skip
    (tmp_path / "plan_config_N2_D1.json").write_text(json.dumps(document))
    [(run, measured)] = runs.artifact_runs(tmp_path)
    bundled = {r.name: (r, m) for r, m in runs.bundled_sets()["gh200-opt350"][1]}
    assert (run, measured) == bundled["N2_D1"]


def test_a_file_that_is_no_run_is_an_input_error(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="not a run file"):
        runs.artifact_runs(tmp_path)
