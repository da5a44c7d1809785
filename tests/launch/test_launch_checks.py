"""What `hulk launch` finds before it starts anything, through the command line: one message, nothing left running."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from cases import Case, write_case, write_text
from loopback import LACKS, Loopback, left_behind

from hulk.cli import main
from warm import hulk

THREE = Case("three", "gpt2", ((12, (("rome-1", (0,), 1), ("oslo-1", (0,), 3), ("rome-2", (0,), 5))),))
PLAN = ("plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml")


@pytest.fixture
def case(tmp_path: Path) -> Path:
    write_case(THREE, tmp_path)
    write_text(tmp_path / "text.txt")
    return tmp_path


@pytest.fixture
def loopback(case: Path) -> Iterator[Loopback]:
    if LACKS:
        pytest.skip("needs sshd and ssh-keygen, and root to start it")
    with Loopback(case) as running:
        yield running


def test_all_that_is_missing_is_listed_at_once(loopback: Loopback) -> None:
    loopback.hosts({"rome-1": "full", "oslo-1": "older", "rome-2": "unknown"})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        more = ("--data", "/nowhere/text.txt", "--checkpoint-dir", "saved", "--port", port)
        done = hulk("launch", *PLAN, *loopback.options(), *more, cwd=loopback.folder)
    assert done.returncode == 2, done.stderr
    assert left_behind(str(loopback.folder)) == []
    lines = done.stderr.splitlines()
    assert lines[-1] == "error: 3 of 3 machines are not ready, and nothing was started"
    by_machine = {
        name: [line for line in lines if line.startswith(f"{name}: ")] for name in ("rome-1", "oslo-1", "rome-2")
    }
    assert sum(map(len, by_machine.values())) == len(lines) - 1
    full = "\n".join(by_machine["rome-1"])
    assert "0 GPUs there, the plan needs 1 × rtx-3090" in full and "--no-gpus" in full
    assert "--data: /nowhere/text.txt" in full and "copy it there" in full
    assert "--checkpoint-dir: " in full and "free there, a checkpoint takes" in full
    assert f"port {port} of 127.0.0.1 is in use by another program" in full
    assert len(by_machine["oslo-1"]) == 1 and "hulk 0.0.1 there" in by_machine["oslo-1"][0]
    assert len(by_machine["rome-2"]) == 1 and "does not know its host key" in by_machine["rome-2"][0]
    assert not (loopback.folder / "saved").exists()


def test_hosts_that_do_not_let_us_in(loopback: Loopback) -> None:
    loopback.hosts({"rome-1": "known", "oslo-1": "absent", "rome-2": "stranger"})
    done = hulk("launch", *PLAN, *loopback.options(), "--data", "text.txt", "--no-gpus", cwd=loopback.folder)
    assert done.returncode == 2, done.stderr
    refused, password, last = done.stderr.splitlines()
    assert refused.startswith("oslo-1: (absent)") and "Connection refused" in refused
    assert password.startswith("rome-2: (stranger)") and "would ask for a password" in password
    assert last.startswith("error: 2 of 3 machines are not ready")


def test_machines_that_are_ready(loopback: Loopback) -> None:
    loopback.hosts({"rome-1": "known", "oslo-1": "known", "rome-2": "known"})
    old = loopback.folder / "old.jsonl"
    old.write_text('{"step": 1}\n', encoding="ascii")
    more = ("--data", "text.txt", "--no-gpus", "--check", "--port", "29777", "--metrics", "old.jsonl")
    done = hulk("launch", *PLAN, *loopback.options(), *more, cwd=loopback.folder)
    assert (done.returncode, done.stdout.strip()) == (0, "3 machines are ready"), done.stderr
    # What an earlier run wrote is replaced when a run starts, and none has.
    assert old.read_text(encoding="ascii") == '{"step": 1}\n'


def test_a_plan_of_another_cluster(case: Path) -> None:
    from hulk.io.cluster_file import load_cluster
    from hulk.io.plan_file import load_plan, save_plan

    cluster = load_cluster(case / "cluster.yaml")
    save_plan(load_plan(case / "plan.json"), case / "plan.json", cluster=cluster)
    text = (case / "cluster.yaml").read_text(encoding="utf-8")
    (case / "cluster.yaml").write_text(text.replace("v100-32", "v100-16"), encoding="utf-8")
    done = hulk("launch", *PLAN, "--on", "local", "--data", "text.txt", cwd=case)
    assert done.returncode == 2
    assert "this is not the cluster of the plan: oslo-1 had" in done.stderr and "plan again" in done.stderr
    text = text.replace("name: oslo", "name: madrid")
    (case / "cluster.yaml").write_text(text, encoding="utf-8")
    done = hulk("launch", *PLAN, "--on", "local", "--anyway", "--data", "text.txt", cwd=case)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)
    assert "no machine 'oslo-1'" in done.stderr


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (("--on", "mars"), 2, "'mars' is not one of"),
        (("--on", "ray", "--data", "text.txt"), 2, "--on ray needs the package ray"),
        (("--on", "local"), 2, "no data to train on"),
        (("--on", "local", "--data", "nothing.txt"), 2, "--data: "),
        (("--on", "local", "--data", "text.txt", "--job", "huge"), 2, "no job 'huge'"),
        (("--on", "ssh", "--hosts", "nowhere.txt", "--data", "text.txt"), 2, "nowhere.txt"),
        (("--on", "local", "--data", "text.txt", "--resume"), 2, "--resume without a folder"),
        (("--on", "local", "--data", "text.txt", "--hosts", "h", "--hulk", "h"), 2, "--hulk, --hosts with --on local"),
        (("--on", "slurm", "--data", "text.txt", "--ssh-config", "c"), 2, "--ssh-config with --on slurm"),
    ],
)  # fmt: skip
def test_what_cannot_be_launched(case: Path, more: tuple[str, ...], code: int, words: str) -> None:
    done = hulk("launch", *PLAN, *more, cwd=case)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_too_much_for_this_computer(
    case: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hulk.runtime.crowd.memory_free", lambda: 1e9)
    monkeypatch.chdir(case)
    for verb in (("launch", "--on", "local"), ("run",)):
        monkeypatch.setattr(sys, "argv", ["hulk", verb[0], *PLAN, *verb[1:], "--data", "text.txt"])
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        assert stopped.value.code == 2, said.err
        assert "starting 3 processes on this computer, one for each GPU of rome-1, oslo-1, rome-2" in said.out
        assert "of memory, 954 MiB are free" in said.err and "--yes starts them all the same" in said.err


def test_slurm_that_is_not_here(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hulk.domain.cluster import Cluster
    from hulk.errors import InputError
    from hulk.launch.main import Asked
    from hulk.launch.slurm import check_slurm
    from hulk.runtime.progress import Progress

    monkeypatch.setenv("PATH", str(case))
    nobody = Progress({}, Cluster("none", (), (), {}), print)
    with pytest.raises(InputError, match="--on slurm needs sbatch"):
        check_slurm([], Asked(), nobody)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (None, "Connection refused"),
        (b"SSH-2.0-OpenSSH\r\n", "another program listens there"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another program listens there"),
        (b"", "another program listens there"),
        (bytes((0, 0, 6, 4, 0, 0, 0, 0, 0)), None),
    ],
)
def test_whether_a_ray_cluster_may_be_there(says: bytes | None, words: str | None) -> None:
    from hulk.launch.ray import unanswered

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line, contextlib.suppress(OSError):
                line.sendall(says or b"")
                line.shutdown(socket.SHUT_WR)
                while line.recv(1000):
                    pass

        port = server.getsockname()[1]
        if says is None:
            server.close()
        else:
            Thread(target=answer, daemon=True).start()
        assert unanswered("127.0.0.1", port) == words
