"""What ends early on machines that real ssh reaches: nothing keeps running there, and a machine that has gone silent is
one clear message."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wide import fresh_name

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from cases import Case, write_case, write_text

from hulk.io.cluster_file import load_cluster
from ssh_lab import Lab, lacks

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(lacks()), reason=f"needs {lacks()}")

SITES = """
name: tiny
regions: {rome: {}, oslo: {}, paris: {}}
machines:
  - {name: rome-1, region: rome, gpu: rtx-3090, gpus: 1}
  - {name: oslo-1, region: oslo, gpu: v100-32, gpus: 1}
  - {name: paris-1, region: paris, gpu: rtx-3090, gpus: 1}
links:
  - {between: [rome, oslo], latency: 3 ms, bandwidth: 100 Mbit/s}
  - {between: [rome, paris], latency: 2 ms, bandwidth: 150 Mbit/s}
  - {between: [oslo, paris], latency: 4 ms, bandwidth: 120 Mbit/s}
"""
THREE = Case("three", "gpt2", ((12, (("rome-1", (0,), 1), ("oslo-1", (0,), 3), ("paris-1", (0,), 5))),))
LAUNCH = (
    "hulk", "launch", "plan.json", "-c", "cluster.yaml", "-j", "jobs.yaml", "--on", "ssh", "--hosts", "hosts.txt",
    "--data", "text.txt", "--no-gpus",
)  # fmt: skip
PROBE = ("hulk", "probe", "--hosts", "hosts.txt", "-o", "found.yaml")
SOON = 30.0
"""Seconds in which all has ended on a busy computer."""
PATIENT = 15.0
"""What ssh is told to wait for a machine that does not answer."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    write_case(THREE, folder)
    (folder / "cluster.yaml").write_text(SITES, encoding="utf-8")
    write_text(folder / "text.txt")
    with Lab(load_cluster(folder / "cluster.yaml"), folder, name=fresh_name()) as up:
        yield up


def started(lab: Lab, *argv: str) -> subprocess.Popen[str]:
    """A command on the first machine, which goes on."""
    return subprocess.Popen(
        lab.command(argv), cwd=lab.folder, env=lab.environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def left(lab: Lab) -> list[str]:
    """What still runs after a while in which all should have ended."""
    end = time.monotonic() + SOON
    while (found := lab.inside()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def places(lab: Lab, words: str) -> set[str]:
    """The machines on which a program with these words runs."""
    return {line.partition(":")[0] for line in lab.inside() if words in line}


def test_ctrl_c_over_ssh_leaves_nothing(lab: Lab) -> None:
    with started(lab, *LAUNCH, "--steps", "1000000") as running:
        assert running.stdout is not None and running.stderr is not None
        for line in running.stdout:
            if "three step" in line or "tiny step" in line:
                break
        assert places(lab, "hulk.runtime.worker") == {"rome-1", "oslo-1", "paris-1"}, lab.inside()
        running.send_signal(signal.SIGINT)
        words = running.stderr.read()
        assert running.wait(60) == 130, words
    assert "interrupted after step" in words and "Traceback" not in words
    assert left(lab) == []


def test_a_probe_that_is_killed_ends_its_agents(lab: Lab) -> None:
    with started(lab, *PROBE, "--seconds", "10", "--samples", "5") as running:
        end = time.monotonic() + SOON
        # By its interpreter's own name: ssh's command line has the words as well.
        while places(lab, "main() probe serve") != {"rome-1", "oslo-1", "paris-1"} and time.monotonic() < end:
            time.sleep(0.1)
        assert places(lab, "main() probe serve") == {"rome-1", "oslo-1", "paris-1"}, lab.inside()
        time.sleep(1.0)  # so that measurements are under way
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
    assert left(lab) == []
    assert not (lab.folder / "found.yaml").exists()


def test_a_machine_that_drops_packets_is_one_message(lab: Lab) -> None:
    lab.testbed.cut("oslo-1")
    begun = time.monotonic()
    try:
        both = [started(lab, *LAUNCH, "--check"), started(lab, *PROBE)]  # at once: they wait for the same time
        answers = [each.communicate(timeout=120) for each in both]
    finally:
        lab.testbed.restore("oslo-1")
    assert time.monotonic() - begun < PATIENT + SOON
    for running, (output, errors) in zip(both, answers, strict=True):
        assert running.returncode == 2, output
        [told] = [line for line in errors.splitlines() if "oslo-1" in line]
        assert "timed out" in told and "Traceback" not in errors
        assert errors.splitlines()[-1].startswith("error: 1 of 3 ")
    assert left(lab) == []
