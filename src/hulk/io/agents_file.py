"""Which machines `hulk probe` measures: those of an agents file, or of a hosts file, to start agents on over ssh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import FailFast, Field

from hulk.errors import InputError
from hulk.io.cluster_file import MAX_REGIONS, RegionEntry
from hulk.io.fields import Entry, Name, Text, validate
from hulk.io.hosts_file import Said, read_hosts, split_address
from hulk.io.yamlfile import Document, read_document

MAX_AGENTS = 2000


class Given(Said):
    """What is known of a machine before it is measured."""

    name: Name
    """The machine's name."""
    region: Name
    """The region it is in."""


class AgentEntry(Given):
    """A machine on which `hulk probe serve` runs."""

    address: Text
    """Where the agent listens, as all other machines reach it: a name or an address, with :port if it is not 5078."""


class AgentsFile(Entry):
    """The machines to measure, and where their agents listen."""

    hulk: Literal["agents/1"] = "agents/1"
    """The format and its version."""
    name: Name | None = None
    """The cluster's name."""
    regions: dict[Name, RegionEntry] = Field(default_factory=dict, max_length=MAX_REGIONS)
    """Where regions are, as in a cluster file; those that are not here have a name and no place."""
    agents: Annotated[list[AgentEntry], FailFast(), Field(min_length=1, max_length=MAX_AGENTS)]
    """The machines."""


@dataclass(frozen=True)
class Listed:
    """A machine to measure: what is said of it, host and port (0: any) for the others, and for ssh its destination."""

    given: Given
    host: str
    port: int
    ssh: str = ""
    bind: str = ""


@dataclass(frozen=True)
class Listing:
    """All machines to measure, where their regions are, and the cluster's name ("": not said)."""

    machines: Sequence[Listed]
    regions: dict[str, RegionEntry] = field(default_factory=dict)
    name: str = ""


def load_agents(path: str | Path, *, port: int) -> Listing:
    """The machines of an agents file; `port` is where agents listen that it gives no port for."""
    document = read_document(path)
    file = validate(document, AgentsFile)
    found = []
    for index, entry in enumerate(file.agents):
        where = document.where(("agents", index, "address"))
        host, at = split_address(entry.address, port, where)
        found.append(Listed(entry, host, at))
    _check(document, [each.given for each in found], "agents")
    return Listing(tuple(found), dict(file.regions), file.name or "")


def load_hosts(path: str | Path, *, port: int) -> Listing:
    """The machines of a hosts file, to start agents on over ssh; each must say its region."""
    document, file = read_hosts(path)
    if not 0 < len(file.hosts) <= MAX_AGENTS:
        raise InputError(f"{len(file.hosts)} hosts in this file; 1 to {MAX_AGENTS} can be measured", where=str(path))
    found = []
    for name, entry in file.hosts.items():
        where = document.where(("hosts", name))
        if entry.region is None:
            raise InputError("region: this key is missing", where=where, hint="say in which region the machine is")
        host, at = split_address(entry.host, port if entry.port is None else entry.port, where)
        said = {key: getattr(entry, key) for key in Said.model_fields}
        given = Given.model_construct(name=name, region=entry.region, **said)
        found.append(Listed(given, host, at, entry.ssh or host, entry.bind or ""))
    _check(document, [each.given for each in found], "hosts")
    regions = {name: RegionEntry(**entry.model_dump(exclude={"cloud"})) for name, entry in file.regions.items()}
    return Listing(tuple(found), regions, file.name or "")


def _check(document: Document, given: Sequence[Given], key: str) -> None:
    names: set[str] = set()
    regions = {each.region for each in given}
    for index, each in enumerate(given):
        where = document.where((key, index if key == "agents" else each.name))
        if each.name in names:
            raise InputError(f"machine {each.name!r} is given twice", where=where)
        if each.name in regions:
            hint = "rename one of them, so that it is clear which a link means"
            raise InputError(f"{each.name!r} is both a region and a machine", where=where, hint=hint)
        names.add(each.name)
