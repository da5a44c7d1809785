"""`hulk launch`: a plan started on all its machines by one command, and followed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hulk.cli.export import AnywayOption, HostsOption
from hulk.cli.live import PageOption, PagePortOption, on_page
from hulk.cli.price import ClusterOption, JobsOption, PlanArgument
from hulk.cli.run import (
    JobOption,
    MetricsOption,
    OverwriteOption,
    ResumeOption,
    TraceOption,
    TraceStepsOption,
    YesOption,
)
from hulk.runtime.options import takes_settings
from hulk.runtime.settings import Compute, Settings
from hulk.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hulk.export import Scene
    from hulk.io.hosts_file import HostList
    from hulk.launch.main import Asked
    from hulk.launch.sites import Site
    from hulk.runtime.progress import Progress, Watched
    from hulk.runtime.run import Workload


class On(StrEnum):
    """What starts the workers."""

    LOCAL = "local"
    SSH = "ssh"
    SLURM = "slurm"
    RAY = "ray"


OnOption = Annotated[On, typer.Option("--on", help="where the machines are: local (this computer), ssh, slurm or ray")]
PortOption = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="the port of the first machine on which ranks meet; 29500, locally a free one"),
]
HulkOption = Annotated[
    str | None, typer.Option(help="with ssh: how hulk is called on the machines", show_default="hulk")
]
SshConfigOption = Annotated[Path | None, typer.Option(help="with ssh: a configuration for ssh (its -F)")]
NoGpusOption = Annotated[
    bool, typer.Option("--no-gpus", help="machines need not have the plan's GPUs: train on what they have, or on CPUs")
]
CheckOption = Annotated[bool, typer.Option("--check", help="check every machine, and start nothing")]


@takes_settings(without=("resume", "patience", "trace_steps"))
def launch(
    plan: PlanArgument,
    cluster: ClusterOption,
    jobs: JobsOption,
    on: OnOption,
    settings: Settings,
    job: JobOption = None,
    hosts: HostsOption = None,
    port: PortOption = None,
    hulk: HulkOption = None,
    ssh_config: SshConfigOption = None,
    no_gpus: NoGpusOption = False,
    anyway: AnywayOption = False,
    check: CheckOption = False,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    metrics: MetricsOption = None,
    trace: TraceOption = None,
    trace_steps: TraceStepsOption = 2,
    page: PageOption = False,
    page_port: PagePortOption = 0,
    yes: YesOption = False,
) -> None:
    """Start a plan's jobs on all their machines, follow them in one view, and end everything on Ctrl-C.

    Before the start every machine is checked, and all that is missing is listed. Exit code 2 where something is; 130
    after Ctrl-C."""
    from hulk.cli.inputs import announce_compilation, load_inputs
    from hulk.cli.run import announce, checked, news, render, write_trace
    from hulk.cli.screen import console
    from hulk.errors import InputError
    from hulk.export.whole import with_whole_paths
    from hulk.io.hosts_file import HostList, load_hosts
    from hulk.launch.main import Asked
    from hulk.runtime.choice import choose_jobs
    from hulk.runtime.progress import Progress
    from hulk.runtime.run import Workload, watched_of
    from hulk.runtime.runnable import check_options
    from hulk.runtime.settings import RunFiles

    inputs = load_inputs(plan, cluster, jobs, strict=not anyway)
    settings = checked(settings, metrics, trace, trace_steps)
    check_options(settings, resume=resume, overwrite=overwrite)
    _check_place(on, hosts=hosts, hulk=hulk, ssh_config=ssh_config)
    places = HostList() if hosts is None else load_hosts(hosts, inputs.cluster)
    chosen = choose_jobs(inputs.plan, inputs.jobs, job)
    if not chosen:
        raise InputError("no job of this plan trains, so there is nothing to launch")
    announce_compilation()
    settings = with_whole_paths(settings)
    workload = Workload(inputs.plan, inputs.cluster, chosen, inputs.compute, RunFiles(plan, cluster, jobs))
    watched = {each.name: watched_of(each, workload, settings, network=on is not On.LOCAL) for each in chosen}
    screen = console()
    if on is On.LOCAL:
        announce(workload, settings, screen, yes=yes)
    asked = Asked(gpus=not no_gpus, resume=resume, overwrite=overwrite, only_check=check)
    ssh = (hulk or "hulk", None if ssh_config is None else str(ssh_config))
    gpus = asked.gpus and settings.compute is Compute.REAL
    with (
        _site(on, workload, places, ssh, gpus=gpus) as site,
        news(screen, settings.steps, late=True) as say,
        on_page(say, workload, settings.steps, page_port, wanted=page and not check) as show,
        _listed(),
    ):
        if site is not None:
            places = HostList({machine.name: site.host(machine.name) for machine in inputs.cluster.machines})
        scenes = _scenes(workload, watched, settings, places, _ports(on, port, len(chosen)), gpus=gpus)
        progress = Progress(watched, inputs.cluster, show, metrics)
        taken = _start(site, scenes, asked, progress)
    if check:
        ready = sum(len(scene.ranks_on) for scene in scenes) - taken
        screen.print(f"{ready} machines are ready{f', {taken} are in use' if taken else ''}", soft_wrap=True)
        return
    if trace is not None:
        write_trace(trace, progress, screen)
    render(progress, screen)


def _check_place(on: On, *, hosts: str | None, hulk: str | None, ssh_config: Path | None) -> None:
    """InputError where an option says how machines are reached that are not reached so."""
    from hulk.errors import InputError

    asked: dict[str, object] = {"--hulk": hulk, "--ssh-config": ssh_config} if on is not On.SSH else {}
    asked |= {"--hosts": hosts} if on is On.LOCAL else {}
    useless = [option for option, value in asked.items() if value is not None]
    if useless:
        raise InputError(f"{', '.join(useless)} with --on {on}", hint="leave it out, or --on ssh")


@contextmanager
def _listed() -> Iterator[None]:
    """What machines lack, a line each, before the error that says so."""
    from hulk.launch.checks import NotReadyError

    try:
        yield
    except NotReadyError as error:
        for name, found in error.problems.items():
            for words in found:
                sys.stderr.write(f"{name}: {one_line(words)}\n")
        raise


def agent() -> None:
    """Be a machine of a launched plan: `hulk launch` starts this on every machine and tells it what to do."""
    from hulk.launch.agent import main

    main()


@contextmanager
def _site(
    on: On, workload: Workload, places: HostList, ssh: tuple[str, str | None], *, gpus: bool
) -> Iterator[Site | None]:
    """Where agents run; None where a scheduler starts the workers."""
    from hulk.launch.ray import ray_site
    from hulk.launch.sites import LocalSite, SshSite

    if on is On.RAY:
        plans = [workload.plan.jobs[job.name] for job in workload.jobs]
        with ray_site(plans, workload.cluster, places, gpus=gpus) as site:
            yield site
    elif on is On.SLURM:
        yield None
    else:
        yield LocalSite() if on is On.LOCAL else SshSite(places, *ssh)


def _start(site: Site | None, scenes: Sequence[Scene], asked: Asked, progress: Progress) -> int:
    """Start the jobs. How many nodes could not be looked at, since others use them."""
    from functools import partial

    from hulk.launch.batch import launch_batch
    from hulk.launch.main import launch as start
    from hulk.launch.slurm import SlurmJob, check_slurm

    if site is not None:
        start(scenes, site, asked, progress)
        return 0
    taken = check_slurm(scenes, asked, progress)
    if not asked.only_check:
        launch_batch("slurm", scenes, partial(SlurmJob, say=progress.show), asked, progress)
    return taken


def _scenes(
    workload: Workload,
    watched: dict[str, Watched],
    settings: Settings,
    places: HostList,
    ports: Sequence[int],
    *,
    gpus: bool,
) -> list[Scene]:
    from hulk.export import Scene
    from hulk.io.bundle import bundle
    from hulk.runtime.run import own_settings

    scenes = []
    for number, (name, one) in enumerate(watched.items()):
        own, files, machines = workload.plan.jobs[name], workload.files, workload.cluster
        bundled = bundle(one.job, own, machines, files.cluster, files.jobs)
        told = own_settings(settings, one)
        scenes.append(Scene(one.job, own, machines, places, bundled, told, ports[number], number=number, gpus=gpus))
    return scenes


def _ports(on: On, port: int | None, count: int) -> list[int]:
    from hulk.export.scene import PORT
    from hulk.runtime.launch import free_ports

    if on is On.LOCAL and port is None:
        return free_ports("127.0.0.1", count)
    return [(port or PORT) + number for number in range(count)]
