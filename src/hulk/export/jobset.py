"""Kubernetes JobSet: a replicated job for machines that are alike, and a config map with what they read."""

from __future__ import annotations

import re
from typing import Any

from hulk.errors import InputError
from hulk.export.files import Files, as_yaml
from hulk.export.placed import NODE, group_names, node_script
from hulk.export.scene import Group, Scene, groups_of, refuse
from hulk.export.shell import checked, label, word
from hulk.export.worker import check_worker

MOST_BYTES = 1_000_000
"""Of a config map: etcd takes a little more than a MiB."""
GPU_LABEL = "hulk/gpu"
"""The label of nodes that says which GPU type they have, by Hulk's name."""
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_HEAD = "# kubectl apply -f jobset.yaml. Written by `hulk export`.\n"


def export(scene: Scene) -> Files:
    """One file with the config map and the JobSet."""
    check_worker("jobset", scene)
    groups, name = groups_of(scene), label(scene.job.name, dots=False)
    names = group_names(groups)
    # The name that JobSet gives the first pod of the first group, which has rank 0.
    first = f"{name}-{names[0]}-0-0.{name}"
    data = {**scene.inputs, NODE: node_script(scene, groups, word(first))}
    size = sum(len(text.encode()) for text in data.values())
    if size > MOST_BYTES:
        raise refuse("jobset", f"plan and cluster have {size:,} bytes; a config map takes {MOST_BYTES:,}")
    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-plan"}, "data": data}
    jobs = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": {"maxRestarts": 0},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [
                {"name": own, "replicas": 1, "template": _template(scene, group, own, name)}
                for own, group in zip(names, groups, strict=True)
            ],
        },
    }
    return {"jobset.yaml": as_yaml(files, jobs, head=_HEAD)}


def _template(scene: Scene, group: Group, own: str, name: str) -> dict[str, Any]:
    """The job of one group: a pod a machine."""
    container = {
        "name": "worker",
        "image": checked(scene.image, "the image"),
        "command": ["bash", "-c", f'exec bash /hulk/{NODE} {own} "$JOB_COMPLETION_INDEX"'],
        "resources": {"limits": {"nvidia.com/gpu": group.ranks}},
        "ports": [{"containerPort": scene.port, "protocol": "TCP"}],
        "volumeMounts": [{"name": "plan", "mountPath": "/hulk"}, {"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    apart = {
        "labelSelector": {"matchLabels": {"hulk/group": f"{name}-{own}"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        **_where(scene, group, {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}),
        "containers": [container],
        "volumes": [
            {"name": "plan", "configMap": {"name": f"{name}-plan"}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {
        "spec": {
            "completionMode": "Indexed",
            "completions": len(group.nodes),
            "parallelism": len(group.nodes),
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"hulk/group": f"{name}-{own}"}}, "spec": pod},
        }
    }


def _where(scene: Scene, group: Group, apart: dict[str, Any]) -> dict[str, Any]:
    """Which nodes a group's pods go to, one pod each: those that the hosts file names, or those of its region and GPU
    type."""
    machines = [scene.machines[node].name for node in group.nodes]
    if all(machine in scene.hosts.hosts for machine in machines):
        nodes = [_value(scene.host(machine).node) for machine in machines]
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]}]
        chosen = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return {"affinity": {"nodeAffinity": chosen, "podAntiAffinity": apart}}
    region = scene.hosts.regions.get(group.region, group.region).rpartition("/")[2]
    return {
        "nodeSelector": {"topology.kubernetes.io/region": _value(region), GPU_LABEL: _value(group.gpu)},
        "affinity": {"podAntiAffinity": apart},
    }


def _value(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise InputError(f"{text!r} cannot be the value of a label in Kubernetes", hint="say what it is with --hosts")
    return text
