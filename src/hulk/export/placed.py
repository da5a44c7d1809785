"""Starting workers where something else chooses the hosts: machines that are alike are groups, and a host knows its
group and its number there."""

from __future__ import annotations

from collections.abc import Sequence

from hulk.export.scene import Group, Scene
from hulk.export.shell import HEAD, command, label, word
from hulk.export.start import environment, torchrun
from hulk.export.worker import program

NODE = "node.sh"


def group_names(groups: Sequence[Group]) -> list[str]:
    """Short names that any system takes, each once: "1-rome-h100"."""
    return [f"g{number}-{label(group.region, dots=False)[:16].rstrip('-')}" for number, group in enumerate(groups)]


def node_script(scene: Scene, groups: Sequence[Group], address: str) -> str:
    """The script of every host: `node.sh GROUP NUMBER`. `address` of the first host is quoted already."""
    cases = "".join(
        f"    {word(f'{name}/{number}')}) node={node} ;;\n"
        for name, group in zip(group_names(groups), groups, strict=True)
        for number, node in enumerate(group.nodes)
    )
    ranks = "".join(
        f"    {word(f'{name}/')}*) ranks={group.ranks} ;;\n"
        for name, group in zip(group_names(groups), groups, strict=True)
    )
    count = str(len(scene.machines))
    words = torchrun(nodes=count, node='"$node"', ranks='"$ranks"', address=address, port=str(scene.port))
    return (
        f"{HEAD}# Starts the workers of a host: node.sh GROUP NUMBER. Written by `hulk export`.\n"
        'set -euo pipefail\ncd -- "$(dirname -- "${BASH_SOURCE[0]}")"\n'
        f'case "$1/$2" in\n{cases}    *) echo "no machine of the plan: $1 $2" >&2; exit 2 ;;\nesac\n'
        f'case "$1/" in\n{ranks}esac\nshift 2\n{environment()}exec {command([*words, *program(scene)])}\n'
    )
