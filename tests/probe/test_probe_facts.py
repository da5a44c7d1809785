"""What an agent finds of its machine: NVML and /sys, and what it says where they are not there."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from hulk.probe import facts


class NVMLError(Exception):
    pass


class NotSupportedError(NVMLError):
    pass


class InvalidArgumentError(NVMLError):
    pass


def nvml(count: int, links: int) -> SimpleNamespace:
    """What nvidia-ml-py looks like on a machine with so many GPUs of so many NVLinks each."""

    def link_state(handle: int, number: int) -> int:
        if links == 0:
            raise NotSupportedError
        if number >= links:
            raise InvalidArgumentError
        return 1

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_NotSupported=NotSupportedError,
        NVMLError_InvalidArgument=InvalidArgumentError,
        NVML_FEATURE_ENABLED=1,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: b"NVIDIA H100 80GB HBM3" if handle else "NVIDIA H100 80GB HBM3",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=85_520_809_984),
        nvmlDeviceGetNvLinkState=link_state,
    )


@pytest.mark.parametrize(("count", "links", "kind"), [(8, 18, "nvlink"), (2, 0, "pcie"), (1, 18, None)])
def test_gpus_as_nvml_tells(monkeypatch, count, links, kind):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(count, links))
    found = facts.machine_facts()
    assert found["gpus"] == [{"name": "NVIDIA H100 80GB HBM3", "memory": 85_520_809_984.0}] * count
    assert found["gpu_link"] == kind
    assert not [words for words in found["absent"] if "GPU" in words]


def test_without_nvml_the_driver_still_names_them(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(facts, "_NVIDIA", tmp_path)
    assert any("GPUs (the package nvidia-ml-py is not installed" in words for words in facts.machine_facts()["absent"])
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text("Model: \t\t NVIDIA L4\nIRQ:   1\n", encoding="utf-8")
    found = facts.machine_facts()
    assert found["gpus"] == [{"name": "NVIDIA L4", "memory": None}] * 2
    assert any(words.startswith("memory and links of the GPUs") for words in found["absent"])


def test_a_driver_that_does_not_answer_is_said_so(monkeypatch, tmp_path):
    broken = nvml(1, 0)

    def fail() -> None:
        raise NVMLError("Driver/library version mismatch")

    broken.nvmlInit = fail
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    monkeypatch.setattr(facts, "_NVIDIA", tmp_path / "none")
    assert any("version mismatch" in words for words in facts.machine_facts()["absent"])


def card(folder, name: str, state: str, speed: str | None, real: bool = True) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "operstate").write_text(state, encoding="ascii")
    if speed is not None:
        (folder / name / "speed").write_text(speed, encoding="ascii")
    if real:
        (folder / name / "device").mkdir()


def test_cards_are_real_ones_that_are_up(monkeypatch, tmp_path):
    net, fabric = tmp_path / "net", tmp_path / "infiniband"
    card(net, "eth0", "up\n", "25000\n")
    card(net, "eth1", "down\n", "100000\n")
    card(net, "ens5", "up\n", "-1\n")
    card(net, "wan0", "unknown\n", "10\n", real=False)
    port = fabric / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    for name, text in (("link_layer", "InfiniBand"), ("state", "4: ACTIVE"), ("rate", "400 Gb/sec (4X NDR)")):
        (port / name).write_text(text + "\n", encoding="ascii")
    monkeypatch.setattr(facts, "_NET", net)
    monkeypatch.setattr(facts, "_INFINIBAND", fabric)
    found = facts.machine_facts()
    assert {each["name"]: each["bytes_per_s"] for each in found["cards"]} == {
        "eth0": 25e9 / 8,
        "ens5": None,
        "mlx5_0": 400e9 / 8,
    }
    assert "speed of ens5" in found["absent"]
    monkeypatch.setattr(facts, "_NET", tmp_path / "none")
    monkeypatch.setattr(facts, "_INFINIBAND", tmp_path / "none")
    assert any(words.startswith("network cards") for words in facts.machine_facts()["absent"])
