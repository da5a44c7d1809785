"""A job's input files, made to travel: whatever they refer to comes along, in one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan
from hulk.io.files import find_file
from hulk.io.plan_file import dump_plan
from hulk.io.yamlfile import read_document

PLAN, CLUSTER, JOBS, MODEL = "plan.json", "cluster.json", "jobs.json", "model.json"


def bundle(job: Job, plan: JobPlan, cluster: Cluster, cluster_file: str, jobs_file: str) -> dict[str, str]:
    """All files that a worker of one job reads, by name."""
    return {**plan_files(job.name, plan, cluster), **cluster_files(cluster_file), **job_files(jobs_file, job)}


def cluster_files(path_or_name: str) -> dict[str, str]:
    """A cluster file and the files that it extends, by their new names."""
    files: dict[str, str] = {}
    path, name = find_file(path_or_name, "clusters"), CLUSTER
    own = path.stem
    while True:
        value = {"name": own, **read_document(path).value}
        base = value.get("extends")
        if base is not None:
            value["extends"] = f"./base-{len(files) + 1}.json"
        files[name] = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        if base is None:
            return files
        path, name = find_file(base, "clusters", beside=path.parent), f"base-{len(files)}.json"


def job_files(path_or_name: str, job: Job) -> dict[str, str]:
    """A jobs file with one job alone, and the config of its model where that is a file."""
    entries = read_document(find_file(path_or_name, "jobs")).value["jobs"]
    entry = dict(next(entry for entry in entries if entry["name"] == job.name))
    files = {}
    if "/" in entry["model"] or entry["model"].endswith(".json"):
        entry |= {"model": f"./{MODEL}", "sequence": job.model.sequence}
        files[MODEL] = json.dumps(dict(job.model.config), indent=1) + "\n"
    return {JOBS: json.dumps({"hulk": "jobs/1", "jobs": [entry]}, indent=1, ensure_ascii=False) + "\n", **files}


def plan_files(name: str, plan: JobPlan, cluster: Cluster) -> Mapping[str, str]:
    """A plan file with one job alone."""
    return {PLAN: dump_plan(Plan({name: plan}), cluster=cluster)}
