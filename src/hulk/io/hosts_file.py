"""The hosts file: the machines of a cluster, where they are found, and what is said of them. `hulk probe` measures
them, `hulk export` and `hulk launch` start plans on them.

hosts:
  rome-1: 10.0.0.1
  rome-2: {address: 10.0.0.2, ssh: me@gateway-7, node: gpu017, interface: eth1, region: rome}
regions:
  rome: aws/eu-south-1

Or a line for each machine (`hulk.io.hosts_lines`):

me@gateway-7 name=rome-2 address=10.0.0.2 region=rome
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hulk.domain.cluster import Cluster
from hulk.errors import InputError, nearest
from hulk.io.cluster_file import MAX_GPUS, Cards, Memory, Price, RegionEntry
from hulk.io.fields import Entry, Name, Text, validate, whole
from hulk.io.files import read_file
from hulk.io.hosts_lines import hosts_document
from hulk.io.yamlfile import Document, read_document

# Nothing that a shell, ssh or a URL would take for something else; no leading "-", which would be an option.
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[][A-Za-z0-9_.:%\[\]-]*$", max_length=253)]
Login = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[][A-Za-z0-9_.:@%\[\]-]*$", max_length=253)]
Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$", max_length=15)]
Infra = Annotated[str, Field(pattern=r"^[A-Za-z0-9*][A-Za-z0-9*_./-]*$", max_length=200)]

MAX_HOSTS = 200_000
_MOST_BYTES = 16 * 2**20
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:%-]*")
_YAML = re.compile(r"^(?:hulk|hosts|regions|about|\{)", re.M)


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


class Said(Entry):
    """What a person says of a machine; it wins over what `hulk probe` finds."""

    gpu: Text | None = None
    """The GPU type, as `hulk list gpus` lists them."""
    gpus: Annotated[int, whole(1, MAX_GPUS)] | None = None
    """How many."""
    memory: Memory | None = None
    """Memory of one GPU."""
    network: Cards | None = None
    """What the network card does, per direction."""
    price: Price | None = None
    """Price of the whole machine."""


class HostEntry(Said):
    """How one machine is reached; an address alone stands for one with nothing else."""

    address: Address | None = None
    """Where other machines reach it: an IP address, or a name that all of them resolve; the host of `ssh` if not
    given."""
    ssh: Login | None = None
    """What ssh is given (user@host, or a name of ssh's own config); the address if not given."""
    node: Name | None = None
    """Its name in Slurm, Kubernetes or Ray; the machine's own if not given."""
    interface: Interface | None = None
    """The network interface that its traffic goes through."""
    region: Name | None = None
    """The region it is in; only `hulk probe` needs it."""
    port: Annotated[int, whole(0, 65535)] | None = None
    """Where the agent of `hulk probe` listens; 0: on a free port."""
    bind: Address | Literal["::"] | None = None
    """The address that the agent of `hulk probe` listens on, where it is not `address`."""

    @model_validator(mode="before")
    @classmethod
    def _address_alone(cls, value: Any) -> Any:
        return {"address": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _somewhere(self) -> HostEntry:
        if self.address is None and self.ssh is None:
            raise PydanticCustomError("nowhere", "an address or what ssh connects to is needed", {"at": "address"})
        return self

    @property
    def host(self) -> str:
        """Where other machines reach it, which may have a port in it."""
        return self.address or str(self.ssh).rpartition("@")[2]


class HostRegion(RegionEntry):
    """A region as a cluster file has it, and its name in a cloud, which alone stands for one with nothing else."""

    cloud: Infra | None = None
    """What a cloud calls it: `aws/us-east-1`."""

    @model_validator(mode="before")
    @classmethod
    def _cloud_alone(cls, value: Any) -> Any:
        return {"cloud": value} if isinstance(value, str) else value


class HostsFile(Entry):
    """The machines of a cluster, and where they are found."""

    hulk: Literal["hosts/1"] = "hosts/1"
    """The format and its version."""
    name: Name | None = None
    """The cluster's name, for `hulk probe`."""
    hosts: dict[Name, Annotated[HostEntry, Field()]] = Field(default_factory=dict, max_length=MAX_HOSTS)
    """Machines by name."""
    regions: dict[Name, Annotated[HostRegion, Field()]] = Field(default_factory=dict)
    """Where regions are, and what a cloud calls them."""
    about: Text = ""
    """Anything to keep in mind."""


def read_hosts(path: str | Path) -> tuple[Document, HostsFile]:
    """A hosts file, whichever its form is, and the document that it was read from; InputError for anything wrong."""
    path = Path(path)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        document = read_document(path)
    else:
        try:
            text = read_file(path, most=_MOST_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise InputError("the file is not UTF-8 text", where=str(path), hint="save it as UTF-8") from None
        document = read_document(path) if _YAML.match(text.lstrip()) else hosts_document(text, str(path))
    return document, validate(document, HostsFile)


def load_hosts(path: str | Path, cluster: Cluster) -> HostList:
    """The hosts of a file; InputError for anything wrong in it, and for machines that the cluster does not have."""
    document, file = read_hosts(path)
    for name in file.hosts:
        if not cluster.has_machine(name):
            known = (machine.name for machine in cluster.machines)
            where = document.where(("hosts", name))
            raise InputError(f"no machine {name!r} in cluster {cluster.name!r}", where=where, hint=nearest(name, known))
    for name in file.regions:
        cluster.region(name)
    hosts = {}
    for name, entry in file.hosts.items():
        address, _ = split_address(entry.host, 0, document.where(("hosts", name)))
        hosts[name] = Host(address, entry.ssh or address, entry.node or name, entry.interface)
    return HostList(hosts, {name: entry.cloud for name, entry in file.regions.items() if entry.cloud})


def split_address(text: str, port: int, where: str) -> tuple[str, int]:
    """Host and port of "host", "host:port", "[v6]:port" or a plain IPv6 address."""
    found = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]+)\](?::([0-9]{1,5}))?", text)
    if found is None and text.count(":") <= 1:
        found = re.fullmatch(r"([^:\s]+)(?::([0-9]{1,5}))?", text)
    host, at = (found[1], int(found[2] or port)) if found else (text, port)
    if not (_HOST.fullmatch(host) or (":" in host and re.fullmatch(r"[0-9A-Fa-f:.]+", host))) or at > 65535:
        raise InputError(
            f"{text!r} is no address", where=where, hint="write a name or an address, with :port if needed"
        )
    return host, at
