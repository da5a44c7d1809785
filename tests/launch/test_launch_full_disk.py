"""A disk that is really full, before the start and in the middle of a run: one message, nothing half-started left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for folder in ("export", "runtime"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

from cases import write_case, write_text  # noqa: E402
from export_runs import TWO, variables  # noqa: E402
from loopback import left_behind  # noqa: E402

pytest.importorskip("torch")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    write_case(TWO, tmp_path)
    write_text(tmp_path / "text.txt")
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(tmp_path / "disk")]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if done.returncode != 0:
        pytest.skip("needs to be allowed to mount a small disk")
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)


def test_checkpoints_on_a_full_disk(disk: Path) -> None:
    own = variables(HULK_MARK=str(disk))
    argv = [sys.executable, "-c", "from hulk.cli import main; main()", "launch", "plan.json", "-c", "cluster.yaml"]
    argv += ["-j", "jobs.yaml", "--data", "text.txt", "--on", "local", "--steps", "50", "--every", "1", "--keep", "0"]
    argv += ["--checkpoint-dir", "disk/saved"]

    def launched() -> list[str]:
        done = subprocess.run(argv, cwd=disk.parent, env=own, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert left_behind(str(disk)) == []
        return done.stderr.splitlines()

    lacks, last = launched()
    assert lacks.startswith("rome-1: --checkpoint-dir: 400 KiB free there, a checkpoint takes ")
    assert last == "error: 1 of 2 machines are not ready, and nothing was started"
    assert list(disk.iterdir()) == []
    # Room for the first checkpoint alone.
    subprocess.run(["mount", "-o", "remount,size=1300k", str(disk)], check=True)
    (words,) = launched()
    assert "cannot write the checkpoint of step 2" in words and "No space left on device" in words
    assert f"the last checkpoint is {disk}/saved/tiny/step-00000001: --resume goes on from it" in words
    assert [path.name for path in (disk / "saved" / "tiny").iterdir()] == ["step-00000001"]
