"""Tensor parallel: what of each parameter a rank holds, and torch's DTensor styles that make the products of slices
right."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from hulk.runtime.entries import Entry, Range
from hulk.runtime.models import Blueprint, LayerModule, Style
from hulk.runtime.parts import Parts
from hulk.runtime.sequence import TOKENS
from hulk.runtime.weights import Weights, initialised, parameters_of

_FUSED_PARTS = 3  # queries, keys, values


def list_entries(blueprint: Blueprint) -> list[Entry]:
    """All parameters of a model, in the order of the layers that bring them."""
    found: dict[str, Entry] = {}
    for index, layer in enumerate(blueprint.layers):
        for path, leaf, parameter in parameters_of(layer):
            name = blueprint.names[id(parameter)]
            if name in found:
                known = found[name]
                layers = tuple(sorted({*known.layers, index}))
                found[name] = Entry(name, known.shape, layers, known.dim, known.groups)
                continue
            dim, groups = _division(layer, path, leaf)
            found[name] = Entry(name, tuple(parameter.shape), (index,), dim, groups)
    return list(found.values())


def _division(layer: LayerModule, path: str, leaf: str) -> tuple[int | None, int]:
    """The dimension of a submodule's parameter that tensor parallel divides, and in how many parts."""
    style = layer.styles.get(path)
    if style is None:
        # The T5 table of a stack's first block is also the submodule of its attention.
        return (1, 1) if path.endswith("relative_attention_bias") else (None, 1)
    outputs_first = isinstance(layer.get_submodule(path), nn.Linear)  # transformers' Conv1D has its inputs first
    if style in (Style.COLUMNS, Style.LOGITS, Style.FUSED):
        groups = _FUSED_PARTS if style is Style.FUSED else 1
        return (0 if leaf == "bias" or outputs_first else 1), groups
    if style is Style.ROWS:
        return (None if leaf == "bias" else 1 if outputs_first else 0), 1
    return (0 if style is Style.VOCABULARY else 1), 1


def take(whole: torch.Tensor, entry: Entry, ranks: int, slot: int) -> torch.Tensor:
    """A rank's slice of a whole parameter, or of anything of its shape."""
    if ranks == 1 or entry.dim is None:
        return whole
    parts = [whole.narrow(entry.dim, a, b - a) for a, b in entry.ranges(ranks, slot)]
    return torch.cat(parts, dim=entry.dim).contiguous()


def local_offset(entry: Entry, ranks: int, slot: int, piece: Range) -> int:
    """Where a range of the whole parameter begins in a rank's slice, along the divided dimension."""
    if ranks == 1:
        return piece[0]
    before = 0
    for a, b in entry.ranges(ranks, slot):
        if a <= piece[0] and piece[1] <= b:
            return before + piece[0] - a
        before += b - a
    raise ValueError(f"slice {slot} of {entry.name} does not hold {piece}")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather(tensor: torch.Tensor, entry: Entry, ranks: int) -> torch.Tensor:
    """The whole of a tensor in slices, on every rank of its stage."""
    if not isinstance(tensor, DTensor) or entry.dim is None:
        return local(tensor)
    joined = tensor.full_tensor()
    whole = torch.empty_like(joined)
    at = 0
    for slot in range(ranks):
        for a, b in entry.ranges(ranks, slot):
            whole.narrow(entry.dim, a, b - a).copy_(joined.narrow(entry.dim, at, b - a))
            at += b - a
    return whole


@dataclass(frozen=True)
class Home:
    """Where layers go: a device, the ranks that hold a slice each (None: one has all), whether these divide blocks
    along the sequence, and the ranks that share sequences (None: one has all tokens)."""

    device: torch.device
    mesh: DeviceMesh | None = None
    spread: bool = False
    parts: Parts | None = None


Split = Callable[[LayerModule, Mapping[str, Sequence[tuple[nn.Module, str]]]], Collection[str]]
"""Splits a layer's parameters among holders (`hulk.runtime.sharded`): takes them by name, with where they are, and
returns the names of those that are split now."""


def furnish(
    blueprint: Blueprint,
    layers: Sequence[int],
    entries: Sequence[Entry],
    weights: Weights,
    home: Home,
    *,
    working: Callable[[str], torch.dtype | None],
    split: Split | None = None,
) -> tuple[list[LayerModule], dict[str, nn.Parameter], dict[str, torch.Tensor]]:
    """Layers of a blueprint with their weights, of each parameter this rank's slice; the parameters by name; and their
    values in fp32, the parameters' own where they are in fp32. `working` is the number format of a parameter, None for
    one that is to be `split`: of those, no more than a layer's are there at a time."""
    by_name, mesh, device = {entry.name: entry for entry in entries}, home.mesh, home.device
    ranks, slot = (mesh.size(), mesh.get_local_rank()) if mesh is not None else (1, 0)
    made: dict[str, nn.Parameter] = {}
    whole: dict[str, torch.Tensor] = {}
    styled: set[int] = set()
    # One copy of all, so that what layers share stays shared; the blueprint itself stays without weights.
    copies = copy.deepcopy([blueprint.layers[index] for index in layers])
    for index, layer in zip(layers, copies, strict=True):
        plain = blueprint.layers[index]
        uses = [(path, leaf, blueprint.names[id(parameter)]) for path, leaf, parameter in parameters_of(plain)]
        _fill_buffers(layer, initialised(blueprint, plain, parameters=False), device)
        for path, leaf, name in uses:
            if name not in made:
                entry = by_name[name]
                part = take(weights.get(name, entry.home), entry, ranks, slot).to(device).clone()
                whole[name] = distributed(part, entry, mesh, plain=path not in layer.styles)
                made[name] = nn.Parameter(whole[name].to(working(name) or torch.float32))
            layer.get_submodule(path)._parameters[leaf] = made[name]
        if home.parts is not None:
            layer.share_with(home.parts)
        if mesh is not None:
            layer.divide(ranks)
            if home.spread and layer.again:
                layer.spread_over(mesh)
            _style(layer, mesh, styled)
            for path, leaf, name in uses:  # the styles wrap parameters anew; shared ones must stay one
                layer.get_submodule(path)._parameters[leaf] = made[name]
        if split is not None:
            names = dict.fromkeys(name for _, _, name in uses if working(name) is None)
            places = [(layer.get_submodule(path), leaf, name) for path, leaf, name in uses]
            where = {name: [(module, leaf) for module, leaf, other in places if other == name] for name in names}
            for name in split(layer, where):
                del made[name], whole[name]
    return copies, made, whole


def _fill_buffers(layer: LayerModule, filled: LayerModule, device: torch.device) -> None:
    """Give a layer the buffers of another one like it."""
    for path, module in filled.named_modules():
        for name, buffer in module._buffers.items():
            if name in layer.unused:
                layer.get_submodule(path)._buffers[name] = None
            elif buffer is not None:
                layer.get_submodule(path)._buffers[name] = buffer.to(device)


def distributed(part: torch.Tensor, entry: Entry, mesh: DeviceMesh | None, *, plain: bool) -> torch.Tensor:
    """A slice as DTensor. What every rank has stays `plain` where its operation is (the norms), and is a replicated
    DTensor beside a divided weight (the bias of a product over rows)."""
    if mesh is None or (entry.dim is None and plain):
        return part
    if entry.dim is None:
        return DTensor.from_local(part, mesh, [Replicate()], run_check=False)
    stride = torch.empty(entry.shape, device="meta").stride()
    return DTensor.from_local(
        part, mesh, [Shard(entry.dim)], run_check=False, shape=torch.Size(entry.shape), stride=stride
    )


class _Conv1d(ParallelStyle):
    """A style of torch's for transformers' Conv1D, which it does not know: what the inputs must be, and what the
    outputs are."""

    def __init__(self, style: type[ColwiseParallel | RowwiseParallel], given: Placement, wanted: Placement) -> None:
        super().__init__()
        self._prepare = partial(style._prepare_input_fn, (given,), (given,))
        self._finish = partial(style._prepare_output_fn, (wanted,), True)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, None, self._prepare, self._finish)


def _style(layer: LayerModule, mesh: DeviceMesh, styled: set[int]) -> None:
    """Attach torch's styles to a layer; `styled` keeps submodules that layers share from getting theirs twice."""
    plan: dict[str, Any] = {}
    for path, style in layer.styles.items():
        try:
            module = layer.get_submodule(path)
        except AttributeError:  # one of two forms of a feed-forward
            continue
        if id(module) in styled:
            continue
        styled.add(id(module))
        plain = isinstance(module, nn.Linear | nn.Embedding)
        if style in (Style.COLUMNS, Style.FUSED, Style.HEADS):
            plan[path] = ColwiseParallel() if plain else _Conv1d(ColwiseParallel, Replicate(), Shard(-1))
        elif style is Style.ROWS:
            given = Replicate() if layer.spread is None else Shard(TOKENS)
            plan[path] = RowwiseParallel(output_layouts=given) if plain else _Conv1d(RowwiseParallel, Shard(-1), given)
        elif style is Style.VOCABULARY:
            # torch would leave out the padding row of every slice, not only the one that has it.
            module.padding_idx = None  # type: ignore[assignment]
            plan[path] = RowwiseParallel(input_layouts=Replicate())
        else:
            plan[path] = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(layer, mesh, plan, src_data_rank=None)
