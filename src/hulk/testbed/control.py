"""How other processes talk to a router: one JSON request, one JSON answer, over a Unix socket.

{"do": "status"}                 what has passed every path, and who is cut off
{"do": "cut", "host": 2}         drop every packet of a host
{"do": "restore", "host": 2}     and no longer
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from hulk.errors import HulkError
from hulk.testbed.router import Router

_LARGEST = 1 << 20
_ROUTER_PATIENCE = 0.05  # seconds; packets wait meanwhile
_CALLER_PATIENCE = 5.0


def listen(path: Path) -> socket.socket:
    """The router's end."""
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(str(path))
    server.listen()
    server.settimeout(_ROUTER_PATIENCE)
    return server


def answer(server: socket.socket, router: Router) -> None:
    """Serve one caller. One that asks nonsense or goes away gets nothing."""
    try:
        caller, _ = server.accept()
        with caller:
            caller.settimeout(_ROUTER_PATIENCE)
            reply = _act(json.loads(caller.recv(_LARGEST)), router)
            caller.send(json.dumps(reply).encode())
    except (OSError, ValueError, KeyError, TypeError):
        return


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """What the router that listens there answers; HulkError where none does."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.settimeout(_CALLER_PATIENCE)
            caller.connect(str(path))
            caller.send(json.dumps(request).encode())
            reply: dict[str, Any] = json.loads(caller.recv(_LARGEST))
            return reply
    except (OSError, ValueError):
        raise HulkError("the router does not answer") from None


def answers(path: Path) -> bool:
    """Whether a router listens there."""
    try:
        ask(path, {"do": "status"})
    except HulkError:
        return False
    return True


def _act(request: dict[str, Any], router: Router) -> dict[str, Any]:
    match request["do"]:
        case "cut":
            router.cut.add(int(request["host"]))
        case "restore":
            router.cut.discard(int(request["host"]))
    paths = [
        {"source": p.source, "target": p.target, "packets": p.packets, "bytes": p.size, "dropped": p.dropped}
        for p in router.fabric.paths.values()
    ]
    return {"cut": sorted(router.cut), "paths": paths}
