"""Where workers run: on this computer, or on machines that something else provides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Hosts(Protocol):
    """The machines of a plan as places to start processes on. A command starts on this computer's side and ends when
    the process on the machine ends; its output comes back through it."""

    def address(self, machine: str) -> str:
        """The address other machines reach this one at."""

    def interface(self, machine: str) -> str | None:
        """The network interface with that address, as the machine itself names it; None: let the libraries find it."""

    def command(self, machine: str, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` on the machine."""


class LocalHosts:
    """Every machine is this computer; traffic stays on the loopback interface."""

    def address(self, machine: str) -> str:
        """Loopback, for every machine."""
        del machine
        return "127.0.0.1"

    def interface(self, machine: str) -> str | None:
        """The loopback interface."""
        del machine
        return "lo"

    def command(self, machine: str, argv: Sequence[str]) -> list[str]:
        """The arguments as they are."""
        del machine
        return list(argv)
