"""Checkpoints: weights and optimizer state, layer by layer and whole, so that any plan can go on from them.

A checkpoint is a folder `step-00000020`:

    layer-0003.safetensors              weights with Hugging Face's names; shared ones are with the first layer's
    layer-0003.optimizer.safetensors    the optimizer's state of each, named NAME/exp_avg and so on
    files-0.json                        size and SHA-256 of what rank 0 wrote; one a writing rank
    checkpoint.json                     step, seed, model, and how many ranks wrote: written last

It is written under another name, brought to the disk, and renamed: there is a whole one or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hulk.errors import InputError

HEAD = "checkpoint.json"
FORMAT = "checkpoint/1"
_UNDER_WAY = ".writing"


@dataclass(frozen=True, slots=True)
class CheckpointHead:
    """What a checkpoint is of: `step` steps are done."""

    step: int
    seed: int
    model: str
    writers: int


def folder_of(folder: Path, step: int) -> Path:
    """The checkpoint after so many steps."""
    return folder / f"step-{step:08d}"


def unfinished(folder: Path, step: int) -> Path:
    """Where that checkpoint is while it is written."""
    return folder / f"step-{step:08d}{_UNDER_WAY}"


def layer_file(layer: int, *, optimizer: bool = False, writer: str = "") -> str:
    """The name of a layer's file; `writer` tells several apart."""
    return f"layer-{layer:04d}{writer}{'.optimizer' if optimizer else ''}.safetensors"


def make_unfinished(folder: Path, step: int) -> Path:
    """An empty folder for a checkpoint under way."""
    target = unfinished(folder, step)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    return target


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A small file, brought to the disk."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def to_disk(path: Path) -> None:
    """Wait until a file or a folder's list of names is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def list_files(folder: Path, rank: int, names: list[str]) -> None:
    """Write down size and digest of what a rank wrote."""
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": digest(folder / name)} for name in names}
    write_json(folder / f"files-{rank}.json", {"files": files})


def finish(folder: Path, head: CheckpointHead) -> Path:
    """Make a checkpoint that is all there a checkpoint."""
    source, target = unfinished(folder, head.step), folder_of(folder, head.step)
    fields = {"step": head.step, "seed": head.seed, "model": head.model, "writers": head.writers}
    write_json(source / HEAD, {"hulk": FORMAT, **fields})
    to_disk(source)
    if target.exists():
        shutil.rmtree(target)
    source.rename(target)
    to_disk(folder)
    return target


def discard(folder: Path, step: int) -> None:
    """Remove what is left of a checkpoint that could not be written."""
    with contextlib.suppress(OSError):
        shutil.rmtree(unfinished(folder, step))


def read_head(checkpoint: Path) -> CheckpointHead:
    """What a checkpoint says about itself; InputError where it is none."""
    path = checkpoint / HEAD
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.get("hulk") != FORMAT:
            raise InputError(f"not a {FORMAT} file", where=str(path))
        return CheckpointHead(int(value["step"]), int(value["seed"]), str(value["model"]), int(value["writers"]))
    except OSError as error:
        raise InputError(f"not a checkpoint: {error.strerror or error}", where=str(path)) from None
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(f"not a checkpoint's head: {error}", where=str(path)) from None


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None: every file is read and compared with its digest."""
    try:
        head = read_head(checkpoint)
    except InputError as error:
        return str(error)
    lists = sorted(checkpoint.glob("files-*.json"))
    if len(lists) != head.writers:
        return f"{len(lists)} of {head.writers} lists of files are there"
    try:
        problems = (
            _file_damage(checkpoint / name, int(facts["bytes"]), str(facts["sha256"]))
            for listed in lists
            for name, facts in json.loads(listed.read_text(encoding="utf-8"))["files"].items()
        )
        return next((problem for problem in problems if problem is not None), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its lists of files cannot be read: {error}"


def _file_damage(path: Path, size: int, sha256: str) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    if path.stat().st_size != size:
        return f"{path.name} has {path.stat().st_size} bytes of {size}"
    return None if digest(path) == sha256 else f"{path.name} is not what was written"


def find_checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint in a folder (or the folder itself, if it is one), and what ails newer ones."""
    if (folder / HEAD).exists():
        problem = damage(folder)
        return (folder, []) if problem is None else (None, [f"{folder.name}: {problem}"])
    wrong: list[str] = []
    for path in sorted(folder.glob("step-*"), reverse=True):
        if path.name.endswith(_UNDER_WAY) or not path.is_dir():
            continue
        problem = damage(path)
        if problem is None:
            return path, wrong
        wrong.append(f"{path.name}: {problem}")
    return None, wrong
