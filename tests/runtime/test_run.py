"""`hulk run` as people use it: what it prints and writes, what it refuses, and what it says when things go wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from cases import Case, write_case, write_text
from command import HULK, TWO, arguments, children, finish, gone, read_until, start, start_anew


def test_trains_and_goes_on_by_another_plan(tmp_path: Path) -> None:
    metrics, trace, saved = tmp_path / "metrics.jsonl", tmp_path / "trace.json", tmp_path / "saved"
    first = arguments(TWO, tmp_path / "a", "--steps", "4", "--every", "2", "--checkpoint-dir", str(saved))
    more = ["--metrics", str(metrics), "--trace", str(trace), "--trace-steps", "1"]
    code, output, errors = finish(start_anew([*first, *more]))
    assert code == 0, errors
    assert "tiny step 4/4  loss " in output and "busy" in output
    assert "4/4 steps" not in output  # the bar of a terminal
    # A prediction for GPUs says nothing about CPUs.
    assert "predicted" not in output
    why = "that is for rtx-3090 on rome-1, this runs on cpu"
    assert "tiny is not compared with its prediction of " in output and output.count(why) == 2
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert [stage["machine"] for stage in lines[0]["stages"]] == ["rome-1", "oslo-1"]
    events = json.loads(trace.read_text())["traceEvents"]
    kinds = {event.get("cat") for event in events if event["ph"] == "X"}
    assert kinds == {"forward", "backward", "send", "receive", "sync", "update"}
    assert sum(event.get("cat") == "forward" for event in events) == 2 * 12
    assert sorted(path.name for path in (saved / "tiny").iterdir()) == ["step-00000002", "step-00000004"]

    # The newest checkpoint is cut in half: the one before it serves, for a plan of another shape.
    damaged = saved / "tiny" / "step-00000004" / "layer-0002.safetensors"
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    other = Case("other", "gpt2", ((3, (("oslo-2", (0, 1), 5),)),), size=4)
    again = arguments(other, tmp_path / "b", "--steps", "4", "--checkpoint-dir", str(saved), "--resume")
    code, output, errors = finish(start([*again, "--metrics", str(metrics)]))
    assert code == 0, errors
    assert "damaged checkpoint: step-00000004: layer-0002.safetensors has" in output
    resumed = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["loss"] for line in resumed] == pytest.approx([line["loss"] for line in lines[2:]], rel=1e-4)


def test_torchrun_starts_the_worker(tmp_path: Path) -> None:
    argv = [*write_case(TWO, tmp_path), "--data", str(write_text(tmp_path / "text.txt")), "--steps", "2"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "-m", "hulk.runtime.worker"]
    variables = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*torchrun, *argv], env=variables, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    losses = [event["loss"] for event in events if event["event"] == "step" and event["loss"] is not None]
    assert len(losses) == 2 and losses[1] < losses[0]


def test_emulated_stages_take_the_plan_s_time(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    shape = Case("big", "gpt2", ((8, (("rome-1", (0,), 2), ("oslo-1", (0, 1), 5))), (4, (("oslo-2", (0,), 5),))))
    argv = arguments(shape, tmp_path, "--compute", "emulated", "--steps", "3", "--metrics", str(metrics))
    code, _, errors = finish(start(argv))
    assert code == 0, errors
    priced = subprocess.run(
        [*HULK[:-1], "price", *argv[:5], "--json"], capture_output=True, text=True, check=True, timeout=400
    )
    pipelines = json.loads(priced.stdout)["jobs"]["tiny"]["pipelines"]
    stages = [json.loads(line) for line in metrics.read_text().splitlines()][-1]["stages"]
    for stage in stages:
        price = pipelines[stage["pipeline"]][stage["stage"]]
        passes = (price["forward"] + price["backward"]) * (8, 4)[stage["pipeline"]]
        assert passes <= stage["busy_s"] <= passes + 0.15, stage


@pytest.mark.parametrize("model", ["xlnet", "mixtral"])
def test_refuses_what_it_cannot_run(model: str, tmp_path: Path) -> None:
    case = Case(model, model, ((12, (("rome-1", (0,), 3),)),))
    code, output, errors = finish(start(arguments(case, tmp_path)))
    assert code == 2
    assert "cannot be run: " in errors and not output


def test_a_killed_worker(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    process = start(arguments(TWO, tmp_path, "--steps", "100000", "--every", "3", "--checkpoint-dir", str(saved)))
    read_until(process, "checkpoint")
    workers = children(process.pid)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    begin = time.monotonic()
    code, _, errors = finish(process)
    assert time.monotonic() - begin < 30
    assert code == 1
    assert "oslo-1 (rank 1, GPU 0, stage 1.2) was killed by SIGKILL in step " in errors
    assert f"the last checkpoint is {saved}/tiny/step-" in errors and ": --resume goes on from it" in errors
    assert len(errors.strip().splitlines()) == 1
    assert gone(workers, 1)
    from hulk.runtime.checkpoint import find_checkpoint

    found, wrong = find_checkpoint(saved / "tiny")
    assert found is not None and not wrong


def test_a_worker_that_crashes(tmp_path: Path) -> None:
    process = start(arguments(TWO, tmp_path, "--steps", "100000"))
    read_until(process, "step 1/")
    os.kill(children(process.pid)[0], signal.SIGSEGV)
    code, _, errors = finish(process)
    assert code == 1
    words = "rome-1 (rank 0, GPU 0, stage 1.1) was killed by SIGSEGV in step "
    assert words in errors and "; see " in errors
    log = Path(errors.split("; see ")[1].split(";")[0])
    # Where each thread was, in Python's words.
    assert "most recent call first" in log.read_text()
    shutil.rmtree(log.parent)


def test_a_full_disk(tmp_path: Path) -> None:
    small_files_only = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    saved = tmp_path / "saved"
    argv = arguments(TWO, tmp_path, "--steps", "6", "--every", "3", "--checkpoint-dir", str(saved))
    code, output, errors = finish(start(argv, first=small_files_only))
    assert code == 1
    assert "tiny step 3/6" in output and "tiny step 4/6" not in output
    assert "failed in step 3: cannot write the checkpoint of step 3 to" in errors and "File too large" in errors
    assert len(errors.strip().splitlines()) == 1
    assert "no checkpoint was written yet" in errors
    assert not saved.exists()


def test_workers_end_with_their_launcher(tmp_path: Path) -> None:
    process = start(arguments(TWO, tmp_path, "--steps", "100000"))
    read_until(process, "step 2/")
    workers = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert gone(workers, 10)


def test_a_machine_cut_off(tmp_path: Path) -> None:
    from hulk.testbed import missing

    if missing():
        pytest.skip(f"a testbed needs {', '.join(missing())}")
    process = start(arguments(TWO, tmp_path, "--steps", "100000", "--testbed", "--timeout", "8"))
    read_until(process, "step 2/")
    from hulk.testbed import Testbed

    Testbed.attach(f"run-{process.pid}").cut("oslo-1")
    begin = time.monotonic()
    code, _, errors = finish(process)
    assert time.monotonic() - begin < 30
    assert code == 1
    assert "oslo-1 cannot reach rome-1 any more, in step " in errors


def test_wrong_data_is_wrong_input(tmp_path: Path) -> None:
    argv = arguments(TWO, tmp_path)
    (tmp_path / "text.txt").write_text("too short")
    code, _, errors = finish(start(argv))
    assert code == 2
    assert "before the first step: " in errors and "9 tokens are less than one sample of 17" in errors
