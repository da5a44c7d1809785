"""What a plan needs of each of its machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hulk.cost.moving import layer_state_bytes
from hulk.domain.cluster import Machine
from hulk.export import Scene
from hulk.export.pairs import pairs_of
from hulk.runtime.progress import Watched
from hulk.runtime.settings import Settings


@dataclass
class Need:
    """What is needed of one machine, bytes.

    gpus          by the number of each GPU that the plan uses, what it must hold
    checkpoint    what a checkpoint takes on the disk
    ports         on which ranks of a job meet here, by job
    peers         the machines that it exchanges anything with
    """

    machine: Machine
    gpus: dict[int, float] = field(default_factory=dict)
    checkpoint: float = 0.0
    ports: dict[str, int] = field(default_factory=dict)
    peers: set[str] = field(default_factory=set)


def needs_of(scenes: Sequence[Scene], watched: Mapping[str, Watched]) -> dict[str, Need]:
    """By machine, what all jobs together need of it."""
    found: dict[str, Need] = {}
    for scene in scenes:
        seating, memory = scene.seating, watched[scene.job.name].memory
        for seat in seating.seats:
            need = found.setdefault(seat.machine, Need(scene.cluster.machine(seat.machine)))
            need.gpus[seat.gpu] = need.gpus.get(seat.gpu, 0.0) + memory[seat.pipeline, seat.stage]
        first = scene.machines[0].name
        found[first].ports[scene.job.name] = scene.port
        if scene.settings.checkpoints is not None:
            found[first].checkpoint += checkpoint_bytes(scene)
        for a, b in pairs_of(scene):
            found[b].peers.add(a)
    return found


def checkpoint_bytes(scene: Scene) -> float:
    """Weights and optimizer state of the whole model."""
    return sum(sum(layer_state_bytes(scene.job, layer)) for layer in range(len(scene.job.model.layers)))


def inputs_of(scenes: Sequence[Scene]) -> Settings:
    """The settings that name the files and folders which must be on every machine; they are the same for all jobs but
    for the folder of checkpoints, which is below the same one."""
    settings = scenes[0].settings
    return (
        settings
        if settings.checkpoints is None
        else settings.model_copy(update={"checkpoints": settings.checkpoints.parent})
    )
