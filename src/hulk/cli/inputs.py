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
from hulk.domain.plan import Plan
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import load_plan_for
from hulk.io.profiles import bundled_profiles


@dataclass(frozen=True)
class Inputs:
    """A checked plan with what it refers to."""

    plan: Plan
    cluster: Cluster
    jobs: tuple[Job, ...]
    compute: ComputeModel


def load_inputs(
    plan: str, cluster: str, jobs: str, settings: Sequence[str] | None = None, *, quiet: bool = False
) -> Inputs:
    """Read and check the three files; `settings` are what --set changes of the cluster, printed unless `quiet`."""
    base, work = load_cluster(cluster), load_jobs(jobs)
    machines = with_settings(base, settings, quiet=quiet)
    loaded = Inputs(read_plan(plan, machines, base), machines, work, ComputeModel(bundled_profiles()))
    check_plan(loaded.plan, loaded.cluster, loaded.jobs)
    return loaded


def read_plan(path: str, cluster: Cluster, base: Cluster | None = None) -> Plan:
    """Read a plan; a warning says where this is not the cluster that it was made for. A plan of `base`, of which
    --set made the cluster, needs none: the difference is what was asked for."""
    plan, differs = load_plan_for(Path(path), cluster)
    asked_for = base is not None and base is not cluster and load_plan_for(Path(path), base)[1] is None
    if differs and not asked_for:
        sys.stderr.write(f"warning: this is not the cluster of the plan: {differs}\n")
    return plan


def announce_compilation(*, search: bool = False) -> None:
    """Say so when compiled code is not cached yet: the first run takes a while, and silence would worry people."""
    from hulk.cost import play

    ready = play.is_compiled()
    if search:
        from hulk.planner import is_compiled

        ready = ready and is_compiled()
    if not ready:
        what, seconds = ("the search", 90) if search else ("the price", 20)
        sys.stderr.write(f"compiling {what} for this machine, once; this takes about {seconds} s …\n")
        sys.stderr.flush()
