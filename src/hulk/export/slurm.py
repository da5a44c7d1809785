"""Slurm: one heterogeneous job, with a component for all machines that are alike."""

from __future__ import annotations

import re

from hulk.errors import InputError
from hulk.export.files import Files, script
from hulk.export.scene import Group, Scene, groups_of, refuse
from hulk.export.shell import HEAD, label, word
from hulk.export.start import machine_path
from hulk.export.worker import check_worker, input_files, worker_files

MOST_COMPONENTS = 128
"""Components of a heterogeneous job (MAX_HET_JOB_COMPS in Slurm's sources)."""
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_START = """\
# Submit it in this folder: cd FOLDER && sbatch job.sbatch. Partition, account and time limit: SBATCH_PARTITION and its
# kin in the environment, or further #SBATCH lines for each component. Written by `hulk export`.
set -euo pipefail
cd -- "$SLURM_SUBMIT_DIR"
[ -e node.sh ] || {{ echo "submit this in its own folder: cd FOLDER && sbatch job.sbatch" >&2; exit 2; }}
srun{groups} --kill-on-bad-exit=1 --cpu-bind=none bash node.sh "$@"
"""


def export(scene: Scene) -> Files:
    """The job file, what every node starts with, and the machines' scripts."""
    check_worker("slurm", scene)
    nodes = {machine.name: node_name(scene.host(machine.name).node) for machine in scene.machines}
    if len(set(nodes.values())) < len(nodes):
        raise InputError("two machines have the same `node` in the hosts file", hint="Slurm needs one for each")
    groups = groups_of(scene)
    if len(groups) > MOST_COMPONENTS:
        why = f"the plan uses {len(groups)} kinds of machines; a job has at most {MOST_COMPONENTS} components"
        raise refuse("slurm", why)
    head = f"#SBATCH --job-name={label(scene.job.name)}\n"
    parts = [_component(scene, group, nodes) for group in groups]
    several = f" --het-group=0-{len(groups) - 1}" if len(groups) > 1 else ""
    cases = "".join(f"    {word(node)}) script={word(machine_path(name))} ;;\n" for name, node in nodes.items())
    node = (
        f"{HEAD}# What every node of the job starts with: its own machine's script. Written by `hulk export`.\n"
        f'set -euo pipefail\ncase "$SLURMD_NODENAME" in\n{cases}'
        '    *) echo "no machine of the plan: $SLURMD_NODENAME" >&2; exit 2 ;;\nesac\nexec bash -- "$script" "$@"\n'
    )
    scripts = worker_files(scene)
    return {
        **input_files(scene),
        **{name: file for name, file in scripts.items() if name != "all.sh"},
        "node.sh": script(node),
        "job.sbatch": script(HEAD + head + "#SBATCH hetjob\n".join(parts) + _START.format(groups=several)),
    }


def node_name(name: str) -> str:
    """A name as Slurm has nodes; InputError where it cannot be one."""
    if not _NODE.fullmatch(name):
        raise InputError(f"{name!r} cannot be the name of a node in Slurm", hint="give `node` in the hosts file")
    return name


def _component(scene: Scene, group: Group, nodes: dict[str, str]) -> str:
    """The lines of machines that are alike. A machine whose GPUs are all in use is asked for as a whole: its CPUs come
    along then."""
    machines = [scene.machines[node] for node in group.nodes]
    whole = scene.gpus and all(machine.gpus == group.ranks for machine in machines)
    gpus = f"--gpus-per-node={group.ranks} " if scene.gpus else ""
    rest = "--exclusive" if whole else f"--cpus-per-task={group.ranks}"
    return (
        f"#SBATCH --nodes={len(machines)} --ntasks-per-node=1 {gpus}{rest}\n"
        f"#SBATCH --nodelist={','.join(nodes[machine.name] for machine in machines)}\n"
    )
