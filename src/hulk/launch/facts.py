"""What a machine says of itself before anything is started on it. Sizes in bytes; what cannot be found out is None."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from hulk import __version__
from hulk.errors import HulkError
from hulk.probe.facts import machine_facts
from hulk.runtime.room import memory_free
from hulk.runtime.runnable import check_inputs
from hulk.runtime.settings import Settings

FORMAT = "launch/1"
"""What agents and those who start them agree on."""
_LIBRARIES = ("torch", "transformers", "safetensors")
_NET = Path("/sys/class/net")
_INPUTS = ("data", "tokenizer", "weights")


def greeting() -> dict[str, Any]:
    """An agent's first words."""
    return {"hulk": FORMAT, "version": __version__, "python": platform.python_version()}


def facts(settings: Settings, interfaces: list[str]) -> dict[str, Any]:
    """Versions, GPUs, free memory and disk, and what is wrong with the files that the settings name, by option."""
    return {
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "gpus": _gpus(),
        "memory_free": memory_free(),
        "temporary_free": _free(Path(tempfile.gettempdir())),
        "inputs": _wrong_inputs(settings),
        "checkpoints": None if settings.checkpoints is None else _folder(settings.checkpoints),
        "no_interface": [name for name in interfaces if not (_NET / name).exists()],
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[dict[str, Any]]:
    """Name and free memory of every GPU that workers see."""
    found = [{"name": each["name"], "free": None} for each in machine_facts()["gpus"]]
    with contextlib.suppress(Exception):  # NVML has errors of its own, and may not be there
        import pynvml

        pynvml.nvmlInit()
        for number, each in enumerate(found):
            each["free"] = float(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(number)).free)
        pynvml.nvmlShutdown()
    return _visible(found)


def _visible(gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that a scheduler has handed out, in its order. Names other than numbers are left to torch."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None or not all(each.strip().isdecimal() for each in named.split(",") if each):
        return gpus
    return [gpus[int(each)] for each in named.split(",") if each and int(each) < len(gpus)]


def _wrong_inputs(settings: Settings) -> dict[str, str]:
    """What is wrong with each file that the workers read: nothing for those that are right."""
    wrong = {}
    for name in _INPUTS:
        others = {other: None for other in _INPUTS if other not in (name, "tokenizer")}
        try:
            check_inputs(settings.model_copy(update=others))
        except HulkError as error:
            wrong[name] = str(error)
    return wrong


def _folder(path: Path) -> dict[str, Any]:
    """Whether checkpoints can be written to a folder, which may not be there yet, and how much."""
    there = next((each for each in (path, *path.parents) if each.exists()), Path("/"))
    wrong = None
    if not there.is_dir():
        wrong = f"{there} is no folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        wrong = f"not allowed to write in {there}"
    return {"wrong": wrong, "free": _free(there)}


def _free(folder: Path) -> float | None:
    try:
        return float(shutil.disk_usage(folder).free)
    except OSError:
        return None
