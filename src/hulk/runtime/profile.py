"""From timed layers to a profile that the price uses instead of the roofline."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

from hulk import __version__
from hulk.cost.collectives import KNOWN_RINGS
from hulk.cost.roofline import Conditions, exchange_times
from hulk.domain.gpu import GpuType, Precision
from hulk.domain.job import Attention
from hulk.domain.model import Layer, Model
from hulk.errors import InputError
from hulk.runtime.runnable import MODEL_TYPES

if TYPE_CHECKING:
    from hulk.runtime.layer_times import LayerTimes

NOTES = (
    "Seconds for one microbatch on one GPU: the median of several, after warm-up; layers as `hulk run` computes them, "
    "without dropout, weights and gradients in the precision named, gradients not accumulated.",
    "block: of the shape that the model has most of; the difference between several in a row and one, divided. head: "
    "norm, logits and loss. held_bytes: kept from forward to backward, the output among it.",
    "tensor_parallel above 1: one slice was timed alone; the all-reduces of its group are computed and added.",
)


@dataclass(frozen=True)
class Wanted:
    """What to time: models, precisions, attentions, tensor parallel degrees and microbatches, the GPU type that the
    profile is for, the device it is timed on, and the seconds it may take."""

    models: Sequence[Model]
    gpu: GpuType
    device: str
    precisions: Sequence[Precision]
    attentions: Sequence[Attention]
    degrees: Sequence[int]
    microbatches: Sequence[int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Group:
    """A model in one precision, with one attention and degree: what is timed together."""

    model: Model
    precision: Precision
    attention: Attention
    tensor_parallel: int

    def __str__(self) -> str:
        slices = f", one of {self.tensor_parallel} slices" if self.tensor_parallel > 1 else ""
        return f"{self.model.name} {self.precision} {self.attention}{slices}"


def can_be_timed(model: Model) -> bool:
    """Whether its layers can be built here."""
    return model.config.get("model_type") in MODEL_TYPES and model.config.get("text_config") is None


def groups(wanted: Wanted) -> list[Group]:
    """What is timed, the most telling first: all models undivided, then divided. A precision that the GPU has no unit
    for is left out (another one's run says nothing of it), as is a degree that divides no layer evenly."""
    found = []
    for degree in sorted(set(wanted.degrees)):
        for precision in wanted.precisions:
            if wanted.gpu.unit_for(precision).bytes != precision.bytes:
                continue
            for attention in wanted.attentions:
                for model in wanted.models:
                    if _divides(model, degree):
                        found.append(Group(model, precision, attention, degree))
    return found


def profile(
    wanted: Wanted, news: Callable[[int, int, str], None] = lambda done, total, words: None
) -> Iterator[tuple[Group, list[LayerTimes] | str]]:
    """Time all groups, or say why one could not be timed; `news` has how many are done, of how many, and which is
    next."""
    import torch

    from hulk.runtime.layer_times import Way, time_layers

    deadline = time.monotonic() + wanted.seconds
    everything = groups(wanted)
    device = torch.device(wanted.device)
    for done, group in enumerate(everything):
        if time.monotonic() > deadline:
            yield group, "the time was over"
            continue
        news(done, len(everything), str(group))
        way = Way(device, group.precision, group.attention, group.tensor_parallel)
        times = time_layers(group.model, way, wanted.microbatches, lambda: time.monotonic() < deadline)
        try:
            yield group, list(times)
        except (RuntimeError, ValueError, NotImplementedError) as error:  # a form that torch cannot divide or run
            yield group, f"{type(error).__name__}: {error}"[:200]
    news(len(everything), len(everything), "")


def curves(group: Group, times: Sequence[LayerTimes], gpu: GpuType) -> Iterator[dict[str, Any]]:
    """Rows of a profile file: a curve over microbatches for each layer, the all-reduces of slices included."""
    by_layer: dict[Layer, list[LayerTimes]] = {}
    for each in times:
        by_layer.setdefault(each.layer, []).append(each)
    for layer, points in by_layer.items():
        forward, backward = zip(*(with_exchange(group, each, gpu) for each in points), strict=True)
        yield {
            "model": group.model.name,
            "gpu": gpu.timed,
            "precision": str(gpu.unit_for(group.precision)),
            "attention": str(group.attention),
            "sequence": group.model.sequence,
            "tensor_parallel": group.tensor_parallel,
            "kind": str(layer.kind),
            "flops": layer.flops_forward,
            "microbatch": [each.microbatch for each in points],
            "forward": [_round(seconds) for seconds in forward],
            "backward": [_round(seconds) for seconds in backward],
            "held_bytes": [round(each.held) for each in points],
        }


def source(wanted: Wanted) -> str:
    """Where a profile comes from, in words: device, day, versions."""
    import torch

    cuda = wanted.device.startswith("cuda")
    device = torch.cuda.get_device_name(0) if cuda else f"{platform.processor() or platform.machine()} (CPU)"
    versions = [f"hulk {__version__}", f"torch {torch.__version__}", f"transformers {metadata.version('transformers')}"]
    versions += [f"CUDA {torch.version.cuda}"] if cuda else []
    return f"hulk profile, {device}, {datetime.now(UTC):%Y-%m-%d}, {', '.join(versions)}"


def check_device(device: str) -> None:
    """InputError where there is no such device."""
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("there is no GPU here that torch can use", hint="--device cpu, to try it out")


def with_exchange(group: Group, timed: LayerTimes, gpu: GpuType) -> tuple[float, float]:
    """Seconds forward and backward, with the all-reduces of a slice's group."""
    how = Conditions(group.precision, group.attention, timed.microbatch, group.tensor_parallel)
    there, back = exchange_times(timed.layer, gpu, how, rings=KNOWN_RINGS)
    return timed.forward + there, timed.backward + back


def _divides(model: Model, degree: int) -> bool:
    names = ("n_inner", "ffn_dim", "intermediate_size", "d_ff")
    widths = [int(str(model.config[name])) for name in names if model.config.get(name)]
    return all(width % degree == 0 for width in (*widths, *(layer.head_width for layer in model.layers)))


def _round(seconds: float) -> float:
    return float(f"{seconds:.5g}")
