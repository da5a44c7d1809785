"""A page served beside something else."""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from types import TracebackType

import uvicorn

from hulk.errors import InputError
from hulk.serve.guard import App


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free. InputError where it cannot."""
    if not _is_address(host):
        raise InputError(f"{host!r} is no address", hint="give an address of this machine, such as 127.0.0.1 or ::1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        words = f"cannot listen on {host} port {port}: {error.strerror}"
        raise InputError(words, hint="choose another port") from None


def _is_address(host: str) -> bool:
    """An IP address, or what may be a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
        return len(host) <= 253 and all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", label) for label in labels)
    return True


def address_of(host: str, sock: socket.socket) -> str:
    """Where a browser finds it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}/"


def server_of(app: App) -> uvicorn.Server:
    """A server for an app: bounded, and silent but for warnings."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_keep_alive=30, limit_concurrency=512,
        h11_max_incomplete_event_size=64 * 1024, ws="none", server_header=False, timeout_graceful_shutdown=2,
    )  # fmt: skip
    return uvicorn.Server(config)


class Background:
    """An app served by a thread, from `with` to its end, and `last_look` seconds longer where somebody looks."""

    def __init__(self, app: App, host: str, port: int, *, last_look: float = 0.0) -> None:
        self._server = server_of(app)
        self._socket = listening(host, port)
        self._look = last_look
        self.address = address_of(host, self._socket)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        looking = self._server.server_state.connections
        if looking:
            self._thread.join(self._look)
        self._server.should_exit = True
        self._thread.join(10.0)
        self._socket.close()
