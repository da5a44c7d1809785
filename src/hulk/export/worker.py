"""Hulk's own worker, as several targets start it."""

from __future__ import annotations

from hulk.cost.engine import HULK
from hulk.errors import InputError
from hulk.export.files import File, Files
from hulk.export.grid import check_options
from hulk.export.scene import Scene, refuse
from hulk.export.shell import word
from hulk.export.start import Node, start_files
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
    check_options(f"{target} starts Hulk's own worker, which", scene, HULK.offers)


def worker_arguments(scene: Scene) -> list[str]:
    """What follows the worker's name; files are beside the scripts."""
    changes: dict[str, object] = {}
    if "patience" not in scene.settings.model_fields_set:
        changes["patience"] = PATIENCE
    settings = scene.settings.model_copy(update=changes)
    return [*RunFiles(PLAN, CLUSTER, JOBS).argv(scene.job.name), *arguments_of(settings)]


def worker_nodes(scene: Scene) -> list[Node]:
    """The machines with their ranks. A worker knows which GPU is its own."""
    nodes, first = [], 0
    for machine, count in scene.ranks_on.items():
        nodes.append(Node(machine, tuple(range(first, first + count))))
        first += count
    return nodes


def program(scene: Scene) -> list[str]:
    """The worker with its arguments, quoted, and room for more."""
    return ["-m", MODULE, *(word(each) for each in worker_arguments(scene)), '"$@"']


def worker_files(scene: Scene) -> Files:
    """The scripts that start the worker. torchrun's store listens on every interface, the worker's own on its address
    alone: where the hosts file says which interface to use, ranks are started without torchrun."""
    one_by_one = scene.plain or scene.first.interface is not None
    return start_files(scene, worker_nodes(scene), program(scene), one_by_one=one_by_one)


def input_files(scene: Scene) -> Files:
    """The plan, the cluster and the job, as the worker reads them."""
    return {name: File(text) for name, text in scene.inputs.items()}
