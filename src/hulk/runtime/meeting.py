"""Where all ranks meet: the store of the first one. Who cannot reach it any more is cut off."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from hulk.runtime.report import Reporter

TOUCH = 2.0
"""Seconds between two looks at the store."""


def meet(*, address: str, port: int, rank: int, size: int, timeout: timedelta) -> TCPStore:
    """The store that all ranks meet at; the first of them holds it. It listens on its address and nowhere else, where
    torch's own would listen on every interface. Where others reach this machine by an address that it does not have
    itself (behind a router, by a name of Kubernetes), it listens on all."""
    handle: int | None = None
    try:
        family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        if rank == 0:
            handle = socket.create_server((str(where[0]), port), family=family, backlog=max(128, size)).detach()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
    return TCPStore(address, port, size, is_master=rank == 0, timeout=timeout, master_listen_fd=handle)


def keep_touch(reporter: Reporter, *, address: str, port: int, timeout: float) -> TCPStore:
    """A connection to the store, and a thread that looks now and then whether it still answers.

    The thread ends the worker where the first machine, which holds the store, cannot be reached for `timeout` seconds:
    this machine is cut off, or that one is.
    """
    limit = timedelta(seconds=timeout)
    store = TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit)
    last = [time.monotonic()]

    def touch() -> None:
        while True:
            try:
                store.add("sign of life", 0)  # unlike a write, it waits for an answer
            except (RuntimeError, OSError):
                return
            last[0] = time.monotonic()
            time.sleep(TOUCH)

    def watch() -> None:
        while True:
            time.sleep(TOUCH / 2)
            if time.monotonic() - last[0] > timeout:
                reporter.say("cut off", message=f"no answer from {address} for {timeout:.0f} s")
                os._exit(1)

    threading.Thread(target=touch, name="touch", daemon=True).start()
    threading.Thread(target=watch, name="watch", daemon=True).start()
    return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=limit)


def leave_together(store: TCPStore, *, rank: int, size: int, patience: float) -> None:
    """Rank 0 may hold the store, so it leaves last."""
    count = store.add("ranks that are done", 1)
    end = time.monotonic() + patience
    while rank == 0 and count < size and time.monotonic() < end:
        time.sleep(0.05)
        count = store.add("ranks that are done", 0)
