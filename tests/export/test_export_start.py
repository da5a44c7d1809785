"""Scripts number ranks as the plan has them, also where a machine's ranks do not follow one another."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from export_scenes import hall

from hulk.export import TARGETS
from hulk.export.grid import grid_of

FAKE = '#!/bin/bash\necho "$RANK $LOCAL_RANK $WORLD_SIZE $CUDA_VISIBLE_DEVICES $1"\n[ "$RANK" != "$FAILS" ] || exit 5\n'


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(FAKE)
    path.chmod(0o755)
    return path


def run(script: str, folder: Path, python: Path, fails: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "machines").mkdir(exist_ok=True)
    path = folder / "machines" / "one.sh"
    path.write_text(script)
    variables = {**os.environ, "PYTHON": str(python), "FAILS": fails}
    return subprocess.run(["bash", str(path)], env=variables, capture_output=True, text=True, timeout=30, check=False)


def test_ranks_that_do_not_follow_one_another(tmp_path: Path, python: Path) -> None:
    scene = hall("tp2 pp2 dp8 mb1 sp fsdp")  # the stages of a pipeline on one machine, ranks go stage by stage
    files = TARGETS.get("torchtitan").export(scene)
    grid = grid_of("torchtitan", scene)
    found: dict[int, str] = {}
    for node in grid.nodes():
        script = files[f"machines/{node.machine}.sh"].text
        assert "torch.distributed.run" not in script
        done = run(script, tmp_path, python)
        assert done.returncode == 0, done.stderr
        lines = sorted(line.split() for line in done.stdout.splitlines())
        assert sorted(int(local) for _, local, *_ in lines) == list(range(8))
        assert {(size, gpus) for _, _, size, gpus, _ in lines} == {("32", "0,1,4,5,2,3,6,7")}
        found |= {int(rank): node.machine for rank, *_ in lines}
    stages = [(stage, row) for stage in range(2) for row in grid.rows]
    assert [found[rank] for rank in range(32)] == [row[stage].machine for stage, row in stages for _ in range(2)]


def test_a_rank_that_fails_ends_the_machine(tmp_path: Path, python: Path) -> None:
    files = TARGETS.get("torchtitan").export(hall("tp2 pp2 dp8 mb1 sp fsdp"))
    assert run(files["machines/oslo-1.sh"].text, tmp_path, python, fails="0").returncode == 5
