"""Exported jobs really train: by torchrun's scripts over something that stands for ssh, and in a Slurm of four nodes on
this computer. The loss is that of one process. On Ray: tests/launch/test_launch_ray.py, which has nodes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from export_runs import STEPS, exported, losses, single, variables
from slurm_nodes import Slurm

pytest.importorskip("torch")

FAKE_SSH = """#!/bin/bash
while [ "$1" != -- ]; do shift; done
mkdir -p "$HOMES/$2" && cd "$HOMES/$2" && exec bash -c "$3"
"""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    found = single(tmp_path_factory.mktemp("single"))
    assert len(found) == STEPS and found[1] < found[0]
    return found


def test_torchrun(tmp_path: Path, expected: list[float]) -> None:
    # Without an interface in the hosts file; with one, ranks start without torchrun, as they do in Slurm below.
    out = exported(tmp_path, "torchrun", ("me@rome", "oslo"), interface=None)
    ssh = tmp_path / "ssh"
    ssh.write_text(FAKE_SSH)
    ssh.chmod(0o755)
    own = variables(SSH=str(ssh), HOMES=str(tmp_path / "homes"), GLOO_SOCKET_IFNAME="lo")
    done = subprocess.run([str(out / "all.sh")], env=own, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == pytest.approx(expected, rel=1e-5)


def test_one_machine_that_fails_ends_all(tmp_path: Path) -> None:
    out = exported(tmp_path, "torchrun", ("rome", "oslo"))
    ssh, mark = tmp_path / "ssh", tmp_path / "started"
    wait = f"touch {mark}; exec sleep 600"
    fail = f"while [ ! -e {mark} ]; do sleep 0.05; done; exit 7"
    ssh.write_text(f'#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done\nif [ "$2" = rome ]; then {wait}; fi; {fail}\n')
    ssh.chmod(0o755)
    done = subprocess.run([str(out / "all.sh")], env=variables(SSH=str(ssh)), timeout=30, check=False)
    assert done.returncode == 7


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    if os.geteuid() != 0 or not all(shutil.which(name) for name in ("munged", "slurmctld", "slurmd")):
        pytest.skip("needs root, slurm-wlm and munge")
    with Slurm(tmp_path / "slurm") as running:
        yield running


def test_slurm(tmp_path: Path, slurm: Slurm, expected: list[float]) -> None:
    out = exported(tmp_path, "slurm", ("n1", "n2"))
    own = variables(SLURM_CONF=str(slurm.config))
    said = subprocess.run(["sbatch", "job.sbatch"], cwd=out, env=own, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    number = said.stdout.split()[-1]
    end = time.monotonic() + 120
    while time.monotonic() < end:
        left = subprocess.run(["squeue", "-h", "-o", "%T"], env=own, capture_output=True, text=True, check=True).stdout
        if not left.strip():
            break
        time.sleep(0.5)
    output = (out / f"slurm-{number}.out").read_text()
    assert losses(output) == pytest.approx(expected, rel=1e-5), output[-2000:]
