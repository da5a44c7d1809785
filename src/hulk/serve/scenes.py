"""Requests become values: clusters and jobs of bundled names or of texts, never of paths that a request names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster, change_cluster, pair
from hulk.domain.job import Job
from hulk.domain.plan import Plan, machines_used
from hulk.errors import InputError, nearest
from hulk.io.cluster_build import Part, build_cluster
from hulk.io.cluster_file import ClusterFile, load_parts
from hulk.io.fields import validate
from hulk.io.files import bundled_names, data_path
from hulk.io.jobs_file import JobsFile, read_jobs
from hulk.io.joined_file import join
from hulk.io.plan_file import read_plan
from hulk.io.profiles import bundled_compute
from hulk.io.settings import apply_settings
from hulk.io.yamlfile import Document, parse_document, read_document
from hulk.serve.limits import Limits
from hulk.serve.messages import Change, Recipe, Source
from hulk.units import Dimension, written
from hulk.view.build import Shown

_NOT_PATHS = "the page reads bundled files and texts, not paths"


def document_of(source: Source, kind: str) -> Document:
    """The document of a source; `kind` is "clusters" or "jobs"."""
    if source.name is not None:
        names = bundled_names(kind)
        if source.name not in names:
            what = kind.removesuffix("s")
            raise InputError(f"no bundled {what} {source.name!r}", hint=nearest(source.name, names))
        return read_document(data_path(kind, f"{source.name}.yaml"))
    return text_document(source.text or "", name="cluster" if kind == "clusters" else "jobs")


def text_document(text: str, *, name: str) -> Document:
    """A text as YAML, or as JSON where it is that: a mapping of YAML may begin with a brace as well."""
    is_json = text.lstrip()[:1] in ("{", "[")
    if is_json:
        try:
            json.loads(text)
        except ValueError:
            is_json = False
        except RecursionError:
            is_json = True  # read again, it is refused in words
    return parse_document(text, name=name, is_json=is_json)


def cluster_parts(source: Source) -> list[Part]:
    """The files of a cluster, the base first. A text may extend bundled clusters only."""
    if source.name is not None:
        document_of(source, "clusters")
        return load_parts(source.name)
    document = document_of(source, "clusters")
    file = validate(document, ClusterFile)
    if file.extends is None:
        return [Part(document, file)]
    if file.extends not in bundled_names("clusters"):
        raise InputError(f"cannot extend {file.extends!r}", where=document.where(("extends",)), hint=_NOT_PATHS)
    return [*load_parts(file.extends), Part(document, file)]


def jobs_of(source: Source) -> tuple[Job, ...]:
    """The jobs of a source; models by the catalogue's names only."""
    document = document_of(source, "jobs")
    for index, entry in enumerate(validate(document, JobsFile).jobs):
        if "/" in entry.model or "\\" in entry.model or entry.model.endswith(".json"):
            where = document.where(("jobs", index, "model"))
            raise InputError(
                f"model {entry.model!r} is a path", where=where, hint=f"{_NOT_PATHS}; see hulk list models"
            )
    return read_jobs(document, folder=Path("/nonexistent"))


def cluster_of(recipe: Recipe, limits: Limits) -> Cluster:
    """The cluster as a recipe has it: what was read, who joined, what was set, who is lost."""
    parts = cluster_parts(recipe.cluster)
    count = sum(entry.count for part in parts for entry in part.file.machines)
    if count > limits.machines:
        raise InputError(f"{count:,} machines, and the page takes up to {limits.machines:,}", hint="use hulk plan")
    cluster = build_cluster(parts, default_name=recipe.cluster.name or "cluster")
    if recipe.joined:
        documents = [text_document(text, name="joined") for text in recipe.joined]
        cluster, machines = join(documents, cluster, parts)
        cluster = replace(cluster, machines=(*cluster.machines, *machines))
    if recipe.settings:
        cluster = apply_settings(cluster, recipe.settings)[0]
    return change_cluster(cluster, recipe.lost, ())


@lru_cache(maxsize=16)
def read_recipe(recipe: Recipe, limits: Limits) -> tuple[Cluster, tuple[Job, ...]]:
    """The cluster and the jobs; kept, since the same ones are asked for again and again."""
    return cluster_of(recipe, limits), jobs_of(recipe.jobs)


def shown_of(recipe: Recipe, plan: Mapping[str, Any], limits: Limits) -> Shown:
    """A plan file's JSON with what it refers to, checked."""
    cluster, jobs = read_recipe(recipe, limits)
    loaded = read_plan(Document("plan", dict(plan), "{}"))
    check_plan(loaded, cluster, jobs)
    return Shown(loaded, cluster, jobs, bundled_compute())


@dataclass(frozen=True)
class Changed:
    """What changes come to: the recipe from now on; machines that were lost or moved (to a job, or to nobody)."""

    recipe: Recipe
    lost: tuple[str, ...]
    moves: Mapping[str, str | None]


def changed(recipe: Recipe, changes: Sequence[Change], cluster: Cluster) -> Changed:
    """Changes of a cluster that a recipe stands for."""
    settings, joined, lost = list(recipe.settings), list(recipe.joined), list[str]()
    moves: dict[str, str | None] = {}
    for change in changes:
        if change.kind == "link":
            settings.append(_link_setting(change, cluster))
        elif change.kind == "join":
            joined.append(change.text or "")
        elif change.kind == "lose":
            lost.append(cluster.machine(change.machine or "").name)
        else:
            moves[change.machine or ""] = change.job
    lost = list(dict.fromkeys(lost))
    if both := moves.keys() & set(lost):
        raise InputError(f"{min(both)!r} cannot be lost and moved at once")
    after = recipe.model_copy(
        update={"settings": tuple(settings), "joined": tuple(joined), "lost": (*recipe.lost, *lost)}
    )
    return Changed(after, tuple(lost), moves)


def _link_setting(change: Change, cluster: Cluster) -> str:
    """A changed link as `--set` has it."""
    a, b = cluster.region(change.a or "").name, cluster.region(change.b or "").name
    if change.setting is not None:
        return f"link {a} {b} {change.setting}"
    link = cluster.region_links[pair(a, b)]
    if link.blocked:
        raise InputError(f"the link between {a} and {b} is blocked", hint="give its latency and its bandwidth")
    return f"link {a} {b} bandwidth={written(link.bandwidth * (change.factor or 1.0), Dimension.BANDWIDTH)}"


def strangers(plan: Plan, cluster: Cluster) -> set[str]:
    """Machines of a cluster that a plan does not know: they joined after it was made."""
    return {machine.name for machine in cluster.machines} - machines_used(plan.jobs.values()).union(plan.idle)
