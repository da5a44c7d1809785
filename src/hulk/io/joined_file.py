"""The file of machines that join a cluster: a machine, a list of machines, or a cluster file's `machines:` with the
`regions:` and `links:` that they bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hulk.domain.cluster import Cluster, Machine
from hulk.errors import InputError
from hulk.io.cluster_build import Part, build_cluster
from hulk.io.cluster_file import ClusterFile, load_parts
from hulk.io.fields import validate
from hulk.io.yamlfile import Document, read_document


def load_joined(
    paths: Sequence[str | Path], cluster: Cluster, cluster_name: str
) -> tuple[Cluster, tuple[Machine, ...]]:
    """The machines that join, and the cluster they join (its machines as they were) with the regions and links that
    come with them. `cluster_name` is the file or bundled name that `cluster` was read from."""
    return join([read_document(path) for path in paths], cluster, load_parts(cluster_name))


def join(documents: Sequence[Document], cluster: Cluster, base: Sequence[Part]) -> tuple[Cluster, tuple[Machine, ...]]:
    """The same for documents that are already here; `base` are the files that `cluster` was made of."""
    joined: dict[str, Machine] = {}
    for given in documents:
        document = _as_cluster(given)
        grown = build_cluster([*base, Part(document, validate(document, ClusterFile))], default_name=cluster.name)
        new = {machine.name: machine for machine in grown.machines if not cluster.has_machine(machine.name)}
        if twice := joined.keys() & new.keys():
            raise InputError(f"machine {min(twice)!r} joins twice", where=document.where())
        if not new:
            raise InputError("no machine in this file", where=document.where(), hint="write: machines: [{name: …}]")
        gpus = {gpu.name.lower(): gpu for gpu in cluster.gpus}
        for gpu in grown.gpus:
            if gpus.setdefault(gpu.name.lower(), gpu) != gpu:
                raise InputError(f"GPU {gpu.name!r} is another one elsewhere", where=document.where())
        joined |= new
        # What was known of the cluster stays as it was; only what is new is taken over.
        cluster = replace(
            cluster,
            gpus=tuple(gpus.values()),
            regions=(*cluster.regions, *(r for r in grown.regions if r not in cluster.regions)),
            region_links={**grown.region_links, **cluster.region_links},
            machine_links={
                **{ends: link for ends, link in grown.machine_links.items() if new.keys() & set(ends)},
                **cluster.machine_links,
            },
        )
    return cluster, tuple(joined.values())


def _as_cluster(document: Document) -> Document:
    """The document as a cluster file with machines."""
    value = document.value
    if isinstance(value, list):
        value = {"machines": value}
    elif isinstance(value, dict) and "machines" not in value:
        value = {"machines": [value]}
    if not isinstance(value, dict):
        raise InputError("expected machines", where=document.where(), hint="as in the machines of a cluster file")
    if "extends" in value:
        raise InputError("machines that join extend no other cluster", where=document.where(("extends",)))
    return replace(document, value=value)
