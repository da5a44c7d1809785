"""Which machines are not as the cluster file has them."""

from __future__ import annotations

from typing import Any

import pytest

from hulk.io.agents_file import Given
from hulk.io.cluster_file import read_cluster
from hulk.io.yamlfile import parse_document
from hulk.probe.drift import drifted_machines

LAB = read_cluster(
    parse_document(
        """
        name: lab
        regions: {oslo: {}}
        gpus: [{name: ours, like: a100-80, memory: 60 GiB}]
        machines:
          - {name: m, region: oslo, gpu: a100-80, gpus: 4, network: 25 Gbit/s}
          - {name: own, region: oslo, gpu: ours, gpus: 2, network: 25 Gbit/s}
        """,
        name="lab",
    )
)
A100 = {"name": "NVIDIA A100-SXM4-80GB", "memory": LAB.machine("m").memory}
CARD = {"name": "eth0", "bytes_per_s": 25e9 / 8, "kind": "ethernet"}
FACTS: dict[str, Any] = {"gpus": [A100] * 4, "cards": [CARD], "absent": []}


def changed(facts: dict[str, Any], name: str = "m", **said: Any) -> dict[str, tuple[str, str]]:
    given = Given(name=name, region="oslo", **said)
    [found] = drifted_machines(LAB, [given], {name: facts})
    return dict(found.changed)


@pytest.mark.parametrize(
    ("facts", "what", "was", "now"),
    [
        ({}, None, "", ""),
        ({"gpus": [A100] * 3}, "GPUs", "4 × a100-80", "3 × NVIDIA A100-SXM4-80GB"),
        ({"gpus": [], "absent": ["GPUs (no driver of NVIDIA's)"]}, "GPUs", "4 × a100-80", "none found (GPUs (no"),
        ({"gpus": [{"name": "NVIDIA H100 80GB HBM3", "memory": 85e9}] * 4}, "type", "a100-80", "h100"),
        ({"gpus": [{"name": "A Thing"}] * 4}, "type", "a100-80", "A Thing"),
        ({"gpus": [*[A100] * 3, A100 | {"memory": 40e9}]}, "memory", "80", "37.3 GiB"),
        ({"gpus": [{"name": A100["name"], "memory": None}] * 4}, None, "", ""),
        ({"cards": [CARD | {"bytes_per_s": 10e9 / 8}]}, "network", "25.0 Gbit/s", "10.0 Gbit/s a card"),
        ({"cards": [CARD | {"bytes_per_s": None}]}, None, "", ""),
        ({"cards": [], "absent": ["network cards"]}, None, "", ""),
        ({"gpus": None, "cards": None}, "GPUs", "4 × a100-80", "none found"),
    ],
)  # fmt: skip
def test_what_has_drifted_is_named(facts: dict[str, Any], what: str | None, was: str, now: str) -> None:
    found = changed(FACTS | facts)
    assert list(found) == ([] if what is None else [what])
    if what is not None:
        assert found[what][0].startswith(was) and found[what][1].startswith(now)


def test_what_a_person_says_wins() -> None:
    assert changed(FACTS | {"gpus": []}, gpu="a100-80", gpus=4) == {}
    assert changed(FACTS, gpu="h100", gpus=8) == {
        "GPUs": ("4 × a100-80", "8 × h100"), "type": ("a100-80", "h100"),
    }  # fmt: skip


def test_a_type_of_the_clusters_own_is_counted() -> None:
    mine = {"name": "NVIDIA Something", "memory": LAB.machine("own").memory}
    assert changed(FACTS | {"gpus": [mine] * 2}, "own") == {}
    assert list(changed(FACTS | {"gpus": [mine]}, "own")) == ["GPUs"]
    assert changed(FACTS | {"gpus": [mine] * 2}, "own", gpu="ours", gpus=2) == {}
