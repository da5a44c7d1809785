"""What runs of the tests' small job leave in its folder: checkpoints, and the losses of its steps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from hulk.runtime import checkpoint

OLD = 900_000


def old_checkpoint(folder: Path) -> None:
    """A checkpoint of another run, after `OLD` steps, where the job's are to be."""
    checkpoint.make_unfinished(folder / "saved" / "tiny", OLD)
    checkpoint.finish(folder / "saved" / "tiny", OLD, {})


def saved_steps(folder: Path) -> list[int]:
    """Of how many steps there are checkpoints; -1 for what is none."""
    names = sorted(path.name for path in (folder / "saved" / "tiny").iterdir())
    return [int(name.removeprefix("step-")) if name.startswith("step-") else -1 for name in names]


def losses(paths: Iterable[Path]) -> dict[int, float]:
    """The loss of every step, out of what --metrics has written."""
    lines = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["step"]: line["loss"] for line in lines}
