"""Launching on a Ray cluster: an agent on every node that has a machine's resource. From there on it is as over ssh.

Ray starts an actor (`hulk.launch.keeper`) on the node, the actor an agent. All of them end with the connection to Ray,
and so does what the agents started.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hulk import __version__
from hulk.domain.cluster import Cluster
from hulk.domain.plan import JobPlan
from hulk.errors import HulkError, InputError
from hulk.io.hosts_file import Host, HostList
from hulk.launch import keeper
from hulk.launch.needs import Need
from hulk.launch.sites import AgentLine
from hulk.probe.wire import WireError

_CONNECT = 5.0  # seconds for the head to answer
_LISTEN = 30.0  # seconds that one question for news takes at most
_PREFIX = "machine:"
_HINT = "start one (`ray start --head`), or say where it is: RAY_ADDRESS=HOST:6379"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # how an HTTP/2 client begins
_SETTINGS = 4  # the type of the frame that both sides then send


@dataclass(frozen=True)
class RaySite:
    """The nodes of a Ray cluster. `handed`: by machine, how many GPUs Ray is asked for."""

    ray: Any
    nodes: Mapping[str, Mapping[str, Any]]
    hosts: HostList
    handed: Mapping[str, int]
    apart = True

    def host(self, machine: str) -> Host:
        """As the hosts file says; else where Ray has its node."""
        node = self.nodes.get(machine)
        if machine in self.hosts.hosts or node is None:
            return replace(self.hosts.of(machine), login=machine)
        return Host(str(node["NodeManagerAddress"]), machine, machine)

    def line(self, machine: str) -> AgentLine:
        """An agent in an actor on the machine's node."""
        gpus = self.handed.get(machine, 0)
        wrong = self._wrong(machine, gpus)
        if wrong is not None:
            raise WireError("silent", wrong)
        actor = self.ray.remote(keeper.Keeper).options(
            num_cpus=1, num_gpus=gpus, resources={_resource(machine): 1}, max_concurrency=4, max_restarts=0
        )
        try:
            return RayLine(self.ray, actor.remote())
        except self.ray.exceptions.RayError as error:
            raise WireError("silent", _words(error)) from None

    def needed(self, need: Need) -> Need:
        """Ray numbers the GPUs that it hands out from 0; a whole machine's are the plan's."""
        if self.handed.get(need.machine.name, 0) in (0, need.machine.gpus):
            return need
        return replace(need, gpus=dict(enumerate(size for _, size in sorted(need.gpus.items()))))

    def _wrong(self, machine: str, gpus: int) -> str | None:
        """Why the machine's node cannot be asked for; None where it can."""
        name, node = _resource(machine), self.nodes.get(machine)
        if node is None:
            start = f"ray start --address HEAD:6379 --num-gpus {gpus} --resources '{json.dumps({name: 1})}'"
            return f"no node of this Ray cluster has the resource {name}: {start}"
        there = int(node["Resources"].get("GPU", 0))
        if there < gpus:
            return f"its node has {there} GPUs for Ray, the plan needs {gpus}: --num-gpus of ray start, or --no-gpus"
        if self.ray.available_resources().get(name, 0) < 1:
            return f"the resource {name} is in use by another job of this Ray cluster: wait for its end"
        return None


class RayLine:
    """The line to an agent that an actor keeps."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._come: deque[bytes | None] = deque()

    def greeting(self, seconds: float) -> dict[str, Any]:
        """Wait for the actor, and for its agent's first words."""
        end = time.monotonic() + seconds
        try:
            self._ray.get(self._actor.__ray_ready__.remote(), timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            raise WireError(
                "silent", f"Ray started nothing there in {seconds:.0f} s: a CPU or the GPUs of its node are in use"
            ) from None
        except self._ray.exceptions.RayError as error:
            raise WireError("silent", _words(error)) from None
        return self.receive(max(1.0, end - time.monotonic()))

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; each arrives before the next is sent."""
        with suppress(self._ray.exceptions.RayError):  # what is missing shows when the answer is awaited
            self._ray.get(self._actor.tell.remote(json.dumps(message).encode() + b"\n"))

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message."""
        end = time.monotonic() + seconds
        while not self._come:
            left = end - time.monotonic()
            if left <= 0:
                raise WireError("silent", "no answer in time")
            try:
                asked = min(left, _LISTEN)
                self._come.extend(self._ray.get(self._actor.hear.remote(asked), timeout=asked + _LISTEN))
            except self._ray.exceptions.RayError as error:
                raise WireError("lost", _words(error)) from None
        line = self._come.popleft()
        if line is None:
            self._come.append(None)
            raise WireError("lost", self.why())
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise WireError("version", "its answer makes no sense")
        return found

    def why(self) -> str:
        """Why it has ended, as far as it said so."""
        try:
            said, code = self._ray.get(self._actor.why.remote(), timeout=_CONNECT)
        except self._ray.exceptions.RayError as error:
            return _words(error)
        if any("No module named" in line and "hulk" in line for line in said):
            return f"the Python that Ray runs there has no hulk, or an older one: install {__version__}"
        return str(said[-1]) if said else f"it ended with exit code {code}"

    def close(self, seconds: float) -> None:
        """The agent ends, then its actor."""
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(self._actor.close.remote(seconds), timeout=seconds + _CONNECT)
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(self._actor)


@contextmanager
def ray_site(plans: Sequence[JobPlan], cluster: Cluster, hosts: HostList, *, gpus: bool) -> Iterator[RaySite]:
    """Connected to the Ray cluster that RAY_ADDRESS names, or to this computer's. InputError where there is none."""
    if find_spec("ray") is None:
        hint = "pip install ray, of the cluster's version; or export it with --to ray and start it elsewhere"
        raise InputError("--on ray needs the package ray in the Python that runs hulk", hint=hint)
    ray: Any = import_module("ray")
    _connect(ray)
    try:
        alive = [node for node in ray.nodes() if node["Alive"]]
        nodes = {
            name.removeprefix(_PREFIX): node for node in alive for name in node["Resources"] if name.startswith(_PREFIX)
        }
        yield RaySite(ray, nodes, hosts, _handed(plans, cluster) if gpus else {})
    finally:
        ray.shutdown()


def _connect(ray: Any) -> None:
    address = os.environ.get("RAY_ADDRESS") or "auto"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal() and host:
        # Ray itself waits for a minute, and may end the process then; or, where others listen, for ever.
        why = unanswered(host.strip("[]"), int(port))
        if why is not None:
            raise InputError(f"no Ray cluster answers at {address} (RAY_ADDRESS): {why}", hint=_HINT)
    import_module("ray.cloudpickle").register_pickle_by_value(keeper)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings(action="ignore"):
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except ConnectionError as error:
        raise InputError(f"no Ray cluster is found: {_words(error)}", hint=_HINT) from None
    except (RuntimeError, ValueError) as error:  # of another version, or an address that is none
        raise HulkError(f"Ray at {address} does not let us in: {_words(error)}") from None
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray sets its own


def unanswered(host: str, port: int) -> str | None:
    """Why no Ray cluster can be there; None where one may. Its head speaks gRPC, which is HTTP/2."""
    try:
        with socket.create_connection((host, port), _CONNECT) as line:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return None
            line.sendall(_PREFACE + bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0)))
            head = b""
            while len(head) < 4 and (more := line.recv(4 - len(head))):
                head += more
    except TimeoutError:
        return f"nothing comes from there in {_CONNECT:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    return None if head[3:] == bytes((_SETTINGS,)) else "another program listens there"


def _handed(plans: Sequence[JobPlan], cluster: Cluster) -> dict[str, int]:
    """GPUs to ask for: those in use; the whole machine where several jobs are on it, so that each finds its own."""
    found: dict[str, list[set[int]]] = {}
    for plan in plans:
        own: dict[str, set[int]] = {}
        for part in (part for stage in plan.stages for part in stage.parts):
            own.setdefault(part.machine, set()).update(part.gpus)
        for machine, numbers in own.items():
            found.setdefault(machine, []).append(numbers)
    return {name: len(sets[0]) if len(sets) == 1 else cluster.machine(name).gpus for name, sets in found.items()}


def _resource(machine: str) -> str:
    return f"{_PREFIX}{machine}"


def _words(error: BaseException) -> str:
    """An error of Ray's in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
