"""Plans on a Ray cluster of several nodes. Launched, they train and go on from checkpoints with the loss of one
process, end without a trace, and are refused where the cluster is not as the plan needs it. Exported, they train
too."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

for folder in ("export", "runtime"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from cases import write_case, write_text  # noqa: E402
from export_runs import TWO, exported, free_port, single, variables  # noqa: E402
from export_runs import losses as told  # noqa: E402
from loopback import left_behind  # noqa: E402
from parser_python import PYTHON, needs_parsers  # noqa: E402
from saved import OLD, losses, old_checkpoint, saved_steps  # noqa: E402

pytest.importorskip("torch")
pytestmark = needs_parsers

NODES = Path(__file__).parents[1] / "export" / "ray_nodes.py"


@dataclass(frozen=True)
class Lab:
    """A folder with a small job for two machines, and a Ray cluster of two nodes. Ray's processes have another mark
    than what is launched."""

    folder: Path
    variables: dict[str, str]

    def argv(self, *more: str) -> list[str]:
        """The command that launches it."""
        start = [str(PYTHON), "-c", "from hulk.cli import main; main()", "launch", "plan.json", "-c", "cluster.yaml"]
        start += ["-j", "jobs.yaml", "--data", "text.txt", "--on", "ray", "--port", str(free_port())]
        return [*start, *more]

    def launch(self, *more: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """`hulk launch`, to its end."""
        own = {**self.variables, **changes}
        return subprocess.run(
            self.argv(*more), cwd=self.folder, env=own, capture_output=True, text=True, timeout=400, check=False
        )

    def agents(self) -> list[str]:
        """What of agents and workers still runs."""
        return [words for words in left_behind(str(self.folder)) if "hulk." in words]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("ray")
    write_case(TWO, folder)
    write_text(folder / "text.txt")
    with tempfile.TemporaryDirectory(prefix="hulk-ray-") as room:  # short: sockets' paths are, too
        own = variables(HULK_MARK=str(folder), HOME=str(folder), TMPDIR=room, RAY_TMPDIR=room, GLOO_SOCKET_IFNAME="lo")
        own |= {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))}
        argv = [str(PYTHON), str(NODES), "rome-1", "oslo-1"]
        with subprocess.Popen(
            argv, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as nodes:
            assert nodes.stdin is not None and nodes.stdout is not None
            address = next((line.strip() for line in nodes.stdout if line[0].isdecimal()), None)
            assert address is not None
            yield Lab(folder, {**own, "RAY_ADDRESS": address})
            nodes.stdin.close()
            nodes.wait(120)


def test_ends_on_ctrl_c_and_goes_on(lab: Lab, tmp_path: Path) -> None:
    old_checkpoint(lab.folder)
    given = ("--no-gpus", "--checkpoint-dir", "saved", "--every", "1")
    with subprocess.Popen(
        lab.argv(*given, "--overwrite", "--steps", "1000000", "--metrics", "first.jsonl"),
        cwd=lab.folder,
        env=lab.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert any("removed 1 checkpoints of an earlier run" in line for line in running.stdout)
        assert any("tiny checkpoint" in line for line in running.stdout), running.stderr.read()
        assert len(lab.agents()) >= 4  # two agents, two workers
        running.send_signal(signal.SIGINT)
        words = running.stderr.read()
        assert running.wait(60) == 130
    assert "interrupted after step" in words and "Traceback" not in words
    assert lab.agents() == []
    assert not list(Path(lab.variables["TMPDIR"]).glob("hulk-run-*"))
    assert OLD not in saved_steps(lab.folder)
    steps = max(saved_steps(lab.folder)) + 1
    done = lab.launch(*given, "--resume", "--steps", str(steps), "--metrics", "second.jsonl", "--trace", "trace.json")
    assert done.returncode == 0, done.stderr
    assert "tiny goes on from" in done.stdout and f"tiny step {steps}/{steps}" in done.stdout
    found = losses([lab.folder / "first.jsonl", lab.folder / "second.jsonl"])
    assert found.keys() >= {1, steps}
    alone = dict(enumerate(single(tmp_path, max(found)), 1))
    assert found == pytest.approx({step: alone[step] for step in found}, rel=1e-5)
    assert len(json.loads((lab.folder / "trace.json").read_text(encoding="utf-8"))["traceEvents"]) > 50
    assert max(saved_steps(lab.folder)) == steps
    assert lab.agents() == []


def test_what_the_cluster_lacks(lab: Lab) -> None:
    done = lab.launch("--check")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines() == [
        f"{name}: its node has 0 GPUs for Ray, the plan needs 1: --num-gpus of ray start, or --no-gpus"
        for name in ("rome-1", "oslo-1")
    ] + ["error: 2 of 2 machines are not ready, and nothing was started"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        done = lab.launch("--check", RAY_ADDRESS=address)
    assert time.monotonic() - start < 60
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert f"no Ray cluster answers at {address} (RAY_ADDRESS): nothing comes from there in 5 s" in done.stderr


def test_an_exported_program(lab: Lab, tmp_path: Path) -> None:
    out = exported(tmp_path, "ray", ("n1", "n2"))
    own = {**lab.variables, "RAY_DEDUP_LOGS": "0"}
    argv = [str(PYTHON), str(out / "start.py"), "--no-gpus"]
    done = subprocess.run(argv, env=own, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert told(done.stdout) == pytest.approx(single(tmp_path / "single"), rel=1e-5)
