"""Exported files are the golden ones; `python tests/export/golden.py` writes those anew."""

from __future__ import annotations

import pytest
from export_scenes import example

from golden import FOLDER
from hulk.export import TARGETS

NAMES = [target.name for target in TARGETS.targets()]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_the_golden_ones(name: str) -> None:
    made = {path: file.text for path, file in TARGETS.get(name).export(example(name)).items()}
    folder = FOLDER / name
    kept = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert made == kept, "if that is meant: python tests/export/golden.py"


@pytest.mark.parametrize("name", NAMES)
def test_scripts_can_be_started_and_keys_are_private(name: str) -> None:
    for path, file in TARGETS.get(name).export(example(name)).items():
        private = "PrivateKey" in file.text
        assert file.mode == (0o600 if private else 0o755 if file.text.startswith("#!") else 0o644), path


def test_every_target_has_golden_files() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(NAMES)
