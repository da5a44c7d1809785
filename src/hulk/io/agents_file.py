"""Which machines `hulk probe` measures: the agents file (YAML), or a list of hosts to start agents on over ssh."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import FailFast, Field

from hulk.errors import InputError
from hulk.io.cluster_file import MAX_GPUS, MAX_REGIONS, Cards, Memory, Price, RegionEntry
from hulk.io.fields import Entry, Name, Text, validate, whole
from hulk.io.files import read_file
from hulk.io.yamlfile import Document, read_document

MAX_AGENTS = 2000
_MOST_BYTES = 2**20
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:%-]*")
_DESTINATION = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_][A-Za-z0-9._:%-]*")
_NUMBERS = ("gpus", "port")


class Given(Entry):
    """What a person says of a machine; it wins over what the agent finds."""

    name: Name
    """The machine's name."""
    region: Name
    """The region it is in."""
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


class AgentEntry(Given):
    """A machine on which `hulk probe serve` runs."""

    address: Text
    """Where the agent listens, as all other machines reach it: a name or an address, with :port if it is not 5078."""


class HostEntry(Given):
    """A machine on which ssh starts an agent."""

    ssh: Text
    """What ssh is told to connect to."""
    address: Text | None = None
    """Where all other machines reach it; the host of `ssh` if not given."""
    bind: Text | None = None
    """The address that the agent listens on, where it is not `address`."""


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


class HostsFile(Entry):
    """What a list of hosts says."""

    hosts: Annotated[list[HostEntry], FailFast(), Field(min_length=1, max_length=MAX_AGENTS)]
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
    """The machines of a list of hosts: a line each, `[user@]host key=value …`; # begins a comment."""
    document = _hosts_document(Path(path))
    file = validate(document, HostsFile)
    found = []
    for index, entry in enumerate(file.hosts):
        where = document.where(("hosts", index))
        if not _DESTINATION.fullmatch(entry.ssh):
            raise InputError(f"{entry.ssh!r} is nothing to connect to", where=where, hint="write [user@]host")
        host, at = split_address(entry.address or entry.ssh.rpartition("@")[2], port, where)
        bind = entry.bind or ""
        if bind and not _HOST.fullmatch(bind) and bind != "::":
            raise InputError(f"{bind!r} is no address", where=where)
        found.append(Listed(entry, host, at, entry.ssh, bind))
    _check(document, [each.given for each in found], "hosts")
    return Listing(tuple(found))


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


def _hosts_document(path: Path) -> Document:
    """The list of hosts as a document, so that what is wrong in it is told with its line."""
    raw = read_file(path, most=_MOST_BYTES)
    try:
        lines = raw.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError("the file is not UTF-8 text", where=str(path), hint="save it as UTF-8") from None
    hosts: list[dict[str, Any]] = []
    places: dict[tuple[int | str, ...], int] = {(): 1}
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            raise InputError("a quote that does not end", where=f"{path}:{number}") from None
        if words:
            places["hosts", len(hosts)] = number
            hosts.append(_host(words, f"{path}:{number}"))
    if not hosts:
        raise InputError("no host in this file", where=str(path), hint="write a line for each: user@host region=rome")
    return Document(str(path), {"hosts": hosts}, "", places)


def _host(words: list[str], where: str) -> dict[str, Any]:
    destination, *others = words
    host = destination.rpartition("@")[2]
    found: dict[str, Any] = {"ssh": destination, "name": host}
    seen = set()
    for word in others:
        key, equals, value = word.partition("=")
        if not equals or key in seen or key == "ssh":
            raise InputError(f"{word!r} is not of the form key=value, or is given twice", where=where)
        seen.add(key)
        found[key] = int(value) if key in _NUMBERS and value.isdecimal() and len(value) < 10 else value
    port = found.pop("port", None)
    if port is not None:
        found["address"] = f"{found.get('address', host)}:{port}"
    return found


def _check(document: Document, given: Sequence[Given], key: str) -> None:
    names: set[str] = set()
    regions = {each.region for each in given}
    for index, each in enumerate(given):
        if each.name in names:
            raise InputError(f"machine {each.name!r} is given twice", where=document.where((key, index)))
        if each.name in regions:
            hint = "rename one of them, so that it is clear which a link means"
            raise InputError(
                f"{each.name!r} is both a region and a machine", where=document.where((key, index)), hint=hint
            )
        names.add(each.name)
