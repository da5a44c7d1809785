"""Times of a model's own layers on one device: what `hulk run` would compute, forward and backward, and what it holds.

Blocks are timed several in a row and one alone; the difference, divided, is a block in the middle of a stage, without
what a stage costs once. With tensor parallel one slice computes as it would among others, and the all-reduces between
them are no-ops here (torch's fake process group): whoever reads the times adds those.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from hulk.domain.gpu import Precision
from hulk.domain.job import Attention, Job
from hulk.domain.model import Layer, LayerKind, Model
from hulk.domain.options import Recompute
from hulk.runtime.context import FORMATS
from hulk.runtime.loss import summed_loss
from hulk.runtime.models import Blueprint, draw
from hulk.runtime.slices import Home, furnish, list_entries
from hulk.runtime.stage import StageModule

ROW = 4
"""Blocks that are timed one after the other."""
_WARM_UP, _LEAST, _MOST, _CASE_SECONDS = 2, 5, 25, 0.2
_LONGEST = 4.0  # seconds of one pass there and back, above which no larger microbatch is tried


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Median seconds of one microbatch through one layer, and the bytes held from forward to backward."""

    layer: Layer
    microbatch: int
    forward: float
    backward: float
    held: float


@dataclass(frozen=True, slots=True)
class Way:
    """How layers are run: on which device, in which precision, with which attention, as one of how many slices."""

    device: torch.device
    precision: Precision
    attention: Attention
    tensor_parallel: int = 1


@dataclass(frozen=True)
class _Bench:
    """A model's layers on a device."""

    blueprint: Blueprint
    way: Way
    mesh: DeviceMesh | None

    def stage(self, indices: Sequence[int], *, loss: bool = False) -> StageModule:
        """These layers with weights of any value."""
        way = self.way
        layers, _, _ = furnish(
            self.blueprint,
            indices,
            list_entries(self.blueprint),
            _AnyWeights(self.blueprint, way.device),
            Home(way.device, self.mesh),
            working=lambda _: FORMATS[way.precision],
        )
        module = StageModule(layers, recompute=Recompute.NONE, loss=summed_loss if loss else None)
        return module.train(False)  # as `hulk run` does without --dropout

    def inputs(self, index: int, microbatch: int) -> tuple[torch.Tensor, ...]:
        """What crosses into a layer."""
        made, device = self.blueprint, self.way.device
        if index == 0:
            return (torch.randint(made.vocabulary, (microbatch, made.sequence), device=device),)
        return tuple(
            torch.randn(microbatch, *shape, device=device, dtype=FORMATS[self.way.precision], requires_grad=True)
            for shape in made.boundary(index - 1)
        )


class _AnyWeights:
    """Weights of any value, made where they are needed: drawing a large layer's takes longer than timing it."""

    def __init__(self, blueprint: Blueprint, device: torch.device) -> None:
        self._shapes = {name: parameter.shape for name, parameter in blueprint.model.named_parameters()}
        self._device = device

    def get(self, name: str, layer: int) -> torch.Tensor:
        """See `hulk.runtime.weights.Weights`."""
        del layer
        return torch.empty(self._shapes[name], device=self._device).normal_(0.0, 0.02)


def time_layers(
    model: Model, way: Way, microbatches: Sequence[int], go_on: Callable[[], bool] = lambda: True
) -> Iterator[LayerTimes]:
    """Embedding, the block that the model has most of, and head, for each microbatch that fits into memory, ascending;
    until `go_on` says no."""
    job = Job("profile", model, global_batch=1, precision=way.precision, attention=way.attention)
    torch.set_float32_matmul_precision("high" if way.precision is Precision.TF32 else "highest")
    with _slices(way) as mesh:
        bench = _Bench(draw(job), way, mesh)
        last = len(model.layers) - 1
        for index, loss in ((0, False), (last, True)):
            yield from _alone(bench, model.layers[index], index, microbatches, go_on, loss=loss)
        yield from _in_a_row(bench, model, microbatches, go_on)


def typical_blocks(model: Model) -> list[int]:
    """Up to `ROW` blocks beside each other, of the shape that the model has most of."""
    shapes = Counter(layer.shape for layer in model.layers if layer.kind is LayerKind.BLOCK)
    most = shapes.most_common(1)[0][0]
    rows: list[list[int]] = [[]]
    for index, layer in enumerate(model.layers):
        if layer.kind is LayerKind.BLOCK and layer.shape == most:
            rows[-1].append(index)
        elif rows[-1]:
            rows.append([])
    return max(rows, key=len)[:ROW]


def _alone(
    bench: _Bench,
    layer: Layer,
    index: int,
    microbatches: Sequence[int],
    go_on: Callable[[], bool],
    *,
    loss: bool = False,
) -> Iterator[LayerTimes]:
    with _memory(bench.way.device):
        stage = bench.stage([index], loss=loss)
        for microbatch in microbatches:
            found = _timed(bench, stage, index, microbatch) if go_on() else None
            if found is None:
                return
            yield LayerTimes(layer, microbatch, *found)


def _in_a_row(
    bench: _Bench, model: Model, microbatches: Sequence[int], go_on: Callable[[], bool]
) -> Iterator[LayerTimes]:
    indices = typical_blocks(model)
    with _memory(bench.way.device):
        one, row = bench.stage(indices[:1]), bench.stage(indices)
        for microbatch in microbatches:
            alone = _timed(bench, one, indices[0], microbatch) if go_on() else None
            found = _timed(bench, row, indices[0], microbatch) if alone and len(indices) > 1 else alone
            if alone is None or found is None:
                return
            yield LayerTimes(model.layers[indices[0]], microbatch, *_one_of(found, alone, len(indices)))


def _one_of(row: Sequence[float], alone: Sequence[float], count: int) -> list[float]:
    """One block's part of a row of them: what each further one adds; its share, where noise is larger than that."""
    added = [(many - one) / max(count - 1, 1) for many, one in zip(row, alone, strict=True)]
    return added if count > 1 and min(added) > 0 else [many / count for many in row]


def _timed(bench: _Bench, stage: StageModule, index: int, microbatch: int) -> tuple[float, ...] | None:
    """Seconds forward and backward, and bytes held; None where it does not fit into memory or takes too long."""
    device = bench.way.device
    try:
        inputs = bench.inputs(index, microbatch)
        labels = None
        if stage.loss is not None:
            tokens = bench.blueprint.target or bench.blueprint.sequence
            labels = torch.randint(bench.blueprint.vocabulary, (microbatch, tokens), device=device)

        def forward() -> tuple[torch.Tensor, ...]:
            output = stage(*inputs, labels=labels)
            return _arrived(*(output if isinstance(output, tuple) else (output,)))

        passes = _Passes(device, forward, [*inputs, *stage.parameters()])
        for _ in range(_WARM_UP):
            passes.once()
        began = time.perf_counter()
        passes.settled(passes.once())
        each = time.perf_counter() - began
        if each > _LONGEST:
            return None
        held = passes.held()
        count = int(min(_MOST, max(_LEAST, _CASE_SECONDS / each)))
        halves = passes.settled(*(passes.once() for _ in range(count)))
        return statistics.median(f for f, _ in halves), statistics.median(b for _, b in halves), held
    except torch.OutOfMemoryError:
        return None
    except RuntimeError as error:
        if "not enough memory" in str(error) or "DefaultCPUAllocator" in str(error):
            return None
        raise


@dataclass(frozen=True)
class _Passes:
    """Passes there and back, with moments between them."""

    device: torch.device
    forward: Callable[[], tuple[torch.Tensor, ...]]
    leaves: list[torch.Tensor]

    def once(self) -> tuple[Any, Any, Any]:
        """One pass; moments before it, between its halves and after it."""
        for leaf in self.leaves:
            leaf.grad = None
        start = self._moment()
        outputs = [output for output in self.forward() if output.requires_grad]
        middle = self._moment()
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
        _arrived(*(leaf.grad for leaf in self.leaves if leaf.grad is not None))
        return start, middle, self._moment()

    def held(self) -> float:
        """Bytes that a forward pass leaves behind for its backward pass, its output among them."""
        if self.device.type == "cuda":
            before = torch.cuda.memory_allocated(self.device)
            kept = self.forward()
            after = torch.cuda.memory_allocated(self.device)
            del kept
            return float(after - before)
        own = {_storage(leaf).data_ptr() for leaf in self.leaves}
        found: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = _storage(tensor)
            if storage.data_ptr() not in own:
                found[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            kept = self.forward()
        for output in kept:
            keep(output)
        return float(sum(found.values()))

    def settled(self, *moments: tuple[Any, Any, Any]) -> list[tuple[float, float]]:
        """Seconds of the halves of passes, once the device is done with them."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return [(a.elapsed_time(b) / 1e3, b.elapsed_time(c) / 1e3) for a, b, c in moments]
        return [(b - a, c - b) for a, b, c in moments]

    def _moment(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def _arrived(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors, once what others send of them is there."""
    for tensor in tensors:
        if hasattr(tensor, "trigger_wait"):
            tensor.trigger_wait()
    return tensors


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    """Where a tensor's elements are, also those of a slice, and of one that others still send."""
    for inside in ("_local_tensor", "elem"):
        tensor = getattr(tensor, inside, tensor)
    return tensor.untyped_storage()


@contextlib.contextmanager
def _slices(way: Way) -> Iterator[DeviceMesh | None]:
    """The mesh of a tensor parallel group in which the others only seem to be there; None for one slice."""
    if way.tensor_parallel == 1:
        yield None
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore  # torch has no public name for it

    dist.init_process_group("fake", rank=0, world_size=way.tensor_parallel, store=FakeStore())
    try:
        yield init_device_mesh(way.device.type, (way.tensor_parallel,))
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _memory(device: torch.device) -> Iterator[None]:
    """What is made inside is gone afterwards; a stage that does not fit at all is left out."""
    with contextlib.suppress(torch.OutOfMemoryError):
        yield
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
