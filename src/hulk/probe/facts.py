"""What a machine is: processors, GPUs and what links them, network cards. From NVML, /proc and /sys.

What cannot be found out is said to be absent, never guessed. Sizes in bytes, rates in bytes/s.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

_NVIDIA = Path("/proc/driver/nvidia/gpus")
_NET = Path("/sys/class/net")
_INFINIBAND = Path("/sys/class/infiniband")
_MEMINFO = Path("/proc/meminfo")
_NVLINKS = 18  # of one GPU, at most (H100)


def machine_facts() -> dict[str, Any]:
    """Everything, as plain values: hostname, cores, memory, gpus (a list), gpu_link (nvlink, pcie or None), cards (a
    list with name, bytes_per_s or None, kind), and `absent`, what could not be found out and why."""
    absent: list[str] = []
    gpus, link = _gpus(absent)
    return {
        "hostname": socket.gethostname(),
        "cores": os.cpu_count() or 0,
        "memory": _memory(absent),
        "gpus": gpus,
        "gpu_link": link,
        "cards": _cards(absent),
        "absent": absent,
    }


def _memory(absent: list[str]) -> float | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemTotal:"):
                return 1024.0 * int(line.split()[1])
    absent.append("memory of the machine (no /proc/meminfo)")
    return None


# ---- GPUs -----------------------------------------------------------------------------------------------------------


def _gpus(absent: list[str]) -> tuple[list[dict[str, Any]], str | None]:
    """GPUs with name and memory (None: not known), and what links them."""
    try:
        import pynvml
    except ImportError:
        return _gpus_of_proc(absent, "the package nvidia-ml-py is not installed"), None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _gpus_of_proc(absent, f"NVML: {error}"), None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        found = [{"name": _name(pynvml, each), "memory": _gpu_memory(pynvml, each)} for each in handles]
        return found, _gpu_link(pynvml, handles, absent)
    except pynvml.NVMLError as error:
        return _gpus_of_proc(absent, f"NVML: {error}"), None
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _name(nvml: Any, handle: Any) -> str:
    name = nvml.nvmlDeviceGetName(handle)
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _gpu_memory(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetMemoryInfo(handle).total)


def _gpu_link(nvml: Any, handles: list[Any], absent: list[str]) -> str | None:
    """nvlink where the first GPU has a link that is up, else pcie; None for one GPU."""
    if len(handles) < 2:
        return None
    try:
        for number in range(_NVLINKS):
            if nvml.nvmlDeviceGetNvLinkState(handles[0], number) == nvml.NVML_FEATURE_ENABLED:
                return "nvlink"
    except nvml.NVMLError_NotSupported:
        return "pcie"
    except nvml.NVMLError_InvalidArgument:  # no link of that number
        return "pcie"
    except nvml.NVMLError as error:
        absent.append(f"links between GPUs (NVML: {error})")
        return None
    return "pcie"


def _gpus_of_proc(absent: list[str], why: str) -> list[dict[str, Any]]:
    """What the driver says without NVML: names, no memory."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for folder in sorted(_NVIDIA.iterdir()):
            for line in (folder / "information").read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith("Model:"):
                    found.append({"name": line.partition(":")[2].strip(), "memory": None})
    absent.append(f"memory and links of the GPUs ({why})" if found else f"GPUs ({why}; no driver of NVIDIA's)")
    return found


# ---- Network cards --------------------------------------------------------------------------------------------------


def _cards(absent: list[str]) -> list[dict[str, Any]]:
    """Real cards that are up: bridges, tunnels and the loopback have no device behind them."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError):
        for card in sorted(_NET.iterdir()):
            if (card / "device").exists() and _text(card / "operstate") in ("up", "unknown"):
                found.append({"name": card.name, "bytes_per_s": _ethernet_rate(card), "kind": "ethernet"})
    with contextlib.suppress(OSError):
        for port in sorted(_INFINIBAND.glob("*/ports/*")):
            if _text(port / "link_layer") == "InfiniBand" and "ACTIVE" in _text(port / "state"):
                name = port.parent.parent.name
                found.append({"name": name, "bytes_per_s": _infiniband_rate(port), "kind": "infiniband"})
    if not found:
        absent.append("network cards (none with a device of its own in /sys/class/net)")
    absent += [f"speed of {card['name']}" for card in found if card["bytes_per_s"] is None]
    return found


def _ethernet_rate(card: Path) -> float | None:
    """Virtual cards often do not know their speed."""
    with contextlib.suppress(ValueError):
        megabits = int(_text(card / "speed"))
        return megabits * 1e6 / 8 if megabits > 0 else None
    return None


def _infiniband_rate(port: Path) -> float | None:
    """As in "400 Gb/sec (4X NDR)"."""
    with contextlib.suppress(ValueError, IndexError):
        return float(_text(port / "rate").split()[0]) * 1e9 / 8
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # a card that is down has no speed to read
        return ""
