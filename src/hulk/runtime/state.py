"""A rank's part in writing and reading checkpoints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from hulk.errors import InputError
from hulk.runtime.checkpoint import layer_file, list_files, to_disk
from hulk.runtime.entries import Entry, Place, Range
from hulk.runtime.seats import Seat
from hulk.runtime.shards import chunk
from hulk.runtime.slices import distributed, gather, local, take
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


@dataclass(frozen=True)
class Held:
    """What of a parameter a rank has: its slice, or some rows of it that the ranks of a group split.

    slices  the ranks of its stage; None: one
    rows    of the parameters that are split, by name
    shards  the group that splits, and the stages in it
    """

    slices: DeviceMesh | None
    rows: Mapping[str, Range]
    shards: dist.ProcessGroup | None
    near: Collection[Place]

    @property
    def ranks(self) -> int:
        """Slices of its stage."""
        return 1 if self.slices is None else self.slices.size()

    @property
    def slot(self) -> int:
        """Its own among them."""
        return 0 if self.slices is None else self.slices.get_local_rank()

    def joined(self, part: torch.Tensor, entry: Entry) -> torch.Tensor:
        """A rank's slice of something, of rows that a group's ranks have. All of them take part."""
        if entry.name not in self.rows or self.shards is None:
            return part
        rows, parts = entry.rows(self.ranks, self.slot), self.shards.size()
        padded = part.new_zeros(chunk(rows, parts, 0)[1], *part.shape[1:])
        padded[: part.shape[0]] = part
        found = [torch.empty_like(padded) for _ in range(parts)]
        dist.all_gather(found, padded, group=self.shards)
        return distributed(torch.cat(found)[:rows], entry, self.slices, plain=True)

    def part(self, whole: torch.Tensor, entry: Entry) -> torch.Tensor:
        """What a rank has of something whole."""
        mine = take(whole, entry, self.ranks, self.slot)
        if entry.name not in self.rows:
            return mine
        first, last = self.rows[entry.name]
        return mine[first:last]


def write_part(
    folder: Path,
    entries: Iterable[Entry],
    parameters: Mapping[str, nn.Parameter],
    optimizer: torch.optim.Optimizer,
    *,
    writers: Mapping[str, Place],
    seat: Seat,
    held: Held,
    sharded: bool,
) -> None:
    """Write the parameters that are for this rank's stage to write. All ranks of a stage take part, and those that
    split with it; its lead writes; OSError where it cannot."""
    place = (seat.pipeline, seat.stage)
    layers: dict[int, tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]] = {}
    for entry in entries:
        writes = writers[entry.name] == place
        if not writes and not (entry.name in held.rows and writers[entry.name] in held.near):
            continue
        parameter = parameters[entry.name]
        tensors = {"": parameter.detach(), **optimizer.state[parameter]}
        found: dict[str, torch.Tensor] = {}
        for key, value in tensors.items():
            if isinstance(value, torch.Tensor):
                divided = local(value).shape == local(parameter).shape and value.dim() > 0
                found[key] = held.joined(value, entry) if divided else value
        if writes:
            weights, state = layers.setdefault(entry.home, ({}, {}))
            weights[entry.name] = _whole(found.pop(""), entry, held.ranks)
            state |= {f"{entry.name}/{key}": _whole(value, entry, held.ranks) for key, value in found.items()}
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
    held: Held,
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
                    optimizer.state[parameter][key] = _part(read_tensor(path, full), parameter, entry, held)


def _part(value: torch.Tensor, parameter: nn.Parameter, entry: Entry, held: Held) -> torch.Tensor:
    if tuple(value.shape) != entry.shape or value.dim() == 0:
        return value
    part = torch.empty_like(parameter.detach())
    local(part).copy_(held.part(value, entry))
    return part
