"""JSON Schemas of the file formats, for editors and for other programs."""

from __future__ import annotations

from typing import Any

from hulk.errors import InputError, nearest
from hulk.io.agents_file import AgentsFile
from hulk.io.cluster_file import ClusterFile
from hulk.io.fields import Entry
from hulk.io.hosts_file import HostsFile
from hulk.io.jobs_file import JobsFile
from hulk.io.plan_file import PlanFile

_FORMATS: dict[str, type[Entry]] = {
    "cluster": ClusterFile,
    "jobs": JobsFile,
    "plan": PlanFile,
    "hosts": HostsFile,
    "agents": AgentsFile,
}


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a format: "cluster", "jobs", "plan", "hosts" or "agents"."""
    if kind not in _FORMATS:
        raise InputError(f"no file format {kind!r}", hint=nearest(kind, _FORMATS))
    body = _FORMATS[kind].model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body, "title": f"Hulk {kind} file"}
