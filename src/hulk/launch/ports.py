"""Whether machines reach each other: ports opened for a moment, and connected to. Nothing is sent."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

REACH_SECONDS = 10.0
_AT_ONCE = 32


class Ports:
    """Listening sockets that answer nobody, until they are closed."""

    def __init__(self) -> None:
        self._open: list[socket.socket] = []

    def listen(self, address: str, ports: Sequence[int]) -> dict[str, Any]:
        """Listen on these ports of an address and on a free one: its number (`free`), and what is wrong in words."""
        wrong: list[str] = []
        number = None
        try:
            family, _, _, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            return {"free": None, "wrong": [f"its address {address} is not known there: {error.strerror or error}"]}
        for port in (*ports, 0):
            try:
                opened = socket.create_server((str(where[0]), port), family=family)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    wrong.append(f"port {port} of {address} is in use by another program: --port names another")
                    continue
                hint = "`address` in the hosts file must be one of its own network cards'"
                return {"free": None, "wrong": [f"it cannot listen on {address} ({error.strerror}): {hint}"]}
            self._open.append(opened)
            threading.Thread(target=_answer_nobody, args=(opened,), daemon=True).start()
            number = number if port else opened.getsockname()[1]
        return {"free": number, "wrong": wrong}

    def close(self) -> None:
        """Listen no more."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # who waits in accept is told
            each.close()
        self._open.clear()


def unreached(targets: Mapping[str, tuple[str, int]]) -> dict[str, str]:
    """Which targets, by name, do not answer at their address and port, and why."""

    def attempt(where: tuple[str, int]) -> str | None:
        try:
            socket.create_connection((where[0], int(where[1])), REACH_SECONDS).close()
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return error.strerror or str(error)
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = zip(targets, pool.map(attempt, targets.values()), strict=True)
        return {name: why for name, why in found if why is not None}


def _answer_nobody(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()
