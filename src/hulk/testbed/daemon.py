"""The router's process: `python -m hulk.testbed.daemon`, started by `hulk.testbed.testbed.Testbed.up`.

Standard input brings one line of JSON, {"name": …, "network": …, "detached": …}; standard output answers with one line,
{"error": null} once the testbed is up. Unless it is detached, the testbed goes down when standard input ends, which it
does when the process that started it dies.

Before it makes anything, the router forks a janitor that does nothing but wait for the router's end, however it comes
(told to end, crashed, killed), and then removes what the router has made. There is no other way down.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any

from hulk.errors import HulkError, InputError
from hulk.testbed import control, namespaces, state
from hulk.testbed.network import Network
from hulk.testbed.router import Router

_PATIENCE = 15.0  # seconds that a testbed of the same name may take to go down


def main() -> None:
    """Serve one testbed until told to end."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    request = json.loads(_first_line())
    try:
        name, network = request["name"], Network.from_json(request["network"])
        lock = _lock(name)
        state.write(lock, state.State(name, os.getpid(), network))
        _fork_janitor(name, lock)
        state.remove_namespaces(name)  # of one whose file is lost
        devices = [
            namespaces.create(state.namespace(name, index), host.address, network.packets(index))
            for index, host in enumerate(network.hosts)
        ]
        router = Router(network, devices)
        server = control.listen(state.socket_path(name))
    except (HulkError, OSError) as error:
        _reply({"error": str(error), "input": isinstance(error, InputError)})
        return
    _prefer()
    _reply({"error": None})
    others = {server.fileno(): lambda: control.answer(server, router)}
    if not request["detached"]:
        others[0] = lambda: _stop(router)
    router.run(others)


def _lock(name: str) -> int:
    """The lock of this name, once leftovers are gone; InputError where a testbed of the name is up."""
    state.sweep()
    lock = state.take(name)
    if lock is None and control.answers(state.socket_path(name)):
        raise InputError(f"testbed {name!r} is up already", hint="take it down, or give this one another name")
    lock = lock or state.take_within(name, _PATIENCE)  # it is going down
    if lock is None:
        raise HulkError(f"another testbed {name!r} is neither up nor gone after {_PATIENCE:.0f} s")
    return lock


def _fork_janitor(name: str, lock: int) -> None:
    ended, alive = os.pipe()  # `alive` is open in the router alone, so its end closes when the router is no more
    if os.fork() > 0:
        os.close(ended)
        return
    try:
        os.setsid()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        _forget_standard_streams()
        os.close(alive)
        os.read(ended, 1)
        state.clear(name, lock)
    finally:
        os._exit(0)


def _prefer() -> None:
    """Come before other processes: a router that waits for the work it carries packets for would slow the network. It
    sleeps most of the time, and the kernel leaves others their share of real time. Containers may refuse the one or the
    other; then the network is less exact under load."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _stop(router: Router) -> None:
    router.running = False


def _first_line() -> bytes:
    """What standard input brings, unbuffered: its end is awaited with `select`."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 65536)
        if not part:
            sys.exit(1)
        line += part
    return line


def _reply(reply: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(1, json.dumps(reply).encode() + b"\n")
    _forget_standard_streams(1)


def _forget_standard_streams(*which: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in which or (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


if __name__ == "__main__":
    main()
