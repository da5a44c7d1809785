"""`hulk profile`: time a model's layers on this machine's GPU; and `--profile`, which has prices use such times."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from enum import StrEnum

    from rich.console import Console

    from hulk.domain.gpu import GpuType
    from hulk.domain.model import Model
    from hulk.runtime.layer_times import LayerTimes
    from hulk.runtime.profile import Group, Wanted

ProfileOption = Annotated[
    list[str] | None,
    typer.Option(
        "--profile", help="measured layer times, as `hulk profile` writes them; they win over those that Hulk ships"
    ),
]
_ALL = "all"
E = TypeVar("E", bound="StrEnum")


def profile(
    models: Annotated[list[str], typer.Argument(help="names of the catalogue, paths of config.json files, or all")],
    output: Annotated[Path, typer.Option("-o", "--output", help="write the profile here")],
    gpu: Annotated[
        str | None, typer.Option(help="the GPU type that this is, where it is not known by its name")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to try it out (then --gpu is needed)")] = "cuda",
    precision: Annotated[str, typer.Option(help="precisions, with commas")] = "bf16,tf32",
    attention: Annotated[str, typer.Option(help="kinds of attention, with commas: fused, eager")] = "fused",
    tensor_parallel: Annotated[str, typer.Option(help="GPUs that share a layer, with commas")] = "1,2,4,8",
    microbatch: Annotated[str, typer.Option(help="samples of a microbatch, with commas")] = "1,2,4,8,16",
    sequence: Annotated[
        str | None, typer.Option(help="tokens of a sample, with commas; the customary length if not given")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="seconds for all of it; what is left is left out", min=1)] = 1500.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the file that -o names")] = False,
) -> None:
    """Time a model's layers here, for the microbatches, degrees and precisions that a plan could use, and write a
    profile. `hulk plan --profile FILE` and others then use these times instead of the roofline."""
    from hulk.cli.probe import check_new
    from hulk.cli.screen import console
    from hulk.domain.gpu import Precision
    from hulk.domain.job import Attention
    from hulk.errors import InputError
    from hulk.io.files import write_atomic
    from hulk.io.profiles import parse_profiles, profile_text
    from hulk.runtime.profile import NOTES, Wanted, check_device, curves, source
    from hulk.runtime.runnable import check_engine
    from hulk.units import positive_finite

    wanted_models = _models(models, sequence)
    check_new(output, overwrite)
    check_engine()
    if device not in ("cuda", "cpu"):
        raise InputError(f"--device {device!r}: cuda or cpu")
    check_device(device)
    wanted = Wanted(
        models=wanted_models,
        gpu=_gpu(gpu, device),
        device=device,
        precisions=_choices(precision, Precision, "--precision", without=("fp8",)),
        attentions=_choices(attention, Attention, "--attention", without=("fused-softmax",)),
        degrees=_numbers(tensor_parallel, "--tensor-parallel", 64),
        microbatches=_numbers(microbatch, "--microbatch", 4096),
        seconds=positive_finite(time_limit, "--time-limit", most=7 * 86400.0),
    )
    timed = _measure(wanted)
    found = [(group, times) for group, times in timed if not isinstance(times, str) and times]
    rows = [row for group, times in found for row in curves(group, times, wanted.gpu)]
    if not rows:
        raise InputError("nothing was timed", hint="give more --time-limit, or smaller microbatches")
    text = profile_text(source(wanted), NOTES, rows)
    parse_profiles(text, where=str(output))  # what is written can be read
    write_atomic(output, text)
    screen = console()
    _render(found, wanted.gpu, screen)
    for group, times in timed:
        if isinstance(times, str) or not times:
            screen.print(f"not timed: {group}: {times or 'it does not fit into memory'}", soft_wrap=True)
    screen.print(f"written: {output} ({len(rows)} curves)", style="dim")


def _models(names: list[str], lengths: str | None) -> list[Model]:
    """The models, at each of the sequence lengths; InputError where the layers of one cannot be built here."""
    from hulk.errors import InputError
    from hulk.io.models import build_model_from_path, build_named_model, model_names
    from hulk.runtime.profile import can_be_timed
    from hulk.runtime.runnable import MODEL_TYPES

    found: list[Model] = []
    sequences = [None] if lengths is None else _numbers(lengths, "--sequence", 10_000_000)
    for name, sequence in product(names, sequences):
        if name == _ALL:
            found += [each for one in model_names() if can_be_timed(each := build_named_model(one, sequence))]
            continue
        is_path = "/" in name or name.endswith(".json") or Path(name).is_dir()
        model = build_model_from_path(name, sequence) if is_path else build_named_model(name, sequence)
        if not can_be_timed(model):
            kind = model.config.get("model_type")
            hint = f"models that run: {', '.join(MODEL_TYPES)}"
            raise InputError(f"the layers of {model.name} ({kind}) cannot be built here", hint=hint)
        found.append(model)
    if len({(model.name, model.sequence) for model in found}) < len(found):
        raise InputError("a model is given twice")
    return found


def _gpu(name: str | None, device: str) -> GpuType:
    from hulk.errors import InputError
    from hulk.io.gpus import gpu

    if name is not None:
        return gpu(name)
    if device == "cpu":
        raise InputError("which GPU shall this profile stand for?", hint="--gpu NAME, as `hulk list gpus` has them")
    import torch

    from hulk.probe.machines import known_gpu

    here = torch.cuda.get_device_name(0)
    found = known_gpu(here)
    if found is None:
        raise InputError(f"{here!r} is no GPU that Hulk knows", hint="--gpu NAME, as `hulk list gpus` has them")
    return found


def _choices(text: str, kind: type[E], option: str, *, without: tuple[str, ...]) -> list[E]:
    from hulk.errors import InputError, nearest

    known = [each.value for each in kind if each.value not in without]
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise InputError(f"{option}: unknown value {word!r}", hint=nearest(word, known))
    return [kind(word) for word in dict.fromkeys(words)]


def _numbers(text: str, option: str, most: int) -> list[int]:
    from hulk.errors import InputError

    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 7 and 1 <= int(word) <= most for word in words):
        raise InputError(f"{option} {text!r}: whole numbers from 1 to {most}, with commas between them")
    return sorted({int(word) for word in words})


def _measure(wanted: Wanted) -> list[tuple[Group, list[LayerTimes] | str]]:
    from hulk.cli.progress import bar
    from hulk.cli.screen import console
    from hulk.runtime.profile import profile as measure

    with bar("timed", console(sys.stderr), visible=sys.stderr.isatty(), transient=True) as bars:
        task = bars.add_task("", total=None)

        def news(done: int, total: int, words: str) -> None:
            bars.update(task, completed=done, total=total, description=words)

        return list(measure(wanted, news))


def _render(found: list[tuple[Group, list[LayerTimes]]], gpu: GpuType, screen: Console) -> None:
    """A line a layer, at its largest microbatch, beside what the roofline says."""
    from hulk.cli.screen import table
    from hulk.cost.roofline import Conditions, layer_time
    from hulk.runtime.profile import with_exchange
    from hulk.units import format_size, format_time

    numbers = ("microbatch", "forward", "roofline", "backward", "roofline ", "held")
    rows = table("model", "precision", "of", "layer", *numbers, right=("of", *numbers))
    for group, times in found:
        largest: dict[Any, LayerTimes] = {each.layer: each for each in times}
        for layer, each in largest.items():
            how = Conditions(group.precision, group.attention, each.microbatch, group.tensor_parallel)
            computed = layer_time(layer, gpu, how)
            timed = with_exchange(group, each, gpu)
            rows.add_row(
                group.model.name,
                str(group.precision),
                str(group.tensor_parallel),
                str(layer.kind),
                str(each.microbatch),
                format_time(timed[0]),
                format_time(computed[0]),
                format_time(timed[1]),
                format_time(computed[1]),
                format_size(each.held),
            )
    screen.print(rows)
