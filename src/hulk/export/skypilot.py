"""SkyPilot: a job group, with a task for machines that are alike."""

from __future__ import annotations

from typing import Any

from hulk.export.files import Files, as_yaml, script
from hulk.export.placed import NODE, group_names, node_script
from hulk.export.scene import Group, Scene, groups_of, refuse
from hulk.export.shell import checked, label, word
from hulk.export.worker import check_worker, input_files

# SkyPilot's names of GPU types.
_GPUS = {
    "p100-16": "P100", "v100-16": "V100", "v100-32": "V100-32GB", "t4": "T4", "a100-40": "A100",
    "a100-80": "A100-80GB", "a100-pcie-80": "A100-80GB", "a10": "A10", "a10g": "A10G", "a40": "A40", "l4": "L4",
    "l40": "L40", "l40s": "L40S", "h100": "H100", "h100-pcie": "H100", "h200": "H200", "gh200-96": "GH200",
    "b200": "B200", "rtx-3090": "RTX3090", "rtx-4090": "RTX4090", "rtx-5090": "RTX5090", "rtx-a4000": "RTXA4000",
    "rtx-a5000": "RTXA5000", "rtx-a6000": "RTXA6000", "rtx-6000-ada": "RTX6000-Ada",
}  # fmt: skip
_HEAD = "# cd FOLDER && sky jobs launch group.yaml. Written by `hulk export`.\n"


def export(scene: Scene) -> Files:
    """The job group, what every node starts with, and the files that workers read."""
    check_worker("skypilot", scene)
    groups, name = groups_of(scene), label(scene.job.name, dots=False)
    names = group_names(groups)
    header = {"name": name, "execution": "parallel"}
    tasks = [_task(scene, group, own, several=len(groups) > 1) for own, group in zip(names, groups, strict=True)]
    # The name that SkyPilot gives the first node of the first task, which has rank 0.
    node = node_script(scene, groups, word(f"{names[0]}-0.{name}"))
    return {**input_files(scene), NODE: script(node), "group.yaml": as_yaml(header, *tasks, head=_HEAD)}


def _task(scene: Scene, group: Group, own: str, *, several: bool) -> dict[str, Any]:
    if group.gpu not in _GPUS:
        raise refuse("skypilot", f"GPU type {group.gpu!r} of region {group.region!r} has no name there")
    resources: dict[str, Any] = {"accelerators": f"{_GPUS[group.gpu]}:{group.ranks}"}
    infra = scene.hosts.regions.get(group.region)
    if infra is not None:
        resources["infra"] = infra
    elif several:
        why = f"where region {group.region!r} is, nobody says; give it in --hosts: `regions: {{{group.region}: aws/…}}`"
        raise refuse("skypilot", why)
    if scene.image != "hulk":
        resources["image_id"] = f"docker:{checked(scene.image, 'the image')}"
    return {
        "name": own,
        "num_nodes": len(group.nodes),
        "resources": resources,
        "workdir": ".",
        "setup": 'python3 -c "import hulk.runtime"',
        "run": f'bash {NODE} {own} "$SKYPILOT_NODE_RANK"',
    }
