"""The golden files of `hulk export`: `python tests/export/golden.py` writes them anew."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from export_scenes import example

from hulk.export import TARGETS

FOLDER = Path(__file__).parent.parent / "golden" / "export"


def main() -> None:
    """Write the files of all targets."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for target in TARGETS.targets():
        for name, file in target.export(example(target.name)).items():
            path = FOLDER / target.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text, encoding="utf-8")


if __name__ == "__main__":
    main()
