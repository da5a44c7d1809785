"""The hosts file: where the machines of a cluster are found. A plan needs none; what starts it does.

hosts:
  rome-1: 10.0.0.1
  rome-2: {address: 10.0.0.2, ssh: me@gateway-7, node: gpu017, interface: eth1}
regions:
  rome: aws/eu-south-1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hulk.domain.cluster import Cluster
from hulk.errors import InputError, nearest
from hulk.io.fields import Entry, Name, Text, validate
from hulk.io.yamlfile import read_document

# Nothing that a shell, ssh or a URL would take for something else; no leading "-", which would be an option.
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[][A-Za-z0-9_.:%\[\]-]*$", max_length=253)]
Login = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[][A-Za-z0-9_.:@%\[\]-]*$", max_length=253)]
Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$", max_length=15)]
Infra = Annotated[str, Field(pattern=r"^[A-Za-z0-9*][A-Za-z0-9*_./-]*$", max_length=200)]


@dataclass(frozen=True, slots=True)
class Host:
    """How a machine is reached.

    address     where other machines reach it
    login       what `ssh` is given
    node        its name in Slurm, Kubernetes or Ray
    interface   the network interface with that address; None: let the libraries find it
    """

    address: str
    login: str
    node: str
    interface: str | None = None


@dataclass(frozen=True)
class HostList:
    """Where machines are; those that are not listed are reached by their own name. `regions`: what a cloud calls them,
    such as "aws/us-east-1"."""

    hosts: Mapping[str, Host] = field(default_factory=dict)
    regions: Mapping[str, str] = field(default_factory=dict)

    def of(self, machine: str) -> Host:
        """How a machine is reached."""
        return self.hosts.get(machine) or Host(machine, machine, machine)


class HostEntry(Entry):
    """How one machine is reached; an address alone stands for one with nothing else."""

    address: Address
    """Where other machines reach it: an IP address, or a name that all of them resolve."""
    ssh: Login | None = None
    """What ssh is given (user@host, or a name of ssh's own config); the address if not given."""
    node: Name | None = None
    """Its name in Slurm, Kubernetes or Ray; the machine's own if not given."""
    interface: Interface | None = None
    """The network interface that its traffic goes through."""

    @model_validator(mode="before")
    @classmethod
    def _address_alone(cls, value: Any) -> Any:
        return {"address": value} if isinstance(value, str) else value


class HostsFile(Entry):
    """Where the machines of a cluster are found."""

    hulk: Literal["hosts/1"] = "hosts/1"
    """The format and its version."""
    hosts: dict[Name, Annotated[HostEntry, Field()]] = Field(default_factory=dict)
    """Machines by name."""
    regions: dict[Name, Infra] = Field(default_factory=dict)
    """What a cloud calls regions: `aws/us-east-1`."""
    about: Text = ""
    """Anything to keep in mind."""


def load_hosts(path: str | Path, cluster: Cluster) -> HostList:
    """The hosts of a file; InputError for anything wrong in it, and for machines that the cluster does not have."""
    document = read_document(path)
    file = validate(document, HostsFile)
    for name in file.hosts:
        if not cluster.has_machine(name):
            known = (machine.name for machine in cluster.machines)
            where = document.where(("hosts", name))
            raise InputError(f"no machine {name!r} in cluster {cluster.name!r}", where=where, hint=nearest(name, known))
    for name in file.regions:
        cluster.region(name)
    hosts = {
        name: Host(entry.address, entry.ssh or entry.address, entry.node or name, entry.interface)
        for name, entry in file.hosts.items()
    }
    return HostList(hosts, dict(file.regions))
