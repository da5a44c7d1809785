"""Network namespaces with a TUN device each: made, entered, and taken down again.

Nothing here touches the network of the machine itself: a TUN device is made inside its namespace and never outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from hulk.errors import HulkError
from hulk.testbed.network import INTERFACE, LARGEST_PACKET

# Settings of TCP inside a namespace, where they differ from the machine's own; docs/testbed.md says why.
SYSCTLS = {
    "net/ipv4/tcp_congestion_control": "cubic",
    "net/ipv4/tcp_rmem": "4096 131072 67108864",
    "net/ipv4/tcp_wmem": "4096 16384 67108864",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}

_FOLDER = Path("/run/netns")  # where `ip netns` keeps them
_TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000  # packets as they are, without a header of the driver's
_CLONE_NEWNET = 0x40000000
_GRACE = 2.0  # seconds between asking a process to end and ending it


def create(namespace: str, address: str, packets: Mapping[str, int]) -> int:
    """Make a namespace with a TUN device of that address in it; the device's non-blocking descriptor. `packets` has the
    largest packet in bytes for each address it can reach."""
    _ip("netns", "add", namespace)
    with _inside(namespace):
        for name, value in SYSCTLS.items():
            with contextlib.suppress(OSError):  # a kernel built without one of them has its default
                Path("/proc/sys", name).write_text(value, encoding="ascii")
        device = _open_tun(INTERFACE)
        _ip("link", "set", "lo", "up")
        _ip("address", "add", f"{address}/24", "dev", INTERFACE)
        _ip("link", "set", INTERFACE, "mtu", str(LARGEST_PACKET), "up")
        for target, size in packets.items():
            _ip("route", "add", target, "dev", INTERFACE, "src", address, "mtu", str(size))
    return device


def remove(namespaces: list[str]) -> None:
    """End whatever still runs inside these namespaces and delete them; those that do not exist are fine."""
    for name in namespaces:
        with contextlib.suppress(HulkError):  # someone else deleted it first
            _end(processes(name))
            _ip("netns", "delete", name)


def existing() -> tuple[str, ...]:
    """The named namespaces of this machine."""
    return tuple(sorted(path.name for path in _FOLDER.glob("*")))


def processes(namespace: str) -> list[int]:
    """The processes that run inside a namespace."""
    return [int(line) for line in _ip("netns", "pids", namespace).split()]


def _end(pids: list[int]) -> None:
    watched = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            watched[os.pidfd_open(pid)] = pid
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while watched and (left := deadline - time.monotonic()) > 0:
        for handle in select.select(list(watched), (), (), left)[0]:
            del watched[handle]
            os.close(handle)
    for handle, pid in watched.items():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        select.select([handle], (), (), _GRACE)
        os.close(handle)


def _open_tun(name: str) -> int:
    import fcntl  # not at the top: `hulk testbed` says that it needs Linux where there is none

    device = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


@contextlib.contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """This process, and what it starts, in another network namespace."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    away = os.open(_FOLDER / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(away)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(away)
        os.close(home)


def _setns(handle: int) -> None:
    # os.setns came with Python 3.12.
    if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _ip(*arguments: str) -> str:
    # The path of `ip` differs between distributions; the arguments are names that Hulk made.
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode != 0:
        raise HulkError(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout
