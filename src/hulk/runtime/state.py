"""A rank's part in writing and reading checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from hulk.errors import InputError
from hulk.runtime.checkpoint import layer_file, list_files, to_disk
from hulk.runtime.entries import Entry, Place
from hulk.runtime.seats import Seat
from hulk.runtime.slices import gather, local, take
from hulk.runtime.weights import read_tensor, tensor_names


class CheckpointWeights:
    """The weights of a checkpoint."""

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self._path = path

    def get(self, name: str, layer: int) -> torch.Tensor:
        """A parameter as it was."""
        for path in _files(self._path, layer, optimizer=False):
            if name in tensor_names(path):
                return read_tensor(path, name)
        raise InputError(f"no weights for {name}", where=str(self._path))


def _files(checkpoint: Path, layer: int, *, optimizer: bool) -> list[Path]:
    stem = f"layer-{layer:04d}"
    found = sorted(checkpoint.glob(f"{stem}*.safetensors"))
    return [path for path in found if path.name.endswith(".optimizer.safetensors") == optimizer]


def write_part(
    folder: Path,
    entries: Iterable[Entry],
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    *,
    owners: Mapping[str, Place],
    seat: Seat,
    ranks: int,
    sharded: bool,
) -> None:
    """Write the parameters that this rank's stage owns. All ranks of a stage take part, its lead writes; OSError where
    it cannot."""
    place = (seat.pipeline, seat.stage)
    layers: dict[int, tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]] = {}
    for entry in entries:
        if owners[entry.name] != place:
            continue
        weights, state = layers.setdefault(entry.home, ({}, {}))
        parameter = parameters[entry.name]
        weights[entry.name] = _whole(parameter.detach(), entry, ranks)
        for key, value in optimizer.state[parameter].items():
            if isinstance(value, torch.Tensor):
                divided = local(value).shape == local(parameter).shape and value.dim() > 0
                state[f"{entry.name}/{key}"] = _whole(value, entry, ranks) if divided else value.detach().cpu().clone()
    if not seat.leads or not layers:
        return
    writer = f".{seat.pipeline}-{seat.stage}" if sharded else ""
    names = []
    for layer, (weights, state) in layers.items():
        for optimizer_file, tensors in ((False, weights), (True, state)):
            if tensors:
                name = layer_file(layer, optimizer=optimizer_file, writer=writer)
                _save(tensors, folder / name)
                names.append(name)
    list_files(folder, seat.rank, names)


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    try:
        save_file(tensors, path)
        to_disk(path)
    except Exception as error:  # safetensors wraps the system's errors in its own
        raise error if isinstance(error, OSError) else OSError(str(error)) from None


def _whole(tensor: torch.Tensor, entry: Entry, ranks: int) -> torch.Tensor:
    return gather(tensor, entry, ranks).detach().cpu().contiguous().clone()


def read_state(
    checkpoint: Path,
    entries: Sequence[Entry],
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    *,
    ranks: int,
    slot: int,
) -> None:
    """Give the optimizer the state it had, for the parameters it updates."""
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for entry in entries:
        parameter = parameters.get(entry.name)
        if parameter is None or id(parameter) not in updated:
            continue
        for path in _files(checkpoint, entry.home, optimizer=True):
            for full in tensor_names(path):
                name, _, key = full.rpartition("/")
                if name == entry.name:
                    optimizer.state[parameter][key] = _part(read_tensor(path, full), parameter, entry, ranks, slot)


def _part(value: torch.Tensor, parameter: nn.Parameter, entry: Entry, ranks: int, slot: int) -> torch.Tensor:
    if tuple(value.shape) != entry.shape or value.dim() == 0:
        return value
    part = torch.empty_like(parameter.detach())
    local(part).copy_(take(value, entry, ranks, slot))
    return part
