"""`hulk export`: launch files for the tools that people have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.price import ClusterOption, JobsOption, PlanArgument
from hulk.runtime.options import takes_settings
from hulk.runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hulk.export import Files

ToOption = Annotated[str, typer.Option("--to", help="what starts the job: torchrun, slurm, megatron …; see docs")]
OutOption = Annotated[str, typer.Option("--out", "-o", help="write to this folder, a new one or an empty one")]
JobOption = Annotated[str | None, typer.Option(help="export this job only; without it, a folder for each of several")]
HostsOption = Annotated[
    str | None, typer.Option(help="a file that says where machines are; without it, by their names")
]
PortOption = Annotated[int, typer.Option(min=1, max=65535, help="the port of the first machine on which ranks meet")]
ImageOption = Annotated[str, typer.Option(help="the container image, for targets that run in containers")]


@takes_settings(without=("resume", "trace_steps"))
def export(
    plan: PlanArgument,
    cluster: ClusterOption,
    jobs: JobsOption,
    to: ToOption,
    out: OutOption,
    settings: Settings,
    job: JobOption = None,
    hosts: HostsOption = None,
    port: PortOption = 29500,
    image: ImageOption = "hulk",
) -> None:
    """Write what starts a plan's jobs: scripts, job files or configs for torchrun, Slurm, Megatron-LM and others.

    Exit code 3 where the target cannot express the plan; the message names the part.
    """
    from hulk.cli.inputs import read_plan
    from hulk.cli.screen import console
    from hulk.domain.check import check_plan
    from hulk.errors import InputError
    from hulk.export import TARGETS, Scene
    from hulk.io.bundle import bundle
    from hulk.io.cluster_file import load_cluster
    from hulk.io.folder import check_folder, write_folder
    from hulk.io.hosts_file import HostList, load_hosts
    from hulk.io.jobs_file import load_jobs
    from hulk.runtime.run import choose_jobs

    target = TARGETS.get(to)
    machines, work = load_cluster(cluster), load_jobs(jobs)
    loaded = read_plan(plan, machines)
    check_plan(loaded, machines, work)
    check_folder(out, "--out")
    chosen = choose_jobs(loaded, work, job)
    if not chosen:
        raise InputError("no job of this plan trains, so there is nothing to export")
    places = HostList() if hosts is None else load_hosts(hosts, machines)
    own_worker = target.starts and target.form is None  # it reads the plan again; others have no use for it
    made: dict[str, Files] = {}
    for number, each in enumerate(chosen):
        own = loaded.jobs[each.name]
        inputs = bundle(each, own, machines, cluster, jobs) if own_worker else {}
        told = with_whole_paths(settings, each.name if len(chosen) > 1 else None)
        scene = Scene(each, own, machines, places, inputs, told, port + number, image, number)
        made[each.name] = target.export(scene)
    files = next(iter(made.values())) if len(made) == 1 else _folders(made)
    write_folder(out, {name: (file.text, file.mode) for name, file in files.items()})
    console().print(f"{to}: {len(files)} files in {out}", soft_wrap=True)


def _folders(made: Mapping[str, Files]) -> Files:
    """A folder for each job."""
    from hulk.export.shell import file_name

    return {f"{file_name(job)}/{name}": file for job, files in made.items() for name, file in files.items()}


def with_whole_paths(settings: Settings, job: str | None = None) -> Settings:
    """The settings with paths that mean the same from every folder; each of several jobs has its own checkpoints."""
    changes: dict[str, object] = {}
    for name in ("data", "tokenizer", "weights", "checkpoints"):
        path = getattr(settings, name)
        if path is not None:
            changes[name] = Path(path).absolute()
    if job is not None and settings.checkpoints is not None:
        changes["checkpoints"] = Path(settings.checkpoints).absolute() / job
    return settings.model_copy(update=changes)
