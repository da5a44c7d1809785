"""`hulk replan` with its options beside each other: exit codes, messages, and files that stay as they were."""

from __future__ import annotations

import json
from itertools import chain, pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

import small
from hulk.cli.app import app
from hulk.errors import HulkError
from hulk.io.plan_file import load_plan

QUICK = ("--evaluations", "200", "--time-limit", "60", "--no-gnn")
EVERY = ("rome-1", "rome-2", "rome-3", "paris-1", "paris-2", "oslo-1")
BERT = ("rome-1", "rome-2", "paris-1")


@pytest.fixture
def files(tmp_path) -> tuple[str, ...]:
    (tmp_path / "new.yaml").write_text(small.NEW_MACHINE)
    (tmp_path / "same.yaml").write_text(small.NEW_MACHINE.replace("rome-9", "rome-1"))
    (tmp_path / "nowhere.yaml").write_text(small.NEW_MACHINE.replace("region: rome", "region: bonn"))
    return small.write_files(tmp_path)


def lost(*names: str) -> tuple[str, ...]:
    return tuple(chain.from_iterable(("--lost", name) for name in names))


def hulk(files: tuple[str, ...], *options: str) -> tuple[int, str]:
    """The exit code, and what was said, as `hulk.cli.main` has it."""
    done = CliRunner().invoke(app, ["replan", *files, *QUICK, *options])
    if isinstance(done.exception, HulkError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ((), 0, "nothing changes"),
        (("--set", "link rome paris bandwidth=100 Gbit/s latency=1 ms"), 0, "bert: "),
        (("--set", "link rome paris blocked=true"), 0, "a step, before 14.6 s a step"),
        (("--set", "machine rome-1 gpus=1"), 2, "rome-1"),
        (lost("oslo-1", "oslo-1"), 0, "the lost machines were idle"),
        (lost("rome-2", "rome-2"), 0, "a step, before"),
        (lost(*BERT), 0, "goes back to its last checkpoint"),
        (lost(*EVERY), 3, "cannot run any more: no machine is left"),
        (lost(*EVERY[:5]), 3, "cannot run any more: it would fit if the other jobs left it more machines"),
        ((*lost(*EVERY), "--joined", "new.yaml"), 3, "to rome-9"),
        ((*lost("rome-2"), "--joined", "new.yaml", "--horizon", "1e300 d"), 0, "a step"),
        ((*lost("rome-2"), "--horizon", "1 µs"), 0, "a step"),
        ((*lost("rome-2"), "--horizon", "1e-300 s"), 0, "a step"),
        (lost("rome-7"), 2, "no machine 'rome-7'"),
        ((*lost("rome-9"), "--joined", "new.yaml"), 2, "no machine 'rome-9'"),
        (("--joined", "same.yaml"), 2, "rome-1"),
        ((*lost("rome-1"), "--joined", "same.yaml"), 2, "rome-1"),
        (("--joined", "new.yaml", "--joined", "new.yaml"), 2, "joins twice"),
        (("--joined", "nowhere.yaml"), 2, "bonn"),
        (("--joined", "missing.yaml"), 2, "missing.yaml"),
        (("--horizon", "0"), 2, "--horizon"),
        (("--horizon", "24"), 2, "--horizon: '24' has no unit"),
        (("--horizon", "-1 h"), 2, "--horizon"),
        (("--horizon", "2 GiB"), 2, "--horizon"),
    ],
)
def test_exit_codes_and_words(files, options, code, words):
    folder = Path(files[0]).parent
    options = tuple(str(folder / name) if name.endswith(".yaml") else name for name in options)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found, said = hulk(files, *options, "-o", str(folder / "out.json"))
    assert (found, words in " ".join(said.split())) == (code, True), said
    out = folder / "out.json"
    assert out.exists() == (code != 2)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path != out} == before
    if out.exists():
        plan = load_plan(out)
        gone = {name for option, name in pairwise(options) if option == "--lost"}
        assert not gone & {s.machine for own in plan.jobs.values() for p in own.pipelines for s in p.stages}
        assert {*plan.jobs, *plan.waiting} == {"bert", "second"}


@pytest.mark.parametrize("name", ["small.yaml", "jobs.yaml", "new.yaml"])
def test_the_plan_is_not_written_over_another_input(files, name):
    folder = Path(files[0]).parent
    before = (folder / name).read_text()
    code, said = hulk(files, *lost("rome-2"), "--joined", str(folder / "new.yaml"), "-o", str(folder / name))
    assert (code, name in said) == (2, True)
    assert (folder / name).read_text() == before


def test_the_same_words_on_the_new_plan_change_nothing(files):
    folder = Path(files[0]).parent
    words = (*lost("rome-2"), "--joined", str(folder / "new.yaml"), "--horizon", "30 d")
    code, said = hulk(files, *words, "-o", str(folder / "new.json"))
    assert code == 0, said
    plan = load_plan(folder / "new.json")
    assert "rome-9" in {s.machine for own in plan.jobs.values() for p in own.pipelines for s in p.stages}
    again = (str(folder / "new.json"), *files[1:])
    for turn in range(2):
        code, said = hulk(again, *words, "-o", str(folder / f"again-{turn}.json"), "--json")
        assert code == 0, said
        assert not json.loads(said)["changed"]
        assert load_plan(folder / f"again-{turn}.json").jobs == plan.jobs


def test_the_plan_is_not_written_over_the_one_that_is_read(files):
    before = Path(files[0]).read_text()
    code, said = hulk(files, *lost("rome-2"), "-o", files[0])
    assert (code, "which this command reads" in " ".join(said.split())) == (2, True)
    assert Path(files[0]).read_text() == before


def test_jobs_that_the_plan_does_not_know_are_named(files):
    jobs = Path(files[0]).parent / "jobs.yaml"
    third = "  - {name: third, model: bert-base, sequence: 128, global_batch: 16, precision: fp16}\n"
    jobs.write_text(jobs.read_text() + third)
    code, said = hulk(files, *lost("oslo-1"))
    assert code == 0
    assert "left out: third" in said
