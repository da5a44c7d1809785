"""`hulk list`: what Hulk brings along."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.text import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from hulk.domain.gpu import GpuType

GPU_NOTE = "rates in TFLOP/s, dense"


class Shelf(StrEnum):
    """The catalogues."""

    CLUSTERS = "clusters"
    MODELS = "models"
    GPUS = "gpus"
    JOBS = "jobs"


def catalogue(what: Annotated[Shelf, typer.Argument(help="clusters, models, gpus or jobs")]) -> None:
    """Print a bundled catalogue: clusters, models, GPU types or jobs."""
    {Shelf.CLUSTERS: _clusters, Shelf.MODELS: _models, Shelf.GPUS: _gpus, Shelf.JOBS: _jobs}[what]()


def _clusters() -> None:
    from hulk.cli.screen import console, table
    from hulk.io.cluster_file import load_cluster
    from hulk.io.files import bundled_names

    rows = table("cluster", "machines", "GPUs", "regions", "about", right=("machines", "GPUs", "regions"))
    for name in bundled_names("clusters"):
        cluster = load_cluster(name)
        about = one_line(cluster.about).split(". ")[0]
        rows.add_row(name, str(len(cluster.machines)), str(cluster.gpu_count), str(len(cluster.regions)), about)
    console().print(rows)


def _models() -> None:
    from hulk.cli.screen import console, table
    from hulk.io.models import build_named_model, model_names
    from hulk.units import format_count

    rows = table("model", "parameters", "layers", "sequence", "FLOPs/sample", "source",
                 right=("parameters", "layers", "sequence", "FLOPs/sample"))  # fmt: skip
    for name in model_names():
        model = build_named_model(name)
        flops = format_count(model.flops_per_sample)
        rows.add_row(name, f"{model.params:,}", str(len(model.layers)), str(model.sequence), flops, model.source)
    console().print(rows)


def _gpus() -> None:
    from hulk.cli.screen import console
    from hulk.io.gpus import load_gpus

    console().print(gpu_table({gpu.name: gpu for gpu in load_gpus().values()}.values()))
    console().print(GPU_NOTE, style="dim")


def gpu_table(gpus: Iterable[GpuType], *, own: bool = False) -> Table:
    """GPU types, one a row; `own` ones with what they are like, and with their limit."""
    from hulk.cli.screen import table
    from hulk.domain.gpu import Precision
    from hulk.units import format_bandwidth, format_money, format_rate, format_size

    rates, like = [str(p) for p in Precision], ["like"] * own
    rows = table("GPU", *like, "memory", "bandwidth", *rates, "link", "power", "price/h",
                 right=("memory", "bandwidth", *rates, "link", "power", "price/h"))  # fmt: skip
    for gpu in gpus:
        cells = [format_rate(gpu.rates[p]).removesuffix(" TFLOP/s") if p in gpu.rates else "" for p in Precision]
        like = [gpu.own.like if gpu.own is not None else ""] * own
        rows.add_row(gpu.name, *like, format_size(gpu.memory), f"{gpu.memory_bandwidth / 1e9:,.0f} GB/s", *cells,
                     f"{gpu.link_kind} {format_bandwidth(gpu.link_bandwidth)}", _power(gpu),
                     format_money(gpu.price * 3600))  # fmt: skip
    return rows


def _power(gpu: GpuType) -> str:
    from hulk.units import format_power

    power = "" if gpu.power is None else format_power(gpu.power)
    limit = None if gpu.own is None else gpu.own.power_limit
    return power if limit is None else f"{format_power(limit)} of {power}"


def _jobs() -> None:
    from hulk.cli.screen import console, table
    from hulk.io.files import bundled_names
    from hulk.io.jobs_file import load_jobs
    from hulk.units import format_count

    rows = table("jobs", "job", "model", "parameters", "batch", "sequence",
                 right=("parameters", "batch", "sequence"))  # fmt: skip
    for name in bundled_names("jobs"):
        for i, job in enumerate(load_jobs(name)):
            rows.add_row(name if i == 0 else "", job.name, job.model.name, format_count(job.model.params),
                         str(job.global_batch), str(job.model.sequence))  # fmt: skip
    console().print(rows)
