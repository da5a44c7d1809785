"""Checkpoints of a training run as safetensors: plain tensors, nothing that could run code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hulk.errors import InputError
from hulk.gnn.model import Proposer, Shape

_MODEL, _OPTIMIZER = "model.", "optimizer."


def save_checkpoint(
    path: Path, model: Proposer, optimizer: torch.optim.Optimizer | None, shape: Shape, step: int
) -> None:
    """Write the network and, where given, the optimizer's state; whole or not at all."""
    tensors = {_MODEL + name: value.detach().contiguous() for name, value in model.state_dict().items()}
    state = optimizer.state_dict()["state"] if optimizer else {}
    for number, entry in state.items():
        for name, value in entry.items():
            tensors[f"{_OPTIMIZER}{number}.{name}"] = value.detach().contiguous()
    temporary = path.with_suffix(".partial")
    save_file(tensors, temporary, metadata={"step": str(step), "shape": json.dumps(asdict(shape))})
    temporary.replace(path)


def load_checkpoint(
    path: Path, model: Proposer, optimizer: torch.optim.Optimizer, shape: Shape, device: torch.device
) -> int:
    """Put a checkpoint's state into the network and the optimizer; returns the step it was written at."""
    found, step, tensors = _read(path, device)
    if found != shape:
        raise InputError(
            f"this checkpoint is of another network ({found})", where=str(path), hint="train in another folder"
        )
    model.load_state_dict(_under(_MODEL, tensors))
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in _under(_OPTIMIZER, tensors).items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return step


def load_model(path: Path, device: torch.device) -> tuple[Proposer, int]:
    """The network of a checkpoint, ready to use, and the step it was written at."""
    shape, step, tensors = _read(path, device)
    model = Proposer(shape).to(device)
    model.load_state_dict(_under(_MODEL, tensors))
    return model.eval(), step


def _under(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _read(path: Path, device: torch.device) -> tuple[Shape, int, dict[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        return Shape(**json.loads(about["shape"])), int(about["step"]), tensors
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a checkpoint of this network ({error})", where=str(path)) from None
