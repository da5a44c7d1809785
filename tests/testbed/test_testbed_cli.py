"""`hulk testbed` as a person meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from wide import fresh_name, needs_testbed

from hulk.cli import main
from hulk.testbed import requirements
from hulk.testbed.state import State

HEAD = "name: c\nregions: {x: {}, y: {}}\nassume: {between: blocked}\nmachines:\n"
TWO = (
    HEAD
    + "  - {name: a, region: x, gpu: v100-16, gpus: 1}\n  - {name: b, region: y, gpu: v100-16, gpus: 1}\n"
    + "links:\n  - {between: [x, y], latency: 5 ms, bandwidth: 20 Mbit/s}\n"
)


def hulk(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from hulk.cli import main; main()"
    command = [sys.executable, "-c", code, "testbed", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


@pytest.fixture
def two(tmp_path) -> str:
    path = tmp_path / "two.yaml"
    path.write_text(TWO, encoding="utf-8")
    return str(path)


@pytest.fixture
def up(two) -> Iterator[str]:
    name = fresh_name()
    done = hulk("up", two, "--name", name)
    assert done.returncode == 0, done.stderr
    assert "10.77.0.2" in done.stdout
    yield name
    hulk("down", "--name", name)


@needs_testbed
def test_from_up_to_down(up, two):
    status = json.loads(hulk("status", "--json").stdout)
    (mine,) = (each for each in status["testbeds"] if each["name"] == up)
    assert [each["name"] for each in mine["machines"]] == ["a", "b"]
    assert mine["links"] == [{"between": ["a", "b"], "blocked": False, "latency_s": 0.005, "bytes_per_s": 2.5e6}]

    again = hulk("up", two, "--name", up)
    assert (again.returncode, "is up already" in again.stderr) == (2, True)

    done = hulk("exec", "--name", up, "b", sys.executable, "-c", "import sys; print(sys.argv); sys.exit(7)", "--json")
    assert (done.returncode, done.stdout) == (7, "['-c', '--json']\n")

    assert hulk("cut", "--name", up, "a").returncode == 0
    assert "cut off" in hulk("status").stdout
    silent = hulk("check", "--name", up, "--seconds", "0.5")
    assert (silent.returncode, "latency and throughput off" in silent.stdout) == (1, True)
    assert hulk("restore", "--name", up, "a").returncode == 0
    checked = json.loads(hulk("check", "--name", up, "--seconds", "0.5", "--json").stdout)
    assert checked["pairs"][0]["latency_s"] >= 0.005

    assert hulk("down", "--name", up).returncode == 0
    gone = hulk("down", "--name", up)
    assert (gone.returncode, "no testbed" in gone.stderr) == (2, True)


@needs_testbed
def test_bad_input_exits_2_without_a_traceback(up, tmp_path):
    many = tmp_path / "many.yaml"
    many.write_text(HEAD + "  - {name: m, count: 17, region: x, gpu: v100-16, gpus: 1}\n", encoding="utf-8")
    for arguments, words in (
        (("up", str(many)), "17 machines"),
        (("up", str(tmp_path / "none.yaml")), "none.yaml"),
        (("up", str(tmp_path / "two.yaml"), "--name", "No Name"), "cannot name a testbed"),
        (("exec", "--name", up, "aa", "true"), "did you mean 'a'?"),
        (("exec", "--name", up, "a", "no-such-command"), "no-such-command"),
        (("exec", "--name", "nobody", "a", "true"), "no testbed 'nobody' is up"),
        (("cut", "--name", up, "c"), "no machine 'c'"),
        (("check", "--name", up, "--pairs", "0"), "pairs"),
    ):
        done = hulk(*arguments)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        assert words in done.stderr


def complaint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `hulk testbed` says before it exits with code 2."""
    monkeypatch.setattr(sys, "argv", ["hulk", "testbed", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("up", "world8"), ("down",), ("status",), ("exec", "a", "true"), ("check",)])
def test_every_verb_says_that_it_needs_root(arguments, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "a testbed needs root" in complaint(monkeypatch, capsys, *arguments)


def test_it_says_all_that_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(requirements, "_TUN", Path("/no/such/tun"))
    words = complaint(monkeypatch, capsys, "status")
    for part in ("root", "/no/such/tun", "`ip`"):
        assert part in words


def test_it_says_so_where_this_is_not_linux(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "a testbed needs Linux (this is darwin)" in complaint(monkeypatch, capsys, "status")


@needs_testbed
def test_one_that_goes_down_meanwhile_does_not_hide_the_others(up, monkeypatch, capsys):
    """Its state is still there, its router no longer answers."""
    from hulk.cli import testbed as verbs

    (mine,) = (each for each in verbs._testbeds().all() if each.name == up)
    gone = type(mine)(State("going", mine.pid, mine.network))
    monkeypatch.setattr(verbs, "_testbeds", lambda: SimpleNamespace(all=lambda: (gone, mine)))
    verbs.status(as_json=True)
    told = capsys.readouterr()
    assert [each["name"] for each in json.loads(told.out)["testbeds"]] == [up]
    assert "testbed going is left out: the router does not answer" in told.err
