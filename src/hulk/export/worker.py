"""Hulk's own worker, as several targets start it."""

from __future__ import annotations

from collections.abc import Iterator

from hulk.cost.engine import HULK
from hulk.domain.options import SPACE, normal
from hulk.errors import InputError
from hulk.export.files import File, Files, script
from hulk.export.scene import Scene, refuse
from hulk.export.shell import HEAD, command, file_name, host_name, word
from hulk.io.bundle import CLUSTER, JOBS, PLAN
from hulk.runtime.options import arguments_of
from hulk.runtime.runnable import check_runnable
from hulk.runtime.settings import RunFiles

PATIENCE = 1800.0
"""Seconds that one exchange may take where nobody says otherwise: no step is predicted here."""
MODULE = "hulk.runtime.worker"


def check_worker(target: str, scene: Scene) -> None:
    """Refuse a plan that Hulk's worker cannot run."""
    try:
        check_runnable(scene.job, scene.plan, scene.settings)
    except InputError as error:
        raise error if scene.settings.data is None else refuse(target, str(error)) from None
    options = normal(scene.plan.options, scene.plan.shape)
    for choice in SPACE:
        value = getattr(options, choice.name)
        if value not in HULK.offers.get(choice.name, (value,)):
            raise refuse(target, f"Hulk's worker, which it starts, does not do `{choice.name}: {value}`")


def worker_arguments(scene: Scene) -> list[str]:
    """What follows the worker's name; files are beside the scripts."""
    changes: dict[str, object] = {}
    if "patience" not in scene.settings.model_fields_set:
        changes["patience"] = PATIENCE
    settings = scene.settings.model_copy(update=changes)
    return [*RunFiles(PLAN, CLUSTER, JOBS).argv(scene.job.name), *arguments_of(settings)]


def torchrun(*, nodes: str, node: str, ranks: str, address: str, port: str) -> list[str]:
    """The words of torchrun for one machine, all quoted already."""
    return [
        *('"${PYTHON:-python3}"', "-m", "torch.distributed.run", "--nnodes", nodes, "--node-rank", node),
        *("--nproc-per-node", ranks, "--master-addr", address, "--master-port", port),
    ]


def node_script(scene: Scene, node: int, program: list[str]) -> str:
    """The script of one machine: torchrun with its ranks of a program, whose words are quoted."""
    machine = scene.machines[node]
    words = torchrun(
        nodes=str(len(scene.machines)),
        node=str(node),
        ranks=str(scene.ranks_on[machine.name]),
        address=word(host_name(scene.first.address)),
        port=str(scene.port),
    )
    return (
        f"{HEAD}# Starts the workers of machine {node + 1} of {len(scene.machines)}. Written by `hulk export`.\n"
        'set -euo pipefail\ncd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."\n'
        f"{environment(scene.host(machine.name).interface)}"
        f"exec {command([*words, *program])}\n"
    )


def environment(interface: str | None) -> str:
    """Lines that set what the libraries read from the environment."""
    lines = 'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"\n'
    if interface is not None:
        name = word(host_name(interface))
        lines += f"export GLOO_SOCKET_IFNAME={name} NCCL_SOCKET_IFNAME={name}\n"
    return lines


def program(scene: Scene) -> list[str]:
    """The worker with its arguments, quoted, and room for more."""
    return ["-m", MODULE, *(word(each) for each in worker_arguments(scene)), '"$@"']


def machine_path(machine: str) -> str:
    """Where a machine's own script is."""
    return f"machines/{file_name(machine)}.sh"


def machine_scripts(scene: Scene) -> Iterator[tuple[str, File]]:
    """A script for each machine."""
    words = program(scene)
    for node, machine in enumerate(scene.machines):
        yield machine_path(machine.name), script(node_script(scene, node, words))


def input_files(scene: Scene) -> Files:
    """The plan, the cluster and the job, as the worker reads them."""
    return {name: File(text) for name, text in scene.inputs.items()}
