"""Where the machines of a plan are: all of them this computer, or each of them somewhere that ssh reaches. Nodes of
Ray: `hulk.launch.ray`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from hulk.io.hosts_file import Host, HostList
from hulk.launch.needs import Need
from hulk.probe.control import Piped, ssh_command


class AgentLine(Protocol):
    """The line to an agent, which ends with it. WireError where nothing comes."""

    def greeting(self, seconds: float) -> dict[str, Any]:
        """Wait until the agent is there; its first words."""

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message."""

    def why(self) -> str:
        """Why it has ended, as far as it said so."""

    def close(self, seconds: float) -> None:
        """End it: it may take so long, and is made to then."""


class Site(Protocol):
    """How agents are started, and where machines find each other. `apart`: each machine is a computer of its own."""

    apart: bool

    def host(self, machine: str) -> Host:
        """How a machine is reached."""

    def line(self, machine: str) -> AgentLine:
        """Start its agent. WireError where that cannot be done."""

    def needed(self, need: Need) -> Need:
        """What a machine needs, with GPUs numbered as its agent sees them."""


class LocalSite:
    """All machines are this computer; traffic stays on the loopback interface."""

    apart = False

    def host(self, machine: str) -> Host:
        """Loopback, for every machine."""
        return Host("127.0.0.1", machine, machine, "lo")

    def line(self, machine: str) -> AgentLine:
        """An agent of this computer's own."""
        del machine
        return Piped([sys.executable, "-m", "hulk.launch.agent"])

    def needed(self, need: Need) -> Need:
        """As the plan has it."""
        return need


@dataclass(frozen=True)
class SshSite:
    """Machines that ssh reaches. `hulk`: how hulk is called there; `config`: a configuration for ssh."""

    hosts: HostList
    hulk: str = "hulk"
    config: str | None = None
    apart = True

    def host(self, machine: str) -> Host:
        """As the hosts file says."""
        return self.hosts.of(machine)

    def line(self, machine: str) -> AgentLine:
        """By ssh, which never asks for anything."""
        return Piped(ssh_command(self.host(machine).login, self.hulk, self.config, verb="agent"))

    def needed(self, need: Need) -> Need:
        """As the plan has it."""
        return need
