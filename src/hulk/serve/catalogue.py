"""What the page offers: bundled files, models, GPU types, targets of export."""

from __future__ import annotations

from functools import cache
from typing import Any

from hulk.errors import InputError, nearest
from hulk.export import TARGETS
from hulk.io.cluster_file import load_cluster
from hulk.io.files import bundled_names, data_path
from hulk.io.gpus import load_gpus
from hulk.io.jobs_file import load_jobs
from hulk.io.models import model_names
from hulk.serve.limits import Limits


def catalogue(limits: Limits) -> dict[str, Any]:
    """All that there is, and how much may be asked."""
    from hulk import __version__

    return {
        "version": __version__,
        **_bundled(),
        "limits": {
            "bytes": limits.body,
            "machines": limits.machines,
            "seconds": limits.seconds,
            "tasks": limits.waiting,
        },
    }


@cache
def _bundled() -> dict[str, Any]:
    clusters = [load_cluster(name) for name in bundled_names("clusters")]
    return {
        "clusters": [
            {
                "name": cluster.name,
                "about": cluster.about,
                "machines": len(cluster.machines),
                "gpus": cluster.gpu_count,
                "regions": len(cluster.regions),
            }
            for cluster in clusters
        ],
        "jobs": [
            {"name": name, "about": "", "jobs": [job.name for job in load_jobs(name)]} for name in bundled_names("jobs")
        ],
        "models": list(model_names()),
        "gpu_types": list(load_gpus()),
        "targets": [{"name": target.name, "about": target.title} for target in TARGETS.targets()],
    }


def bundled_text(kind: str, name: str) -> str:
    """A bundled file of a kind ("clusters", "jobs")."""
    names = bundled_names(kind)
    if name not in names:
        raise InputError(f"no bundled {kind.removesuffix('s')} {name!r}", hint=nearest(name, names))
    return data_path(kind, f"{name}.yaml").read_text(encoding="utf-8")
