"""Where the machines of a plan are: all of them this computer, or each of them somewhere that ssh reaches."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hulk.io.hosts_file import Host, HostList
from hulk.probe.control import ssh_command


class Site(Protocol):
    """How agents are started, and where machines find each other. `apart`: each machine is a computer of its own."""

    apart: bool

    def host(self, machine: str) -> Host:
        """How a machine is reached."""

    def command(self, machine: str) -> Sequence[str]:
        """What starts its agent: a process here, whose input and output are the agent's."""


class LocalSite:
    """All machines are this computer; traffic stays on the loopback interface."""

    apart = False

    def host(self, machine: str) -> Host:
        """Loopback, for every machine."""
        return Host("127.0.0.1", machine, machine, "lo")

    def command(self, machine: str) -> Sequence[str]:
        """An agent of this computer's own."""
        del machine
        return [sys.executable, "-m", "hulk.launch.agent"]


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

    def command(self, machine: str) -> Sequence[str]:
        """ssh, which never asks for anything."""
        return ssh_command(self.host(machine).login, self.hulk, self.config, verb="agent")
