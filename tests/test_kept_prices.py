"""Prices stay what they were, to nine digits: `keep_prices.py` says of which plans, and writes them down anew."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hulk.cost.engine import ENGINES
from hulk.cost.report import Obstacle
from hulk.io.files import bundled_names
from keep_prices import COUNT, SIMULATED, draw_case, priced, read_kept

CLOSE = 1e-9
KEPT = read_kept()


@pytest.mark.parametrize("cluster", bundled_names("clusters"))
def test_prices_are_those_that_were_kept(cluster: str) -> None:
    ours = [index for index, one in enumerate(KEPT) if one["cluster"] == cluster]
    assert ours
    for index in ours:
        kept = KEPT[index]
        found = priced(index, simulated="simulated" in kept)
        assert found["plan"] == kept["plan"], f"plan {index} is drawn otherwise than it was; prices cannot be compared"
        assert list(different(found, kept, f"plan {index}")) == []


def test_a_digit_less_is_noticed() -> None:
    one = next(one["jobs"]["job-0"] for one in KEPT if "step" in one["jobs"]["job-0"])
    other = one | {"step": one["step"] * (1 + 2 * CLOSE)}
    assert len(list(different(other, one, "plan"))) == 1
    assert list(different(one | {"step": one["step"] * (1 + 0.5 * CLOSE)}, one, "plan")) == []
    assert list(different({"obstacle": "memory"}, one, "plan"))


def test_what_is_kept_covers_what_a_plan_can_be() -> None:
    assert len(KEPT) == COUNT
    assert sum("simulated" in one for one in KEPT) == SIMULATED
    cases = [draw_case(index) for index in range(COUNT)]
    ways = [way for case in cases for way in case.ways.values()]
    assert {case.engine.name for case in cases} == set(ENGINES)
    assert {len(case.jobs) for case in cases} == {1, 2, 3}
    assert {job.model.family for case in cases for job in case.jobs} == {"decoder", "encoder", "encoder-decoder"}
    kinds = Counter((way.schedule, way.recompute, way.sync, way.sharded) for way in ways)
    assert len(kinds) == 5 * 2 * 2 * 2  # every combination
    assert {way.microbatch_size for way in ways} >= {1, 2, 4, 8}
    assert {len(gpus) for way in ways for stages, _ in way.pipelines for _, gpus, _, _ in stages} >= {1, 2, 4, 8}
    assert sum(len({len(stages) for stages, _ in way.pipelines}) > 1 for way in ways) >= 50
    jobs = [job for one in KEPT for job in one["jobs"].values()]
    assert {job["obstacle"] for job in jobs if "obstacle" in job} == {Obstacle.MEMORY, Obstacle.BLOCKED}
    assert sum("step" in job for job in jobs) >= 0.6 * len(jobs)
    assert sum(job.get("alone", 1.0) < 0.99 * job.get("step", 0.0) for job in jobs) >= 50  # sharing costs something
    assert sum(job["dollars"][1] > 0 for job in jobs if "dollars" in job) >= 50


def different(found: Any, kept: Any, where: str, scale: float = 0.0) -> list[str]:
    """In words, the numbers that are not the same; `scale`: what a part of a whole is compared by."""
    if isinstance(kept, dict) and isinstance(found, dict):
        if found.keys() != kept.keys():
            return [f"{where}: {sorted(found)}, not {sorted(kept)}"]
        # A part of a step is a difference: it is as exact as the step.
        its = {name: kept["step"] if name == "parts" else 0.0 for name in kept}
        return [words for name in kept for words in different(found[name], kept[name], f"{where} {name}", its[name])]
    if isinstance(kept, list) and isinstance(found, list):
        if len(found) != len(kept):
            return [f"{where}: {len(found)}, not {len(kept)}"]
        pairs = enumerate(zip(found, kept, strict=True))
        return [words for i, (ours, theirs) in pairs for words in different(ours, theirs, f"{where} {i}", scale)]
    if isinstance(kept, float) and isinstance(found, float):
        same = abs(found - kept) <= CLOSE * max(abs(kept), scale)
    else:
        same = found == kept
    return [] if same else [f"{where}: {found!r}, not {kept!r}"]
