"""What is missing on a machine: what the plan needs beside what the machine says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hulk.cost.engine import HULK
from hulk.errors import InputError
from hulk.launch.needs import Need
from hulk.runtime.progress import same_gpu
from hulk.runtime.room import PROCESS
from hulk.runtime.settings import Compute, Settings, option_of
from hulk.units import format_size

_TEMPORARY = 64e6  # bytes for exported files and logs


class NotReadyError(InputError):
    """Machines that lack something; nothing was started. `problems`: by machine, in words."""

    def __init__(self, problems: Mapping[str, Sequence[str]], total: int) -> None:
        self.problems = {name: tuple(words) for name, words in problems.items() if words}
        super().__init__(f"{len(self.problems)} of {total} machines are not ready, and nothing was started")


def problems_of(need: Need, facts: Mapping[str, Any], settings: Settings, *, gpus: bool, apart: bool) -> Iterator[str]:
    """What of a machine's facts is not as the plan needs it, and what to do. `gpus`: whether it must have the GPUs of
    the plan; `apart`: whether it is a computer of its own."""
    libraries = facts["libraries"]
    missing = [name for name, version in libraries.items() if version is None]
    if missing:
        yield f"{', '.join(missing)} missing there: pip install 'hulk[train]' there"
    emulated = settings.compute is Compute.EMULATED
    if gpus and not emulated:
        yield from _gpu_problems(need, facts["gpus"])
    elif apart and not (emulated or facts["gpus"]):
        yield from _memory_problems(need, facts["memory_free"])
    for name in facts["no_interface"]:
        yield f"no network interface {name!r} there: bring the mesh up, or correct `interface` in the hosts file"
    for name, words in facts["inputs"].items():
        yield f"{option_of(name)}: {words}: copy it there, or name another path"
    yield from _disk_problems(need, facts)


def torch_problems(versions: Mapping[str, str | None]) -> dict[str, str]:
    """By machine, that its torch is not the one that most machines have."""
    plain = {name: version.partition("+")[0] for name, version in versions.items() if version is not None}
    counted = sorted(set(plain.values()), key=lambda version: (-list(plain.values()).count(version), version))
    return {
        name: f"torch {version} there, {counted[0]} on the others: install the same version everywhere"
        for name, version in plain.items()
        if version != counted[0]
    }


def _gpu_problems(need: Need, gpus: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    wanted, kind = max(need.gpus) + 1, need.machine.gpu.name
    advice = "correct the cluster file and plan again, or --no-gpus trains on what is there"
    if len(gpus) < wanted:
        yield f"{len(gpus)} GPUs there, the plan needs {wanted} × {kind}: {advice}"
        return
    for number, size in sorted(need.gpus.items()):
        name, free = str(gpus[number]["name"]), gpus[number]["free"]
        if not same_gpu(kind, name):
            yield f"GPU {number} there is {name}, the plan is for {kind}: {advice}"
        elif free is not None and free < size:
            yield (
                f"GPU {number} there has {format_size(free)} free, the plan needs {format_size(size)}: end what else "
                "runs there, or plan without it"
            )


def _memory_problems(need: Need, free: float | None) -> Iterator[str]:
    reserved = HULK.reserved(need.machine.gpu)
    wanted = sum(max(0.0, size - reserved) + PROCESS for size in need.gpus.values())
    if free is not None and free < wanted:
        yield (
            f"{format_size(free)} of memory free there, {len(need.gpus)} processes need {format_size(wanted)}: end "
            "what else runs there, or plan without it"
        )


def _disk_problems(need: Need, facts: Mapping[str, Any]) -> Iterator[str]:
    free = facts["temporary_free"]
    if free is not None and free < _TEMPORARY:
        yield f"{format_size(free)} free in its folder for temporary files: make room there"
    folder = facts["checkpoints"]
    if folder is None:
        return
    if folder["wrong"] is not None:
        yield f"--checkpoint-dir: {folder['wrong']}: make it there, or name another"
    elif folder["free"] is not None and folder["free"] < need.checkpoint:
        yield (
            f"--checkpoint-dir: {format_size(folder['free'])} free there, a checkpoint takes "
            f"{format_size(need.checkpoint)}: make room, or name another folder"
        )
