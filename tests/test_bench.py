"""Results of benchmarks say what they are of, and `make bench` goes on where it was stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import common
import run_all

ROOT = Path(__file__).parent.parent
# A benchmark that counts how often it runs, and one that stops whoever runs it.
FAKE = """
import json, pathlib, sys
assert sys.argv[1:] == ["--json"]
runs = pathlib.Path(__file__).with_suffix(".runs")
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
print(json.dumps({"ok": %(ok)s, "figures": {"speed": 1.5}, "bounds": {"speed": [None, 2]}, "commit": %(commit)r,
                  "date": "2026-01-01T00:00:00+00:00"}))
"""
STOPS = """
import os, pathlib, signal
os.kill(os.getppid(), signal.SIGINT)
try:
    signal.pause()
except KeyboardInterrupt:
    pathlib.Path(__file__).with_suffix(".ended").touch()
    raise
"""
FAILS = "import sys; sys.exit('no such [thing]')"


@pytest.fixture
def fake(tmp_path):
    """Makes benchmarks `a`, `b`, … of given texts, and what runs them."""

    def make(*texts: str, commit: str | None = "abc1234") -> run_all.Bench:
        for name, text in zip("abc", texts, strict=False):
            (tmp_path / f"{name}.py").write_text(text)
        return run_all.Bench(tmp_path, tmp_path / "results", commit)

    return make


def good(commit: str | None = "abc1234", *, ok: bool = True) -> str:
    return FAKE % {"ok": ok, "commit": commit}


def run(bench: run_all.Bench, *names: str, fresh: bool = False) -> tuple[int, str]:
    screen = Console(width=120, record=True, file=StringIO())
    code = run_all.run(bench, names, fresh=fresh, screen=screen)
    return code, screen.export_text()


def runs(bench: run_all.Bench, name: str) -> int:
    path = bench.scripts / f"{name}.runs"
    return len(path.read_text()) if path.exists() else 0


def test_results_are_written_and_not_made_twice(fake):
    bench = fake(good(), good())
    assert run(bench, "a")[0] == 0
    assert json.loads((bench.results / "a.json").read_text())["figures"] == {"speed": 1.5}
    code, text = run(bench, "a", "b")
    assert code == 0
    assert (runs(bench, "a"), runs(bench, "b")) == (1, 1)
    assert "a … known: made at this commit, 2026-01-01" in text
    assert text.count("1.5     ≤ 2  holds") == 2, "a known result is shown as well"
    run(bench, "a", "b", fresh=True)
    assert (runs(bench, "a"), runs(bench, "b")) == (2, 2)


@pytest.mark.parametrize(
    ("of", "now"), [("abc1234", "def5678"), ("abc1234-changed", "abc1234-changed"), (None, None), (None, "abc1234")]
)
def test_results_of_another_commit_or_of_changed_files_are_made_again(fake, of, now):
    bench = fake(good(of), commit=now)
    run(bench, "a")
    run(bench, "a")
    assert runs(bench, "a") == 2


def test_a_damaged_result_is_made_again(fake):
    bench = fake(good())
    run(bench, "a")
    (bench.results / "a.json").write_text('{"ok": tr')
    assert run(bench, "a")[0] == 0
    assert runs(bench, "a") == 2


def test_a_missed_bound_is_a_failure_also_when_it_is_known(fake):
    bench = fake(good(ok=False))
    assert run(bench, "a")[0] == 1
    assert run(bench, "a")[0] == 1
    assert runs(bench, "a") == 1


def test_a_benchmark_that_fails_does_not_stop_the_others(fake):
    bench = fake(FAILS, good())
    code, text = run(bench, "a", "b")
    assert code == 1
    assert "no such [thing]" in text
    assert not (bench.results / "a.json").exists()
    assert runs(bench, "b") == 1


def test_interrupted_it_ends_the_benchmark_and_keeps_what_is_done(fake):
    bench = fake(good(), STOPS, good())
    program = (
        "import pathlib, sys; from rich.console import Console; import run_all; "
        "folder = pathlib.Path(sys.argv[1]); bench = run_all.Bench(folder, folder / 'results', 'abc1234'); "
        "sys.exit(run_all.run(bench, 'abc', fresh=False, screen=Console()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(bench.scripts)],
        cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "stopped" in done.stdout
    assert not done.stderr
    assert [path.name for path in bench.results.iterdir()] == ["a.json"]
    assert (bench.scripts / "b.ended").exists(), "the benchmark was not told to end"
    assert runs(bench, "c") == 0


def test_every_benchmark_that_is_run_exists():
    for name in run_all.BENCHMARKS:
        assert (ROOT / "benchmarks" / f"{name}.py").exists()


def test_a_report_says_commit_and_date():
    before = datetime.now(UTC).replace(microsecond=0)
    result = common.Report("x", commit="abc1234").as_dict()
    assert result["commit"] == "abc1234"
    assert before <= datetime.fromisoformat(result["date"]) <= datetime.now(UTC)
    assert result["date"].endswith("+00:00")


@pytest.fixture
def checkout(tmp_path) -> Path:
    root = tmp_path / "checkout"
    for folder in ("src", "docs", "benchmarks/results"):
        (root / folder).mkdir(parents=True)
    for file in ("src/code.py", "docs/page.md", "benchmarks/results/old.json"):
        (root / file).write_text("one\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return root


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_of_a_checkout(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    found = common.commit(checkout)
    assert found
    assert len(found) >= 7
    assert head.startswith(found)


@pytest.mark.parametrize("file", ["src/code.py", "docs/page.md", "src/new.py", "benchmarks/new.py"])
def test_changed_and_new_files_leave_a_mark(checkout, file):
    (checkout / file).write_text("two\n")
    assert str(common.commit(checkout)).endswith(common.CHANGED)


@pytest.mark.parametrize(
    "file",
    ["benchmarks/results/old.json", "benchmarks/results/new.json", "benchmarks/data/gnn.json", "own-cluster.yaml"],
)
def test_results_and_other_peoples_files_leave_none(checkout, file):
    (checkout / file).parent.mkdir(exist_ok=True)
    (checkout / file).write_text("two\n")
    found = common.commit(checkout)
    assert found
    assert not found.endswith(common.CHANGED)


def test_outside_of_a_checkout_there_is_no_commit(tmp_path, checkout):
    assert common.commit(tmp_path) is None
    (checkout / "vendored").mkdir()
    assert common.commit(checkout / "vendored") is None, "another project's commit"
