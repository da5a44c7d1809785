"""What an exporter is given: one job with its plan on a cluster, and how it is to be started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_bytes

from hulk.domain.cluster import Cluster, Machine
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan
from hulk.errors import InfeasibleError
from hulk.io.hosts_file import Host, HostList
from hulk.runtime.seats import Seating, seat
from hulk.runtime.settings import Settings

PORT = 29500
"""Where ranks meet, unless asked for another port: torchrun's own default."""


@dataclass(frozen=True)
class Scene:
    """One job, its plan and its machines.

    inputs     the files that a worker reads, by name (`hulk.io.bundle`)
    settings   how to train
    port       the port of the first machine on which ranks meet
    image      the container image of targets that run in containers
    number     counts the jobs that are exported together, from 0
    plain      start ranks one by one, without torchrun
    gpus       ask a scheduler for GPUs
    chance     random bytes, for keys
    """

    job: Job
    plan: JobPlan
    cluster: Cluster
    hosts: HostList = field(default_factory=HostList)
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    port: int = PORT
    image: str = "hulk"
    number: int = 0
    plain: bool = False
    gpus: bool = True
    chance: Callable[[int], bytes] = token_bytes

    @cached_property
    def seating(self) -> Seating:
        """Which rank is which GPU, for Hulk's own worker."""
        return seat(self.plan)

    @cached_property
    def ranks_on(self) -> Mapping[str, int]:
        """Ranks of each machine, in rank order."""
        counted: dict[str, int] = {}
        for each in self.seating.seats:
            counted[each.machine] = counted.get(each.machine, 0) + 1
        return counted

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """The machines in the order of their ranks."""
        return tuple(self.cluster.machine(name) for name in self.ranks_on)

    def host(self, machine: str) -> Host:
        """How a machine is reached."""
        return self.hosts.of(machine)

    @property
    def first(self) -> Host:
        """The machine that all others meet at."""
        return self.host(self.machines[0].name)


@dataclass(frozen=True)
class Group:
    """Machines that are alike: of one region, with one GPU type, as many GPUs of each in use. `nodes` are their places
    in rank order."""

    region: str
    gpu: str
    ranks: int
    nodes: tuple[int, ...]


def groups_of(scene: Scene) -> list[Group]:
    """The machines of a job by what they are, in rank order of their first."""
    found: dict[tuple[str, str, int], list[int]] = {}
    for node, machine in enumerate(scene.machines):
        found.setdefault((machine.region, machine.gpu.name, scene.ranks_on[machine.name]), []).append(node)
    return [Group(*key, tuple(nodes)) for key, nodes in found.items()]


def refuse(target: str, why: str) -> InfeasibleError:
    """The error of a target that cannot express a plan."""
    return InfeasibleError(f"{target}: {why}")
