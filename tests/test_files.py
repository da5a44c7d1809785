"""Files that are none, files that are too much, and outputs that would harm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import small
from hulk.errors import InputError
from hulk.io.cluster_file import load_cluster, read_cluster
from hulk.io.files import check_output, forget_reads, read_file, write_atomic
from hulk.io.yamlfile import parse_document
from warm import hulk, hulk_anew

SEARCH = ("--evaluations", "1", "--time-limit", "1")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Arguments of a verb that takes a plan."""
    return small.write_files(tmp_path)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path, files: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "config.json").symlink_to("pipe.yaml")
    (tmp_path / "jobs2.yaml").write_text("jobs: [{name: a, model: ./config.json, global_batch: 1}]")
    (tmp_path / "jobs3.yaml").write_text(f"jobs: [{{name: a, model: ./{'x' * 300}, global_batch: 1}}]")
    (tmp_path / "deep.yaml").write_text("extends: /dev/zero")
    pipe = str(tmp_path / "pipe.yaml")
    for arguments, words in (
        (("show", pipe), "this is a pipe, not a file"),
        (("show", "/dev/zero"), "this is a device, not a file"),
        (("show", str(tmp_path)), "this is a directory, not a file"),
        (("show", "/dev/stdin"), "this is a pipe, not a file"),
        (("show", str(tmp_path / "deep.yaml")), "cannot extend '/dev/zero': this is a device"),
        (("price", pipe, *files[1:]), "this is a pipe, not a file"),
        (("plan", "us4", str(tmp_path / "jobs2.yaml")), "this is a pipe, not a file"),
        (("plan", "us4", str(tmp_path / "jobs3.yaml")), "cannot read this file: File name too long"),
        (("replan", *files, "--joined", pipe), "this is a pipe, not a file"),
    ):
        done = hulk_anew(*arguments, input="")
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_a_sparse_file_of_a_terabyte(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match="larger than 16 MiB"):
        load_cluster(path)


MANY = 5_000_000
WORST = {
    "values": ("machines: [" + "1," * MANY + "]", "more than 1,000,000 values"),
    "wrong machines": ("machines: [" + "{}," * 450_000 + "]", r"machines\[0\]\.name: this key is missing"),
    "directives": ("".join(f"%TAG !a{i}! b\n" for i in range(300_000)) + "---\na: 1", "%TAG lines are not allowed"),
    "names": (
        "regions: {a: {}, b: {}}\nmachines: [{name: m, count: 100000, region: a, gpu: t4, gpus: 1}]\n"
        "links: [{between: [a, b], latency: 1 ms}, {between: [m-1, n-77777], latency: 1 ms}]",
        "no region or machine 'n-77777'",
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_no_file_takes_long(name: str) -> None:
    text, words = WORST[name]
    before = time.process_time()
    with pytest.raises(InputError, match=words):
        read_cluster(parse_document(text, name="c.yaml"))
    assert time.process_time() - before < 10  # 3 s on a common machine; it was 20 s and more


def test_ten_thousand_machines_written_out(tmp_path: Path) -> None:
    machine = "  - {{name: m{}, region: a, gpu: a100-80, gpus: 8, memory: 80 GiB, network: 25 Gbit/s, price: 10 $/h}}\n"
    links = "".join(f"  - {{between: [m{i}, m{i + 1}], latency: 1 ms, bandwidth: 1 Gbit/s}}\n" for i in range(9999))
    text = "regions: {a: {}}\nmachines:\n" + "".join(machine.format(i) for i in range(10_000)) + f"links:\n{links}"
    cluster = read_cluster(parse_document(text, name="c.yaml"))
    assert (len(cluster.machines), len(cluster.machine_links)) == (10_000, 9999)


# ---- Outputs --------------------------------------------------------------------------------------------------------


def test_no_verb_replaces_what_it_reads(tmp_path: Path, files: tuple[str, ...]) -> None:
    plan, _, cluster, _, jobs = files
    (tmp_path / "base.yaml").write_text(Path(cluster).read_text())
    Path(cluster).write_text("extends: ./base.yaml\nname: small\n")
    os.link(cluster, tmp_path / "hard.yaml")
    (tmp_path / "soft.json").symlink_to("plan.json")
    (tmp_path / "new.yaml").write_text(small.NEW_MACHINE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    planning = ("plan", cluster, jobs, *SEARCH, "-o")
    replanning = ("replan", *files, *SEARCH, "--joined", str(tmp_path / "new.yaml"), "-o")
    for arguments in (
        (*planning, cluster),
        (*planning, str(tmp_path / "hard.yaml")),
        (*planning, str(tmp_path / "base.yaml")),
        (*replanning, str(tmp_path / "new.yaml")),
        (*replanning, str(tmp_path / "soft.json")),
        ("simulate", *files, "--trace", plan),
        ("run", *files, "--metrics", jobs),
    ):
        done = hulk(*arguments)
        assert done.returncode == 2, arguments
        assert "which this command reads (choose another name)" in done.stderr
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("", "--out '': the name of a file is needed"),
        ("/dev/null", "this is a device, not a file"),
        ("/dev/stdout", "not a file"),
        (".", "this is a directory, not a file"),
        ("new-folder/", "this is a directory, not a file"),
        ("no/such/folder.json", "cannot write this file: No such file or directory"),
        ("x" * 300, "cannot write this file"),
    ],
)
def test_outputs_that_cannot_be_are_refused_before_the_search(out: str, words: str, tmp_path: Path) -> None:
    done = hulk_anew(
        "plan", "us4", "paper4", "--evaluations", str(10**9), "--time-limit", "1000", "-o", out, cwd=tmp_path
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_checked_and_written(tmp_path: Path) -> None:
    forget_reads()
    check_output(None, "--out")
    path = tmp_path / "a.txt"
    check_output(path, "--out")
    assert list(tmp_path.iterdir()) == []
    write_atomic(path, "one")
    check_output(path, "--out")
    assert read_file(path, most=3) == b"one"
    with pytest.raises(InputError, match="which this command reads"):
        check_output(path, "--out")
    forget_reads()
    check_output(path, "--out")
    with pytest.raises(InputError, match="which this command reads"):
        check_output(path, "--metrics", besides=(None, path))
    for wrong in ("/dev/null", tmp_path, ""):
        with pytest.raises(InputError, match="not a file"):
            write_atomic(wrong, "two")
