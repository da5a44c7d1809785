"""Layers whose parameters, or gradients alone, are split among the holders near a rank: torch's FSDP.

With parameters sharded, every pass of a layer gathers its weights and forgets them again; with gradients alone, weights
are gathered once a step, by the first pass. Either way a layer's backward pass spreads its gradient over the holders,
with every microbatch. Weights are gathered in the format that layers compute with, gradients are added up in fp32.

While a layer computes, the weights of the next one are on their way. On CPUs spreading gradients is waited for; on GPUs
torch has streams of their own for both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from hulk.runtime.models import LayerModule

_SHARDS, _SLICES = "shards", "slices"


class Meshes:
    """A rank among those that split with it, and among the slices of its stage; None where it is alone."""

    def __init__(
        self,
        ranks: Sequence[Sequence[int]],
        shards: dist.ProcessGroup | None,
        slices: dist.ProcessGroup | None,
        device: torch.device,
    ) -> None:
        """`ranks` has a row for each stage that splits, with a rank for each slice."""
        kind = device.type
        self.shards: DeviceMesh | None = None
        self.slices: DeviceMesh | None = None
        if shards is None:
            self.slices = None if slices is None else DeviceMesh.from_group(slices, kind)
        elif slices is None:
            self.shards = DeviceMesh.from_group(shards, kind, mesh_dim_names=(_SHARDS,))
        else:
            both = torch.tensor([list(row) for row in ranks], dtype=torch.int)
            whole = DeviceMesh.from_group([shards, slices], kind, mesh=both, mesh_dim_names=(_SHARDS, _SLICES))
            self.shards, self.slices = whole[_SHARDS], whole[_SLICES]


class Sharder:
    """Splits the layers of a stage, one by one: a layer is a unit that is gathered at once.

    parts       this rank's parts by name
    apart       parameters that are units of their own: several layers of the stage share them, or they are used before
                their layer is called
    working     the format that layers compute with
    parameters  whether weights are forgotten after each pass; otherwise they stay until the optimizer's step
    """

    def __init__(self, mesh: DeviceMesh, *, apart: Collection[str], working: torch.dtype, parameters: bool) -> None:
        self.parts: dict[str, nn.Parameter] = {}
        self._apart: dict[str, list[tuple[nn.Module, str]]] = {name: [] for name in apart}
        self._mesh, self._parameters = mesh, parameters
        self._policy = MixedPrecisionPolicy(
            param_dtype=None if working is torch.float32 else working,
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,
        )
        self._layers: list[Any] = []
        self._units: list[Any] = []

    def split(self, layer: LayerModule, uses: Mapping[str, Sequence[tuple[nn.Module, str]]]) -> list[str]:
        """Split a layer; `uses` has the parameters that are to be split by name, with where they are. Returns those
        that are split now: what layers share is, once all of them are there."""
        own = {name: where for name, where in uses.items() if name not in self._apart}
        for name, where in uses.items():
            if name in self._apart:
                self._apart[name] += where
        self._unit(layer, own)
        self._layers.append(layer)
        return list(own)

    def enclose(self, stage: nn.Module) -> nn.Module:
        """All layers are split: their stage for torch's schedule, which would otherwise gather all of it at once."""
        for name, where in self._apart.items():
            modules = list({id(module): module for module, _ in where}.values())
            if modules:
                self._unit(modules if len(modules) > 1 else modules[0], {name: where})
        for one, other in pairwise(self._layers):
            one.set_modules_to_forward_prefetch([other])
            other.set_modules_to_backward_prefetch([one])
        self._unit(stage, {})
        return _Enclosed(stage)

    def forget(self) -> None:
        """The optimizer has made its step: weights are to be gathered anew."""
        if not self._parameters:
            for unit in self._units:
                unit.reshard()

    def _unit(self, modules: Any, uses: Mapping[str, Sequence[tuple[nn.Module, str]]]) -> None:
        several = modules if isinstance(modules, list) else [modules]
        wanted = {module._parameters[leaf] for where in uses.values() for module, leaf in where}
        fully_shard(
            modules,
            mesh=self._mesh,
            reshard_after_forward=self._parameters,
            mp_policy=self._policy,
            ignored_params={p for module in several for p in module.parameters()} - wanted,
        )
        for name, where in uses.items():
            module, leaf = where[0]
            part = module._parameters[leaf]
            assert part is not None
            self.parts[name] = part
        unit = several[0]  # the modules of a unit have one state
        # The loss is that of the whole batch in parts, so sums are sums.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
        unit.set_reshard_after_backward(self._parameters, recurse=False)
        if self._mesh.device_type == "cpu":  # where torch has streams, it needs no word that nobody waits
            unit._set_unshard_async_op(True)
        self._units.append(unit)


class _Enclosed(nn.Module):
    """What torch's schedule does not know to be split."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, *given: Any, **options: Any) -> Any:
        """The stage's."""
        return self.stage(*given, **options)
