"""The commands of docs/export.md work as they stand there, one after the other, on the files that the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hulk.export import TARGETS
from warm import hulk

PAGE = Path(__file__).parent.parent.parent / "docs" / "export.md"
LITTLE = ["--evaluations", "200", "--workers", "1", "--no-gnn"]
"""What makes a search short: how good its plans are is not the question here."""


def test_every_target_has_a_section_and_a_row() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", text, re.M)
    assert rows == [target.name for target in TARGETS.targets()]
    assert set(re.findall(r"--to (\w+)", text)) == set(rows)


def test_commands_work(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, content in re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", text, re.M | re.S):
        (tmp_path / name).write_text(content)
    commands = [line for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S) for line in block.splitlines()]
    assert len(commands) > 15
    for line in commands:
        program, verb, *words = shlex.split(line)
        assert program == "hulk"
        words += LITTLE if verb == "plan" else []
        done = hulk(verb, *words, cwd=tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        if verb == "plan" and "--for" in words:
            assert "can express it" in done.stdout
    made = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert {"run", "slurm", "k8s", "sky", "ray", "mesh", "megatron", "deepspeed"} <= made


@pytest.mark.parametrize("name", ["torchrun", "wireguard"])
def test_the_page_says_what_files_are_called(name: str) -> None:
    from export_scenes import example

    text = PAGE.read_text(encoding="utf-8")
    scripts = {path for path in TARGETS.get(name).export(example(name)) if path.endswith(".sh") and "/" not in path}
    assert all(f"/{script}" in text for script in scripts)
