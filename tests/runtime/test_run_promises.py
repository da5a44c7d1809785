"""What `hulk run` promises when people make mistakes, run it twice, stop it, or go on from what it saved."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

import cases
from cases import Case, write_case
from command import TWO, arguments, children, finish, gone, read_until, start, start_anew

from hulk.cli.app import app
from hulk.errors import InputError


def refused(*argv: str) -> str:
    """What `hulk run` says before anything starts; it must call the input wrong."""
    done = CliRunner().invoke(app, ["run", *argv])
    assert isinstance(done.exception, InputError), (done.exception, done.output)
    assert done.exception.exit_code == 2
    return str(done.exception)


def said(*argv: str) -> str:
    """What `hulk run` prints where there is nothing to start."""
    done = CliRunner().invoke(app, ["run", *argv])
    assert done.exit_code == 0, done.exception
    return done.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of checkpoints: four steps, a checkpoint after each, the last two kept."""
    folder = tmp_path_factory.mktemp("trained")
    saved = ["--checkpoint-dir", str(folder / "saved"), "--every", "1", "--keep", "2"]
    code, _, errors = finish(start(arguments(TWO, folder, "--steps", "4", *saved)), 120)
    assert code == 0, errors
    return folder


@pytest.fixture
def saved(trained: Path, tmp_path: Path) -> Path:
    """A copy of those checkpoints."""
    return Path(shutil.copytree(trained / "saved", tmp_path / "saved"))


def steps(saved: Path) -> list[str]:
    return sorted(path.name for path in (saved / "tiny").iterdir())


def test_old_checkpoints_go(saved: Path) -> None:
    assert steps(saved) == ["step-00000003", "step-00000004"]


def test_nothing_left_to_do(saved: Path, tmp_path: Path) -> None:
    output = said(*arguments(TWO, tmp_path, "--steps", "4", "--checkpoint-dir", str(saved), "--resume"))
    assert "tiny has nothing left to do: 4 steps are done, --steps is 4" in output


@pytest.mark.parametrize(
    ("option", "config", "job", "words"),
    [
        (["--seed", "7"], {}, {}, "seed was 0, is now 7"),
        ([], {}, {"optimizer": "momentum"}, "optimizer was adamw, is now momentum"),
        ([], {}, {"global_batch": 6}, "global batch was 12, is now 6"),
        ([], {}, {"sequence": 8}, "sequence was 16, is now 8"),
        ([], {"n_embd": 64}, {}, "model's n_embd was 32, is now 64"),
        ([], {"n_layer": 4, "activation_function": "relu"}, {}, "model's activation_function was none, is now relu"),
    ],
)
def test_another_training_does_not_go_on(
    option: list[str], config: dict[str, object], job: dict[str, object], words: str, saved: Path, tmp_path: Path
) -> None:
    shape = Case("two", "gpt2", ((int(job.get("global_batch", 12)), TWO.pipelines[0][1]),))
    argv = arguments(shape, tmp_path, "--steps", "9", "--checkpoint-dir", str(saved), "--resume", *option)
    (tmp_path / "config.json").write_text(json.dumps(cases.CONFIGS["gpt2"] | config))
    (entry,) = json.loads((tmp_path / "jobs.yaml").read_text())["jobs"]
    (tmp_path / "jobs.yaml").write_text(json.dumps({"jobs": [entry | job]}))
    message = refused(*argv)
    assert f"another training than the one that is to go on: {words} (" in message
    assert "step-00000004" in message


def test_what_may_change_is_said(saved: Path, tmp_path: Path) -> None:
    argv = arguments(TWO, tmp_path, "--steps", "4", "--checkpoint-dir", str(saved), "--resume", "--lr", "0.5")
    with (tmp_path / "text.txt").open("a") as text:
        text.write("more")
    output = " ".join(said(*argv).split())
    assert "tiny: learning rate was 0.001, is now 0.5" in output
    assert "tiny: data was " in output


def test_an_edited_head_is_noticed(saved: Path, tmp_path: Path) -> None:
    head = saved / "tiny" / "step-00000004" / "checkpoint.json"
    head.write_text(json.dumps(json.loads(head.read_text()) | {"step": 3}))
    argv = arguments(TWO, tmp_path, "--steps", "3", "--checkpoint-dir", str(saved), "--resume")
    output = said(*argv)
    assert "passes over a damaged checkpoint: step-00000004: " in output and "somebody has edited it" in output
    assert "nothing left to do: 3 steps are done" in output
    (saved / "tiny" / "step-00000003").rename(saved / "tiny" / "step-00000099")
    assert "no whole checkpoint to resume from" in refused(*argv)


def test_a_used_folder_is_not_mixed_with_a_new_run(saved: Path, tmp_path: Path) -> None:
    message = refused(*arguments(TWO, tmp_path, "--steps", "2", "--checkpoint-dir", str(saved)))
    assert "has checkpoints of an earlier run, the newest is step-00000004" in message and "--overwrite" in message
    assert steps(saved) == ["step-00000003", "step-00000004"]


def test_overwrite_removes_what_is_hulks(saved: Path, tmp_path: Path) -> None:
    (saved / "tiny" / "notes.txt").write_text("mine")
    mine = saved / "tiny" / "step-00000003" / "notes.txt"
    mine.write_text("mine")
    argv = arguments(TWO, tmp_path, "--steps", "2", "--checkpoint-dir", str(saved), "--overwrite")
    assert "has files that are not Hulk's, so it stays" in refused(*argv)
    assert mine.read_text() == "mine"
    mine.rename(saved / "kept.txt")
    code, _, errors = finish(start(argv))
    assert code == 0, errors
    assert steps(saved) == ["notes.txt", "step-00000002"]


def test_one_run_a_folder(saved: Path, tmp_path: Path) -> None:
    hold = (
        "import sys; from pathlib import Path; from hulk.runtime.folder import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(saved / "tiny")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    read_until(other, "held")
    argv = arguments(TWO, tmp_path, "--steps", "4", "--checkpoint-dir", str(saved), "--resume")
    assert "in use by another run" in refused(*argv)
    other.kill()
    other.communicate()
    assert "nothing left to do" in said(*argv)


def test_leftovers_go_at_the_next_start(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hulk.runtime.folder import log_folder
    from hulk.runtime.watch import RunError

    half = saved / "tiny" / "step-00000009.writing"
    half.mkdir()
    (half / "layer-0001.safetensors").write_bytes(b"half of it")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed = tmp_path / "hulk-run-killed"
    killed.mkdir()
    (killed / "tiny-rank0-rome-1.log").write_text("last words")
    argv = arguments(TWO, tmp_path, "--steps", "4", "--checkpoint-dir", str(saved), "--resume")
    assert "removing what an interrupted run left" in said(*argv)
    assert steps(saved) == ["step-00000003", "step-00000004"]
    with pytest.raises(RunError), log_folder() as one, log_folder() as two:
        assert not killed.exists() and one.is_dir() and two.is_dir()
        raise RunError(f"a rank died: its last words are in {one}")
    with log_folder():
        assert one.is_dir() and not two.exists()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("/dev/zero", "neither a file nor a folder, but a device"),
        ("/dev/null", "neither a file nor a folder, but a device"),
        ("pipe", "neither a file nor a folder, but a pipe"),
        ("folder", "no files in this folder"),
        ("empty", "empty: there is nothing to train on"),
        ("missing", "cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_text(what: str, words: str, tmp_path: Path) -> None:
    argv = arguments(TWO, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe")
    (tmp_path / "empty").touch()
    argv[argv.index("--data") + 1] = str(tmp_path / what)
    assert words in refused(*argv)
    assert words in refused(*argv, "--tokenizer", str(tmp_path / "text.txt"))


def test_a_huge_file_is_read_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hulk.io.jobs_file import load_jobs
    from hulk.runtime import data
    from hulk.runtime.models import draw

    write_case(TWO, tmp_path)
    blueprint = draw(load_jobs(tmp_path / "jobs.yaml")[0])
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**42)
    samples = data.Samples(data.read_tokens(tmp_path / "huge", None), blueprint, seed=1, where="huge")
    assert samples.batch(10**11, 2).ids.sum() == 0
    with pytest.raises(InputError, match="a tokenizer can hold in memory"):
        data.read_tokens(tmp_path / "huge", tmp_path / "tokenizer.json")
    # The order that needs no memory comes to every window once in an epoch; files follow one another.
    monkeypatch.setattr(data, "MOST_SHUFFLED", 0)
    (tmp_path / "parts").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "parts" / name).write_bytes(bytes(range(ord(name), ord(name) + 40)))
    tokens = data.read_tokens(tmp_path / "parts", None)
    whole = b"".join((tmp_path / "parts" / name).read_bytes() for name in ("a", "b", "c"))
    samples = data.Samples(tokens, blueprint, seed=1, where="parts")
    assert samples.count == 7
    seen = sorted(bytes(row.tolist()) for row in samples.batch(7, 7).ids)
    assert seen == sorted(whole[i * 17 : i * 17 + 16] for i in range(7))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--resume"], "--resume without a folder of checkpoints"),
        (["--every", "2", "--keep", "1"], "--every, --keep without a folder of checkpoints"),
        (
            ["--checkpoint-dir", "saved", "--resume", "--overwrite"],
            "--resume goes on from checkpoints that --overwrite",
        ),
        (["--checkpoint-dir", "saved", "--resume", "--weights", "w"], "not from --weights"),
        (["--checkpoint-dir", "saved", "--resume"], "no checkpoint to resume from: no such folder"),
        (["--compute", "emulated", "--checkpoint-dir", "saved"], "an emulated run computes nothing"),
        (["--lr", "inf"], "--lr inf: not a finite number"),
        (["--compute", "reel"], "--compute reel: must be 'real' or 'emulated'"),
        (["--precision", "fp16"], "--precision fp16: must be 'fp32' or 'bf16'"),
        (["--metrics", "nowhere/m.jsonl"], "cannot write this file: No such file or directory"),
        (["--trace", "."], "this is a directory, not a file"),
        (["--weights", "/dev/zero"], "neither a file nor a folder, but a device"),
    ],
)
def test_options_that_cannot_be_kept(
    more: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refused(*arguments(TWO, tmp_path, *more))
    assert not (tmp_path / "saved").exists()


def is_worker(pid: int) -> bool:
    """Whether a process is a worker yet: before, it is a copy of the launcher, which waits for it to become one."""
    return b"hulk.runtime.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_worker_that_stands_still_before_it_is_ready(tmp_path: Path) -> None:
    first = "import hulk.runtime.watch as w; w.START_SILENCE = 5"
    process = start_anew(arguments(TWO, tmp_path, "--timeout", "5"), first=first)
    while len(workers := [pid for pid in children(process.pid) if is_worker(pid)]) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(workers[1], signal.SIGSTOP)
    code, _, errors = finish(process, 50)
    assert code == 1
    assert "oslo-1 (rank 1, GPU 0, stage 1.2) has given no sign of life for " in errors
    assert "before the first step" in errors
    assert gone(workers, 5)


def test_who_is_missing_is_named(tmp_path: Path) -> None:
    """Ranks that wait for another fail for want of it: the one that has not come as far is named."""
    from hulk.runtime.launch import Worker
    from hulk.runtime.seats import seat
    from hulk.runtime.watch import RunError, watch

    def worker(rank: int, *events: dict[str, object]) -> Worker:
        lines = "".join(json.dumps({"rank": rank, "step": 0, **event}) + "\n" for event in events)
        code = f"import sys; print({lines!r}, end='', flush=True); sys.stdin.read()"
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return Worker("tiny", seat(TWO.plan).seats[rank], process, tmp_path / "log", process.stdout)

    lost = {"event": "error", "kind": "network", "message": "wait timeout after 120000ms"}
    workers = [
        worker(0, {"event": "phase", "phase": 0}, {"event": "phase", "phase": 1}, lost),
        worker(1, {"event": "phase", "phase": 0}),
    ]
    try:
        with pytest.raises(RunError, match=r"oslo-1 .*stage 1\.2\) did not get ready: it still loads its libraries"):
            watch(workers, lambda worker, event: None, timeout=20)
    finally:
        for one in workers:
            one.process.kill()
            one.process.communicate()


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        # Ours to choose: another is tried.
        first = (
            "import hulk.runtime.launch as l; free = l.free_ports; ports = [%d]\n"
            "l.free_ports = lambda *given: [ports.pop()] if ports else free(*given)"
        )
        code, output, errors = finish(start(arguments(TWO, tmp_path, "--steps", "1"), first=first % port))
        assert code == 0, errors
        assert "the port on which the ranks were to meet was taken; trying another" in output
        # Another launcher's: it is named.
        alone = write_case(Case("one", "gpt2", ((12, (("rome-1", (0,), 5),)),)), tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "hulk.runtime.worker", *alone, "--data", str(tmp_path / "text.txt")],
            env=os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert f"port {port} of 127.0.0.1, where the ranks are to meet, is in use" in events[-1]["message"]


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    process = start(arguments(TWO, tmp_path, "--steps", "100000", "--every", "2", "--checkpoint-dir", str(saved)))
    read_until(process, "checkpoint")
    workers = children(process.pid)
    os.kill(process.pid, signal.SIGINT)
    code, _, errors = finish(process)
    assert code == 130
    assert "error: interrupted after step " in errors
    assert f"the last checkpoint is {saved}/tiny/step-" in errors and ": --resume goes on from it" in errors
    assert gone(workers, 1)
    assert not [name for name in steps(saved) if name.endswith(".writing")]


def test_gpus_by_the_names_they_have() -> None:
    from hulk.runtime.progress import same_gpu

    assert same_gpu("a100-80", "NVIDIA A100-SXM4-80GB") and same_gpu("rtx-3090", "NVIDIA GeForce RTX 3090")
    assert not same_gpu("a100-40", "NVIDIA A100-SXM4-80GB") and not same_gpu("rtx-3090", "cpu")
