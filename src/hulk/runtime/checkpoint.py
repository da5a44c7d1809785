"""Checkpoints: weights and optimizer state, layer by layer and whole, so that any plan can go on from them.

A checkpoint is a folder `step-00000020`:

    layer-0003.safetensors              weights with Hugging Face's names; shared ones are with the first layer's
    layer-0003.optimizer.safetensors    the optimizer's state of each, named NAME/exp_avg and so on
    files-0.json                        size and SHA-256 of what rank 0 wrote; one a writing rank
    checkpoint.json                     step, what was trained and how, SHA-256 of the lists and of itself: written last

It is written under another name, brought to the disk, and renamed: there is a whole one or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hulk.errors import InputError

HEAD = "checkpoint.json"
FORMAT = "checkpoint/2"
_UNDER_WAY = ".writing"
_FOLDER = re.compile(r"step-(\d{8,})")
_OURS = re.compile(r"layer-\d{4,}(\.\d+-\d+)?(\.optimizer)?\.safetensors|files-\d+\.json|checkpoint\.json")
"""The names of the files that are written here: nothing else is ever removed."""


@dataclass(frozen=True, slots=True)
class CheckpointHead:
    """What a checkpoint is of: `step` steps are done, and `facts` say what of (`hulk.runtime.resume`). `lists` is the
    digest of each list of files."""

    step: int
    facts: Mapping[str, Any]
    lists: Mapping[str, str]


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
    remove_ours(target)
    target.mkdir(parents=True, exist_ok=True)
    return target


def remove_ours(checkpoint: Path) -> bool:
    """Remove a checkpoint, or what is left of one, the head first, so that what is left is none. Files that are not
    Hulk's stay, and the folder with them; whether all is gone is the answer."""
    if not checkpoint.is_dir() or checkpoint.is_symlink():
        return not checkpoint.exists()
    names = sorted((path for path in checkpoint.iterdir() if _OURS.fullmatch(path.name)), key=lambda p: p.name != HEAD)
    for path in names:
        path.unlink()
    with contextlib.suppress(OSError):  # not empty
        checkpoint.rmdir()
    return not checkpoint.exists()


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


def finish(folder: Path, step: int, facts: Mapping[str, Any]) -> Path:
    """Make a checkpoint that is all there a checkpoint."""
    source, target = unfinished(folder, step), folder_of(folder, step)
    lists = {path.name: digest(path) for path in sorted(source.glob("files-*.json"))}
    content = {"hulk": FORMAT, "step": step, "facts": dict(facts), "lists": lists}
    write_json(source / HEAD, {**content, "sha256": _seal(content)})
    to_disk(source)
    if not remove_ours(target):
        raise OSError(f"{target} has files that are not Hulk's")
    source.rename(target)
    to_disk(folder)
    return target


def _seal(content: Mapping[str, Any]) -> str:
    """The digest of a head, whatever its layout in the file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def discard(folder: Path, step: int) -> None:
    """Remove what is left of a checkpoint that could not be written."""
    with contextlib.suppress(OSError):
        remove_ours(unfinished(folder, step))


def finished(folder: Path) -> list[Path]:
    """The checkpoints in a folder, whole or damaged, the newest first."""
    found = {path: match for path in folder.glob("step-*") if (match := _FOLDER.fullmatch(path.name))}
    return sorted((path for path in found if (path / HEAD).exists()), key=lambda p: int(found[p][1]), reverse=True)


def leftovers(folder: Path) -> list[Path]:
    """What interrupted runs left of checkpoints under way: call it only where no other run can be writing. A folder
    without a head is one that was being removed."""
    unnamed = [path for path in folder.glob("step-*") if _FOLDER.fullmatch(path.name) and not (path / HEAD).exists()]
    under_way = [path for path in folder.glob(f"step-*{_UNDER_WAY}") if _FOLDER.fullmatch(path.stem)]
    return sorted(path for path in (*under_way, *unnamed) if path.is_dir())


def prune(folder: Path, *, keep: int, newest: int) -> None:
    """Remove checkpoints older than the `keep` last up to step `newest`; 0: keep all."""
    older = [path for path in finished(folder) if int(path.name.removeprefix("step-")) <= newest]
    for path in older[keep:] if keep else ():
        with contextlib.suppress(OSError):  # what cannot be removed costs room, not the run
            remove_ours(path)


def read_head(checkpoint: Path) -> CheckpointHead:
    """What a checkpoint says about itself; InputError where it is none, or its head is not what was written."""
    path = checkpoint / HEAD
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.get("hulk") != FORMAT:
            raise InputError(f"not a {FORMAT} file, but {value.get('hulk', 'without a format')}", where=str(path))
        seal = value.pop("sha256")
        if seal != _seal(value):
            raise InputError("not what was written: somebody has edited it, or it is damaged", where=str(path))
        return CheckpointHead(int(value["step"]), dict(value["facts"]), dict(value["lists"]))
    except OSError as error:
        raise InputError(f"not a checkpoint: {error.strerror or error}", where=str(path)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"not a checkpoint's head: {error}", where=str(path)) from None


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None: every file is read and compared with its digest."""
    try:
        head = read_head(checkpoint)
    except InputError as error:
        return str(error)
    named = _FOLDER.fullmatch(checkpoint.name)
    if named and int(named[1]) != head.step:
        return f"it is of step {head.step}, whatever its name says"
    try:
        for name, sha256 in head.lists.items():
            if not (checkpoint / name).is_file():
                return f"{name} is missing"
            if digest(checkpoint / name) != sha256:
                return f"{name} is not what was written"
        problems = (
            _file_damage(checkpoint / name, int(facts["bytes"]), str(facts["sha256"]))
            for listed in head.lists
            for name, facts in json.loads((checkpoint / listed).read_text(encoding="utf-8"))["files"].items()
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
    """The newest whole checkpoint in a folder, and what ails newer ones."""
    wrong: list[str] = []
    for path in finished(folder):
        problem = damage(path)
        if problem is None:
            return path, wrong
        wrong.append(f"{path.name}: {problem}")
    return None, wrong
