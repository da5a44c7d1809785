"""What answers on a machine: listens, lets in who knows the token, and does what it is told within bounds."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hulk import __version__
from hulk.errors import HulkError, InputError
from hulk.probe.facts import machine_facts
from hulk.probe.link import echo, load_of, measure, sink
from hulk.probe.wire import PROTOCOL, Address, Channel, WireError, answer, call

MOST_CONNECTIONS = 64
MOST_TARGETS = 2000
MOST_WAIT = 10.0
"""Seconds that one address may take to answer."""
_BACKLOG = 256
_IDLE = 3600.0  # seconds that one who has proved to know the token may be silent
_AT_ONCE = 16  # addresses that are tried at the same time


def listen(bind: str, port: int) -> socket.socket:
    """A socket that listens there (port 0: a free one); InputError where that cannot be."""
    where = f"{bind}:{port}"
    try:
        family = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((bind, port), family=family, backlog=_BACKLOG)
    except socket.gaierror:
        raise InputError(f"{bind!r} is no address", where="--bind") from None
    except OverflowError:
        raise InputError(f"{port} is no port", hint="1 to 65535, or 0 for a free one") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            hint = "give another --port, or end what listens there"
            raise InputError(f"port {port} of {bind} is in use", hint=hint) from None
        if error.errno == errno.EADDRNOTAVAIL:
            hint = "behind a router that translates addresses, listen on 0.0.0.0"
            raise InputError(f"this machine has no address {bind}", hint=hint) from None
        raise InputError(f"cannot listen on {where}: {error.strerror}") from None


class Agent:
    """Serves a listening socket until it is told to stop, or for so many seconds."""

    def __init__(self, listener: socket.socket, token: bytes) -> None:
        self.listener = listener
        self._token = token
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._wake, self._waker = socket.socketpair()
        self._open: set[socket.socket] = set()

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self.listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def connected(self) -> int:
        """How many callers it has now."""
        return len(self._open)

    def serve(self, seconds: float) -> None:
        """Answer until `stop` is called, or that many seconds have passed; then nothing listens any more."""
        deadline = time.monotonic() + seconds
        try:
            while (left := deadline - time.monotonic()) > 0:
                ready = select.select([self.listener, self._wake], (), (), left)[0]
                if self._wake in ready:
                    return
                if ready and self._room.acquire(timeout=min(left, 1.0)):
                    self._accept()
        finally:
            self.listener.close()
            for link in tuple(self._open):
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Have `serve` end; may be called from a signal handler or another thread."""
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what one who may has asked for; what went wrong is an answer too: {"error": …, "reason": …}."""
        try:
            return self._obeyed(order)
        except WireError as error:
            return {"error": str(error), "reason": error.reason}
        except (HulkError, OSError) as error:
            return {"error": str(error), "reason": "lost"}
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            return {"error": f"an order that makes no sense: {error}", "reason": "version"}

    def _obeyed(self, order: dict[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "facts":
                return {"facts": machine_facts()}
            case "reach":
                return {"found": self._reach(order["targets"], float(order["wait"]))}
            case "measure":
                loads = [load_of(each) for each in order["loads"]]
                return measure(_address(order["target"]), self._token, int(order["pings"]), loads)
        raise ValueError("not known here")

    def _accept(self) -> None:
        """Take one caller; its thread gives the room back."""
        try:
            link, _ = self.listener.accept()
        except OSError:  # it has gone already
            self._room.release()
            return
        self._open.add(link)
        threading.Thread(target=self._attend, args=(link,), daemon=True).start()

    def _attend(self, link: socket.socket) -> None:
        try:
            # An error means that the caller went away, or is none to talk to.
            with link, contextlib.suppress(WireError, OSError, ValueError, TypeError, KeyError):
                channel = answer(link, self._token)
                while True:
                    self._do(channel, channel.receive(_IDLE))
        finally:
            self._open.discard(link)
            self._room.release()

    def _do(self, channel: Channel, order: dict[str, Any]) -> None:
        match order.get("do"):
            case "echo":
                echo(channel, int(order["count"]))
            case "sink":
                sink(channel, load_of(order))
            case _:
                channel.send(self.obey(order))

    def _reach(self, targets: Sequence[Any], wait: float) -> list[dict[str, Any]]:
        """For each address the round trip in seconds, or why there is none."""
        if len(targets) > MOST_TARGETS or not 0 < wait <= MOST_WAIT:
            raise ValueError("more than an agent tries")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda target: self._try(_address(target), wait), targets))

    def _try(self, address: Address, wait: float) -> dict[str, Any]:
        try:
            channel = call(address, self._token, wait)
        except WireError as error:
            return {"reason": error.reason}
        channel.close()
        return {"trip": channel.trip}


def greeting(agent: Agent) -> dict[str, Any]:
    """What an agent that was started says first."""
    return {"hulk": PROTOCOL, "version": __version__, "address": list(agent.address)}


def _address(value: Any) -> Address:
    host, port = value
    return str(host), int(port)
