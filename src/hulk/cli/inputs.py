"""What several verbs read: a plan with its cluster and jobs, checked, and the compute model."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

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


def load_inputs(plan: str, cluster: str, jobs: str) -> Inputs:
    """Read and check the three files."""
    machines, work = load_cluster(cluster), load_jobs(jobs)
    loaded = Inputs(read_plan(plan, machines), machines, work, ComputeModel(bundled_profiles()))
    check_plan(loaded.plan, loaded.cluster, loaded.jobs)
    return loaded


def read_plan(path: str, cluster: Cluster) -> Plan:
    """Read a plan; a warning says where this is not the cluster that it was made for."""
    plan, differs = load_plan_for(Path(path), cluster)
    if differs:
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
