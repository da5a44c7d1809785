"""All launch files of a plan: one job's, or a folder for each of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import Plan
from hulk.export.files import Files
from hulk.export.registry import Target
from hulk.export.scene import Scene
from hulk.export.shell import file_name
from hulk.io.bundle import bundle
from hulk.io.hosts_file import HostList
from hulk.runtime.settings import Settings


@dataclass(frozen=True)
class Launch:
    """How and where jobs are started. `files`: the cluster file and the jobs file, as paths or bundled names."""

    files: tuple[str, str]
    hosts: HostList
    settings: Settings
    port: int = 29500
    image: str = "hulk"


def export_jobs(target: Target, plan: Plan, cluster: Cluster, jobs: Sequence[Job], launch: Launch) -> Files:
    """The files that start these jobs of a plan."""
    own_worker = target.starts and target.form is None  # it reads the plan again; others have no use for it
    made: dict[str, Files] = {}
    for number, job in enumerate(jobs):
        own = plan.jobs[job.name]
        inputs = bundle(job, own, cluster, *launch.files) if own_worker else {}
        told = with_whole_paths(launch.settings, job.name if len(jobs) > 1 else None)
        scene = Scene(job, own, cluster, launch.hosts, inputs, told, launch.port + number, launch.image, number)
        made[job.name] = target.export(scene)
    return next(iter(made.values())) if len(made) == 1 else _folders(made)


def _folders(made: Mapping[str, Files]) -> Files:
    """A folder for each job."""
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
