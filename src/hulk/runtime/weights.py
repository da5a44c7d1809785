"""Where a stage's weights come from: a seed for each layer, or a file. Any cut of a model gets the same weights."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from hulk.errors import InputError
from hulk.runtime.models import Blueprint, LayerModule

INDEX = "model.safetensors.index.json"


class Weights(Protocol):
    """Whole parameters by Hugging Face's names."""

    def get(self, name: str, layer: int) -> torch.Tensor:
        """A parameter in fp32 on the CPU; `layer` is the first that uses it."""


class SeededWeights:
    """transformers' own initialisation, each layer with a seed of its own."""

    def __init__(self, blueprint: Blueprint, seed: int) -> None:
        """Nothing is made yet."""
        self._made = lru_cache(maxsize=2)(lambda layer: _layer_weights(blueprint, layer, seed))

    def get(self, name: str, layer: int) -> torch.Tensor:
        """A parameter as initialised."""
        return self._made(layer)[name]


class FileWeights:
    """A safetensors checkpoint: one file, or a folder with one or several."""

    def __init__(self, blueprint: Blueprint, path: Path) -> None:
        """Find out which file holds which parameter."""
        self._path = path
        self._prefix = f"{blueprint.model.base_model_prefix}."
        self._files = _tensor_files(path)

    def get(self, name: str, layer: int) -> torch.Tensor:
        """A parameter as the file has it; some files leave out the name of the model's core."""
        del layer
        for candidate in (name, name.removeprefix(self._prefix)):
            if candidate in self._files:
                return read_tensor(self._files[candidate], candidate).float()
        raise InputError(f"no weights for {name}", where=str(self._path))


def read_tensor(path: Path, name: str) -> torch.Tensor:
    """One tensor of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from None


def tensor_names(path: Path) -> list[str]:
    """The names of the tensors in a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from None


def _tensor_files(path: Path) -> dict[str, Path]:
    if path.is_file():
        return dict.fromkeys(tensor_names(path), path)
    index = path / INDEX
    if index.is_file():
        try:
            named = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not an index of safetensors files: {error}", where=str(index)) from None
        return {str(name): path / str(file) for name, file in named.items()}
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise InputError("no safetensors files here", where=str(path))
    return {name: file for file in files for name in tensor_names(file)}


def parameters_of(layer: nn.Module) -> Iterator[tuple[str, str, nn.Parameter]]:
    """(path of the submodule, name in it, parameter), each use of a shared one."""
    for path, module in layer.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield path, name, parameter


def initialised(blueprint: Blueprint, layer: LayerModule, *, parameters: bool) -> LayerModule:
    """A copy of a layer with its buffers, and its parameters if asked for, as transformers initialises them."""
    made = copy.deepcopy(layer)
    if parameters:
        made.to_empty(device="cpu")
    for module in made.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty_like(buffer, device="cpu")
    with torch.no_grad():
        for _, name, parameter in parameters_of(made) if parameters else ():
            # What transformers' initialisation does not know (it knows nearly all) is not left as it lies in memory.
            nn.init.zeros_(parameter) if name == "bias" or parameter.dim() > 1 else nn.init.ones_(parameter)
        # A parent may set its children's weights anew, so children come first.
        for module in reversed(list(made.modules())):
            blueprint.model._init_weights(module)
    return made


def _layer_weights(blueprint: Blueprint, index: int, seed: int) -> dict[str, torch.Tensor]:
    layer = blueprint.layers[index]
    names = [(path, name, blueprint.names[id(parameter)]) for path, name, parameter in parameters_of(layer)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((seed * 1_000_003 + index) % 2**63)
        made = initialised(blueprint, layer, parameters=True)
    values: dict[str, Any] = {}
    for path, name, known in names:
        values.setdefault(known, made.get_submodule(path)._parameters[name])
    return {name: value.detach() for name, value in values.items()}
