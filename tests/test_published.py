"""Prices of training runs that others have published, with the bounds of benchmarks/published.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import published
import published_runs
from hulk.errors import InputError

ROWS = [json.loads(line) for line in published_runs.DATA.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def outcomes() -> list[published.Outcome]:
    return published.predict(published_runs.read_runs())


def row(name: str, **changes: object) -> dict[str, object]:
    return next(row for row in ROWS if row["name"] == name) | changes


@pytest.mark.parametrize(
    "figure", ["expressible_median_error_percent", "expressible_bias_percent", "expressible_not_fitting"]
)
def test_bound_holds(outcomes, figure: str) -> None:
    report = published.build_report(outcomes)
    assert figure in report.bounds
    assert report.holds(figure), report.figures[figure]


def test_every_run_has_a_price_and_a_source(outcomes) -> None:
    assert len(outcomes) == len(ROWS) == 51
    assert all(outcome.run.source for outcome in outcomes)
    assert all(outcome.expressible for outcome in outcomes)


def test_what_a_plan_cannot_say_is_listed() -> None:
    assert published_runs.published(row("sc21-1.7B")).missing == ()
    interleaved = published_runs.published(row("korth-sel-530B"))
    assert interleaved.missing == ()
    assert (interleaved.plan.options.chunks, len(interleaved.plan.pipelines[0].stages)) == (3, 105)
    # 281 microbatches cannot go through 35 stages in groups of as many
    odd = published_runs.published(row("korth-sel-530B", global_batch=281))
    assert (odd.missing, odd.plan.options.chunks) == (("interleaving",), 1)


@pytest.mark.parametrize(
    ("order", "expected"), [("tp-pp-dp", ["node-0", "node-0"]), ("tp-dp-pp", ["node-0", "node-1"])]
)
def test_the_order_places_stages(order: str, expected: list[str]) -> None:
    """Tensor parallel 4, two stages and two replicas on two nodes of eight."""
    run = published_runs.published(row("oneflow-PP_2x4x4-2304", pipeline=2, data=2, order=order))
    assert [stage.machine for stage in run.plan.pipelines[0].stages] == expected
    assert [stage.gpus for stage in run.plan.pipelines[1].stages][1] == (4, 5, 6, 7)


def test_layers_of_uneven_stages() -> None:
    run = published_runs.published(row("titan-405b-512-fp8-1f1b"))
    assert [len(stage.layers) for stage in run.plan.pipelines[0].stages] == [17, 16, 16, 16, 16, 16, 16, 15]
    with pytest.raises(InputError, match="128"):
        published_runs.published(row("titan-405b-512-fp8-1f1b", layers_per_stage=[64, 63]))


def test_predictions_do_not_see_what_was_measured(tmp_path: Path, outcomes) -> None:
    garbled = tmp_path / "runs.jsonl"
    garbled.write_text("\n".join(json.dumps(row | {"step_s": 1.0, "memory_gib": 1.0}) for row in ROWS[:4]))
    again = published.predict(published_runs.read_runs(garbled))
    assert [o.price.step for o in again] == [o.price.step for o in outcomes[:4]]
    assert again[0].error == pytest.approx(again[0].price.step - 1)


@pytest.mark.parametrize("text", ["{}", "[", '{"engine": 3}', json.dumps(row("sc21-1.7B", gpu="b100000"))])
def test_a_row_that_is_no_run_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("\n" + text)
    with pytest.raises(InputError) as caught:
        published_runs.read_runs(path)
    assert f"{path}:2" in str(caught.value)


def test_points_for_a_picture(tmp_path: Path, outcomes) -> None:
    path = tmp_path / "points.jsonl"
    published.write_points(path, outcomes)
    points = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(points) == len(outcomes)
    assert points[0]["predicted_s"] == outcomes[0].price.step
