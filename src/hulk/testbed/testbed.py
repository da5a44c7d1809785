"""A testbed as other code sees it: a handle on the router's process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from hulk.domain.cluster import Cluster
from hulk.errors import HulkError, InputError, nearest
from hulk.testbed import control, state
from hulk.testbed.network import INTERFACE, Network
from hulk.testbed.requirements import require

_DOWN_SECONDS = 15.0


class Testbed:
    """An emulated wide-area network between the machines of a cluster, each a network namespace on this machine.

    As a context manager it goes down at the end of the block; it also goes down when the process that made it dies.
    """

    __test__ = False  # the name makes pytest look for tests in it

    def __init__(self, known: state.State, router: subprocess.Popen[bytes] | None = None) -> None:
        self.name = known.name
        self.network = known.network
        self.pid = known.pid
        self._state = known
        self._router = router

    @classmethod
    def up(cls, cluster: Cluster, *, name: str = "default", detached: bool = False) -> Self:
        """Build the network of a cluster. A detached testbed outlives this process. InputError where this machine
        cannot hold one, the cluster is too large, or a testbed of that name is up."""
        network = Network.of(cluster)
        state.check_name(name)
        require()
        router = subprocess.Popen(
            [sys.executable, "-P", "-m", "hulk.testbed.daemon"],  # -P: root runs no code from the folder it is in
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if detached else None,
            start_new_session=True,  # Ctrl-C at the terminal is not for the router
        )
        assert router.stdin is not None and router.stdout is not None
        request = {"name": name, "network": network.to_json(), "detached": detached}
        with contextlib.suppress(BrokenPipeError):  # it died; the missing reply says so
            router.stdin.write(json.dumps(request).encode() + b"\n")
            router.stdin.flush()
        reply = json.loads(router.stdout.readline() or '{"error": "the router did not start"}')
        if reply["error"] is not None:
            router.communicate()
            raise (InputError if reply.get("input") else HulkError)(reply["error"])
        return cls(state.State(name, router.pid, network), router)

    @classmethod
    def attach(cls, name: str = "default") -> Self:
        """A handle on a testbed that is up; InputError where there is none of that name."""
        require()
        state.check_name(name)
        state.sweep()
        known = state.read(name)
        if known is None:
            raise InputError(f"no testbed {name!r} is up", hint=nearest(name, state.names()))
        return cls(known)

    @classmethod
    def all(cls) -> tuple[Self, ...]:
        """Every testbed that is up on this machine."""
        require()
        state.sweep()
        return tuple(cls(known) for known in map(state.read, state.names()) if known is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.down()

    def address(self, machine: str) -> str:
        """The machine's IPv4 address on the emulated network."""
        return self.network.hosts[self.network.index(machine)].address

    def interface(self, machine: str) -> str | None:
        """The name of the network device that leads to the other machines, inside the machine's namespace."""
        self.network.index(machine)
        return INTERFACE

    def namespace(self, machine: str) -> str:
        """The machine's network namespace, as `ip netns` knows it."""
        return self._state.namespace(self.network.index(machine))

    def command(self, machine: str, argv: Sequence[str]) -> list[str]:
        """What to run here so that `argv` runs on that machine."""
        return ["ip", "netns", "exec", self.namespace(machine), *argv]

    def cut(self, machine: str) -> None:
        """Drop every packet from and to a machine, also those on their way, as if its line had been cut."""
        self._ask({"do": "cut", "host": self.network.index(machine)})

    def restore(self, machine: str) -> None:
        """Connect a machine again."""
        self._ask({"do": "restore", "host": self.network.index(machine)})

    def traffic(self) -> dict[str, Any]:
        """What the router has carried: {"cut": [host], "paths": [{source, target, packets, bytes, dropped}]}; hosts are
        indices in the network."""
        return self._ask({"do": "status"})

    def down(self) -> None:
        """Take the network down and end what still runs on its machines. Twice is fine."""
        known = state.read(self.name)
        ours = known is not None and known.pid == self.pid  # else it is gone, and maybe another has taken the name
        if ours and state.alive(self.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        if self._router is not None:
            self._router.communicate()  # closes its pipes and waits for its end
        if ours:
            state.wait_and_clear(self.name, _DOWN_SECONDS)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return control.ask(state.socket_path(self.name), request)
