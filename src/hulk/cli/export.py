"""`hulk export`: launch files for the tools that people have."""

from __future__ import annotations

from typing import Annotated

import typer

from hulk.cli.price import ClusterOption, JobsOption, PlanArgument
from hulk.runtime.options import takes_settings
from hulk.runtime.settings import Settings

ToOption = Annotated[str, typer.Option("--to", help="what starts the job: torchrun, slurm, megatron …; see docs")]
OutOption = Annotated[str, typer.Option("--out", "-o", help="write to this folder, a new one or an empty one")]
JobOption = Annotated[str | None, typer.Option(help="export this job only; without it, a folder for each of several")]
HostsOption = Annotated[
    str | None, typer.Option(help="a file that says where machines are; without it, by their names")
]
PortOption = Annotated[int, typer.Option(min=1, max=65535, help="the port of the first machine on which ranks meet")]
AnywayOption = Annotated[
    bool, typer.Option("--anyway", help="also where the plan was made for a cluster that was different")
]
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
    anyway: AnywayOption = False,
) -> None:
    """Write what starts a plan's jobs: scripts, job files or configs for torchrun, Slurm, Megatron-LM and others.

    Exit code 3 where the target cannot express the plan, 2 where it was made for another cluster; the message names the
    part.
    """
    from hulk.cli.inputs import read_plan
    from hulk.cli.screen import console
    from hulk.domain.check import check_plan
    from hulk.errors import InputError
    from hulk.export import TARGETS
    from hulk.export.whole import Launch, export_jobs
    from hulk.io.cluster_file import load_cluster
    from hulk.io.folder import check_folder, write_folder
    from hulk.io.hosts_file import HostList, load_hosts
    from hulk.io.jobs_file import load_jobs
    from hulk.runtime.choice import choose_jobs

    target = TARGETS.get(to)
    machines, work = load_cluster(cluster), load_jobs(jobs)
    loaded = read_plan(plan, machines, strict=not anyway)
    check_plan(loaded, machines, work)
    check_folder(out, "--out")
    chosen = choose_jobs(loaded, work, job)
    if not chosen:
        raise InputError("no job of this plan trains, so there is nothing to export")
    places = HostList() if hosts is None else load_hosts(hosts, machines)
    files = export_jobs(target, loaded, machines, chosen, Launch((cluster, jobs), places, settings, port, image))
    write_folder(out, {name: (file.text, file.mode) for name, file in files.items()})
    console().print(f"{to}: {len(files)} files in {out}", soft_wrap=True)
