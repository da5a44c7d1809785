"""A new option is three small edits (docs/extending.md): they are applied to a copy of the package, and everything that
goes through a plan's options one by one is seen to know it. The page's other examples are tried as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.io.gpus import read_gpus
from hulk.io.yamlfile import parse_document
from hulk.search.baselines import BASELINES, BaselineResult, Registry
from small import cluster, jobs

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "extending.md"
OPTION, WORDS = "compress", "gradients compressed"


def blocks(language: str) -> list[str]:
    """The page's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def edits() -> Iterator[tuple[str, str, str]]:
    """File, old text and new text of each edit that the page shows."""
    for block in blocks("diff"):
        first, *lines = block.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] != "+")
        new = "".join(line[1:] for line in lines if line[0] != "-")
        yield first.removeprefix("--- ").strip(), old, new


def extend(target: Path) -> None:
    """The package with the page's edits as `target`."""
    source, changed = ROOT / "src" / "hulk", {}
    for name, old, new in edits():
        path = (ROOT / name).relative_to(source)
        text = changed.get(path) or (source / path).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"docs/extending.md edits a text that is not (once) in {name}:\n{old}"
        changed[path] = text.replace(old, new)
    paths = [path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    content = {path: changed[path].encode() if path in changed else (source / path).read_bytes() for path in paths}
    for path, wanted in content.items():
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(wanted)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `tests/extended.py` sees of the option, in a copy of the package. Nothing is compiled there: the same
    functions run as plain Python, which on cases this small takes seconds, and compiling them minutes."""
    folder = tmp_path_factory.mktemp("extended")
    extend(folder / "src" / "hulk")
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, str(ROOT / "tests" / "extended.py"), str(folder), OPTION]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_an_option_is_three_edits() -> None:
    assert [(name, new.count("\n") - old.count("\n")) for name, old, new in edits()] == [
        ("src/hulk/domain/options.py", 1),
        ("src/hulk/domain/options.py", 8),
        ("src/hulk/cost/tables.py", 0),
    ]


def test_the_search_finds_the_value_that_pays(found: dict[str, Any]) -> None:
    assert found["planned"]["value"] is True
    assert found["round_trip"]


def test_the_exact_solver_picks_it(found: dict[str, Any]) -> None:
    assert found["exact"]["value"] is True
    assert found["planned"]["step"] >= found["exact"]["step"] * (1 - 1e-4)


@pytest.mark.parametrize("how", ["planned", "exact"])
def test_its_words_are_printed(found: dict[str, Any], how: str) -> None:
    assert WORDS in found[how]["words"]
    assert WORDS in found[how]["explained"]


@pytest.mark.parametrize("how", ["planned", "exact", "planned_on_one", "exact_on_one"])
def test_plan_files_have_it(found: dict[str, Any], how: str) -> None:
    assert found[how]["loaded"] is found[how]["value"]
    assert found[how]["same"], "a plan file that is loaded and written again is another one"


def test_the_schema_of_plan_files_has_it(found: dict[str, Any]) -> None:
    assert found["schema"]["default"] is False
    assert found["schema"]["description"] == "Whether gradients are sent with half the bytes."


@pytest.mark.parametrize("by", ["price", "simulate", "search"])
def test_its_effect_is_priced(found: dict[str, Any], by: str) -> None:
    """Over a link so slow that a step is little else than gradients on their way."""
    without, with_it = (prices[by] for prices in found["prices"])
    assert without / with_it == pytest.approx(2, rel=0.03)


def test_its_effect_is_paid_for(found: dict[str, Any]) -> None:
    without, with_it = (prices["egress"] for prices in found["prices"])
    assert without == pytest.approx(2 * with_it) and with_it > 0


def test_remembered_prices_tell_its_values_apart(found: dict[str, Any]) -> None:
    assert found["compiled"]["remembered"] == 2
    assert found["compiled"]["seconds"][0] / found["compiled"]["seconds"][1] == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize("how", ["planned_on_one", "exact_on_one"])
def test_where_it_has_no_effect_its_value_is_the_normal_one(found: dict[str, Any], how: str) -> None:
    assert found[how]["value"] is False
    assert WORDS not in found[how]["words"]


def test_where_it_has_no_effect_all_its_values_have_one_price(found: dict[str, Any]) -> None:
    assert found["prices_on_one"][0] == found["prices_on_one"][1]
    assert found["compiled_on_one"]["remembered"] == 1
    assert len(set(found["compiled_on_one"]["seconds"])) == 1


def test_a_network_that_has_a_head_of_that_name_is_asked(found: dict[str, Any]) -> None:
    without, with_it = found["proposed"]
    assert set(without) == {0} and set(with_it) == {1}


def test_a_network_that_does_not_know_it_is_still_of_use(found: dict[str, Any]) -> None:
    assert OPTION not in found["heads"]
    assert found["begun"] and min(found["begun"]) > 0


def test_the_pages_gpu_is_one() -> None:
    (text,) = blocks("yaml")
    names = read_gpus(parse_document(text, name="gpus.yaml"))
    assert names["rtx-9090"] is names["9090"]
    assert names["rtx-9090"].memory == 48 * 2**30


def test_the_pages_baseline_is_one() -> None:
    (text,) = blocks("python")
    known = {entry.name for entry in BASELINES.entries()}
    names: dict[str, Any] = {"BASELINES": Registry()}
    exec(text, names)
    (entry,) = names["BASELINES"].entries()
    assert entry.name not in known
    result: BaselineResult = entry.run(cluster(), jobs(), compute=ComputeModel(), engine=HULK, seed=0, time_limit=60.0)
    assert set(result.placed) == {job.name for job in jobs()}
    for placement in result.placed.values():
        assert placement.plan is not None and len(placement.plan.pipelines) == 1
