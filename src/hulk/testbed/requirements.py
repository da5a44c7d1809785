"""What a testbed needs of the machine it runs on."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hulk.errors import InputError

_TUN = Path("/dev/net/tun")


def missing() -> tuple[str, ...]:
    """What this machine lacks, in words; empty where a testbed can run."""
    if sys.platform != "linux":
        return (f"Linux (this is {sys.platform})",)
    lacks = []
    if os.geteuid() != 0:
        lacks.append("root (try it with sudo)")
    if not _TUN.exists():
        lacks.append(f"{_TUN} (load it with `modprobe tun`; in a container, pass the device in)")
    if shutil.which("ip") is None:
        lacks.append("the command `ip` (package iproute2)")
    return tuple(lacks)


def require() -> None:
    """InputError that names everything missing."""
    lacks = missing()
    if lacks:
        raise InputError(f"a testbed needs {', and '.join(lacks)}")
