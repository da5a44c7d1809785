"""One hosts file for all verbs, in two forms that say the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hulk.errors import InputError
from hulk.export import TARGETS
from hulk.io.agents_file import load_hosts as to_measure
from hulk.io.cluster_file import load_cluster
from hulk.io.hosts_file import Host, HostList, load_hosts

PAGE = (Path(__file__).parents[2] / "docs" / "file-formats.md").read_text(encoding="utf-8")
CLUSTER = """
name: lab
regions: {rome: {at: [41.9, 12.5]}, oslo: {at: [59.9, 10.8]}}
machines:
  - {name: rome-1, region: rome, gpu: v100-32, gpus: 1}
  - {name: oslo-1, region: oslo, gpu: v100-32, gpus: 1}
"""


def block(head: str) -> str:
    found = re.findall(rf"^```{head}\n(.*?)^```$", PAGE.partition("\n## Hosts\n")[2], re.M | re.S)
    assert len(found) == 1
    return found[0]


def test_both_forms_of_the_page_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(CLUSTER, encoding="utf-8")
    cluster = load_cluster(tmp_path / "lab.yaml")
    (tmp_path / "hosts.yaml").write_text(block("yaml hosts"), encoding="utf-8")
    (tmp_path / "hosts.txt").write_text(block("text"), encoding="utf-8")
    long, short = load_hosts(tmp_path / "hosts.yaml", cluster), load_hosts(tmp_path / "hosts.txt", cluster)
    assert long.of("oslo-1") == short.of("oslo-1") == Host("198.51.100.1", "me@gateway-oslo", "gpu017", "eth1")
    assert long.of("rome-1") == Host("203.0.113.7", "203.0.113.7", "rome-1")
    assert long.regions == {"rome": "aws/eu-south-1", "oslo": "gcp/europe-north1"}
    measured = to_measure(tmp_path / "hosts.txt", port=5078).machines[0]
    assert (measured.ssh, measured.host, measured.port) == ("me@gateway-oslo", "198.51.100.1", 5078)
    with pytest.raises(InputError, match=r"hosts.yaml:4: hosts.rome-1: region: this key is missing"):
        to_measure(tmp_path / "hosts.yaml", port=5078)


def test_yaml_is_measured_too(tmp_path: Path) -> None:
    text = (
        "name: lab\nregions: {rome: {at: [41.9, 12.5], cloud: aws/x}}\nhosts: {a: {ssh: me@h, region: rome, port: 0}}\n"
    )
    for name in ("hosts.yaml", "hosts"):
        (tmp_path / name).write_text(f"hulk: hosts/1\n{text}", encoding="utf-8")
        listing = to_measure(tmp_path / name, port=5078)
        assert (listing.name, listing.regions["rome"].at) == ("lab", [41.9, 12.5])
        assert [(m.given.name, m.host, m.port, m.ssh) for m in listing.machines] == [("a", "h", 0, "me@h")]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "hosts.yaml",
            "hosts: {rome-1: {node: n1}}",
            "hosts.rome-1.address: an address or what ssh connects to is needed",
        ),
        ("hosts.yaml", "hosts: {rome-1: {address: 1.2.3.4, ssh: '-oX=y'}}", "hosts.rome-1.ssh"),
        ("hosts.txt", "me@h name=rome-1 interface=-x", "hosts.txt:1: hosts.rome-1.interface"),
        ("hosts.txt", "h name=rome-1\nh name=rome-1", "hosts.txt:2: machine 'rome-1' is given twice"),
        ("hosts.txt", "h name=rome-9", "no machine 'rome-9'"),
        ("hosts.txt", "h name=rome-1 ssh=x", "given twice"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / "lab.yaml").write_text(CLUSTER, encoding="utf-8")
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=words):
        load_hosts(tmp_path / name, load_cluster(tmp_path / "lab.yaml"))


def test_scripts_bind_to_a_mesh() -> None:
    """What is exported with the hosts of a mesh goes through its interface, and ranks meet on its address alone."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "export"))
    from export_scenes import example

    scene = example("torchrun")
    assert "torch.distributed.run" in TARGETS.get("torchrun").export(scene)["machines/rome-1.sh"].text
    import yaml

    mesh = yaml.safe_load(TARGETS.get("wireguard").export(scene)["hosts.yaml"].text)["hosts"]
    inside = {name: Host(each["address"], each["ssh"], each["node"], each["interface"]) for name, each in mesh.items()}
    files = TARGETS.get("torchrun").export(replace(scene, hosts=HostList(inside)))
    for machine in inside:
        text = files[f"machines/{machine}.sh"].text
        assert "GLOO_SOCKET_IFNAME=hulk0 NCCL_SOCKET_IFNAME=hulk0" in text
        assert "MASTER_ADDR=10.77.0.1" in text and "torch.distributed.run" not in text
