"""What several verbs read: a plan with its cluster and jobs, checked, and the compute model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hulk.cli.settings import with_settings
from hulk.cost.compute import ComputeModel
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan, idle_machines
from hulk.domain.regular import parse_regular, regular_plan
from hulk.errors import InputError, nearest
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import load_plan_for
from hulk.io.profiles import compute_with


@dataclass(frozen=True)
class Inputs:
    """A checked plan with what it refers to."""

    plan: Plan
    cluster: Cluster
    jobs: tuple[Job, ...]
    compute: ComputeModel


def load_inputs(
    plan: str,
    cluster: str,
    jobs: str,
    settings: Sequence[str] | None = None,
    *,
    quiet: bool = False,
    profiles: Sequence[str] | None = None,
    strict: bool = False,
) -> Inputs:
    """Read and check the three files; `settings` are what --set changes of the cluster, printed unless `quiet`;
    `profiles` are files of measured layer times. `strict`: InputError where the plan is another cluster's."""
    base, work = load_cluster(cluster), load_jobs(jobs)
    machines = with_settings(base, settings, quiet=quiet)
    loaded = Inputs(read_plan(plan, machines, base, strict=strict), machines, work, compute_with(profiles))
    check_plan(loaded.plan, loaded.cluster, loaded.jobs)
    return loaded


def load_regular(
    layout: str,
    job: str | None,
    cluster: str,
    jobs: str,
    settings: Sequence[str] | None,
    *,
    quiet: bool,
    profiles: Sequence[str] | None = None,
) -> Inputs:
    """The regular plan that a layout stands for, for the only job of a file or the one that is named."""
    regular = parse_regular(layout)
    machines, work = with_settings(load_cluster(cluster), settings, quiet=quiet), load_jobs(jobs)
    chosen = [each for each in work if job in (None, each.name)]
    if job is not None and not chosen:
        raise InputError(f"--job {job!r}: no such job", hint=nearest(job, [each.name for each in work]))
    if len(chosen) > 1:
        raise InputError(f"--layout is for one job, and there are {len(chosen)}", hint="name one with --job")
    own = regular_plan(regular, chosen[0], machines)
    plan = Plan({chosen[0].name: own}, idle_machines([own], [machine.name for machine in machines.machines]))
    loaded = Inputs(plan, machines, (chosen[0],), compute_with(profiles))
    check_plan(loaded.plan, loaded.cluster, loaded.jobs)
    return loaded


def read_plan(path: str, cluster: Cluster, base: Cluster | None = None, *, strict: bool = False) -> Plan:
    """Read a plan; a warning, or `strict` an InputError, says where this is not the cluster that it was made for. A
    plan of `base`, of which --set made the cluster, needs none: the difference is what was asked for."""
    plan, differs = load_plan_for(Path(path), cluster)
    asked_for = base is not None and base is not cluster and load_plan_for(Path(path), base)[1] is None
    if differs and strict:
        hint = "plan again for this cluster; --anyway goes on all the same"
        raise InputError(f"this is not the cluster of the plan: {differs}", where=path, hint=hint)
    if differs and not asked_for:
        sys.stderr.write(f"warning: this is not the cluster of the plan: {differs}\n")
    return plan


def announce_compilation(*, search: bool = False, exact: bool = False) -> None:
    """Say so when compiled code is not kept yet: the first run takes a while, and silence would worry people. What only
    a price needs is compiled at once."""
    from hulk.cost import play

    ready, what, seconds = play.is_compiled(), "the price", 20
    if search:
        from hulk.planner import is_compiled

        ready, what, seconds = ready and is_compiled(), "the search", 90
    if exact:
        from hulk.search import exact as solver

        ready, what, seconds = ready and solver.is_compiled(), "the exact solver", 90
    if not ready:
        sys.stderr.write(f"compiling {what} for this machine, once; this takes about {seconds} s …\n")
        sys.stderr.flush()
    if not ready and not (search or exact):
        from hulk.cost.loading import load_price

        load_price()
