"""From a survey's figures to links, from links to a cluster file, and what has drifted."""

from __future__ import annotations

from itertools import combinations

import pytest

from hulk.domain.cluster import pair
from hulk.errors import InputError
from hulk.io.agents_file import Given
from hulk.io.cluster_file import RegionEntry, read_cluster
from hulk.io.yamlfile import parse_document
from hulk.probe.drift import drift
from hulk.probe.links import FoundLink, found_links
from hulk.probe.machines import FoundMachine, found_machines, known_gpu
from hulk.probe.survey import Carried, Reading, Survey, Together
from hulk.probe.written import Made, cluster_text, quoted, update_text

MBIT = 1e6 / 8
MADE = Made("2026-11-30", "made by a test")


def carried(mbits: float) -> Carried:
    return Carried(mbits * MBIT, (mbits * MBIT * 0.9, mbits * MBIT, mbits * MBIT * 1.1), 1000)


def reading(a: str, b: str, ms: float, mbits: float, several: float | None = None) -> Reading:
    trips = tuple(2e-3 * ms * (1 + 0.01 * i) for i in range(-5, 6))
    return Reading(a, b, trips, carried(mbits), None if several is None else carried(several))


def four(readings: list[Reading], **kwargs: object) -> Survey:
    """Two machines in x, two in y; all reach each other unless said otherwise."""
    regions = {"x1": "x", "x2": "x", "y1": "y", "y2": "y"}
    trips = {pair(*ends): 0.02 for ends in combinations(sorted(regions), 2)}
    found = Survey(regions, trips=trips, readings=readings, flows=4)
    for key, value in kwargs.items():
        setattr(found, key, value)
    return found


def by_ends(links: list[FoundLink]) -> dict[tuple[str, str], FoundLink]:
    return {link.ends: link for link in links}


BETWEEN = [reading("x1", "y1", 10, 100, several=100), reading("y2", "x2", 10, 100)]
APART = (("x1", "y1"), ("x2", "y2"))


@pytest.mark.parametrize(("mbits", "trunk"), [(120, 120), (199, None), (160, 160), (60, 100)])
def test_a_shared_line_shows_when_pairs_at_once_carry_less(mbits, trunk):
    links = by_ends(found_links(four(BETWEEN, together={("x", "y"): Together(APART, carried(mbits))})))
    found = links["x", "y"].trunk
    assert found is None if trunk is None else found == pytest.approx(trunk * MBIT)


def test_several_flows_that_do_better_than_one_are_counted():
    """Two pairs, a flow each 100, four flows 300: apart 600; 330 at once is a shared line, 590 is none."""
    readings = [reading("x1", "y1", 10, 100, several=300), reading("y2", "x2", 10, 100)]
    for mbits, trunk in ((330, 330 * MBIT), (590, None)):
        links = by_ends(found_links(four(readings, together={("x", "y"): Together(APART, carried(mbits))})))
        assert links["x", "y"].trunk == (None if trunk is None else pytest.approx(trunk))


@pytest.mark.parametrize(("several", "trunk"), [(100, 100), (250, 250), (390, None)])
def test_one_pair_alone_shows_it_by_its_flows(several, trunk):
    found = Survey({"a": "x", "b": "y"}, trips={("a", "b"): 0.02}, flows=4)
    found.readings = [reading("a", "b", 10, 100, several=several), reading("b", "a", 10, 100)]
    (link,) = found_links(found)
    assert link.trunk == (None if trunk is None else pytest.approx(trunk * MBIT))


def test_medians_spreads_and_pairs_that_differ():
    readings = [reading("x1", "y1", 10, 100), reading("x2", "y2", 10.2, 98), reading("x1", "y2", 14, 100)]
    links = by_ends(found_links(four(readings)))
    whole = links["x", "y"]
    assert whole.latency == pytest.approx(10.2e-3)
    assert whole.bandwidth == pytest.approx(100 * MBIT)
    assert whole.latency_spread[0] < 10.2e-3 < whole.latency_spread[1]
    assert links["x1", "y2"].machines
    assert links["x1", "y2"].latency == pytest.approx(14e-3)
    assert ("x1", "y1") not in links
    assert links["x", "x"].guessed  # nobody measured it, but somebody called
    assert links["x", "x"].latency == pytest.approx(10e-3)


def test_who_is_not_reached_is_blocked():
    found = four(BETWEEN)
    for ends in (("x1", "y2"), ("x1", "x2")):
        del found.trips[ends]
        found.blocked[ends] = "silent"
    links = by_ends(found_links(found))
    assert links["x1", "y2"].blocked == "silent"
    assert links["x", "x"].blocked == "silent"
    assert not links["x", "y"].blocked


def machines() -> list[FoundMachine]:
    return [FoundMachine(name, name[0], "a100-80", 8) for name in ("x1", "x2", "y1", "y2")]


def test_the_file_says_what_was_found():
    found = four(BETWEEN, together={("x", "y"): Together(APART, carried(120))})
    del found.trips["x1", "y2"]
    found.blocked["x1", "y2"] = "silent"
    text = cluster_text("lab", {"x": RegionEntry(at=[1.0, 2.0])}, machines(), found_links(found), MADE)
    cluster = read_cluster(parse_document(text, name="lab.yaml"))
    link = cluster.link("x1", "y1")
    assert (link.latency, link.bandwidth, link.trunk) == pytest.approx((10e-3, 100 * MBIT, 120 * MBIT), rel=1e-3)
    assert link.origin == "measured"
    assert cluster.link("x1", "y2").blocked
    assert not cluster.link("x2", "y2").blocked
    assert cluster.link("x1", "x2").origin == "estimated"
    assert cluster.region("x").latitude == 1.0
    assert "measured: 2026-11-30" in text


def test_spread_and_day_are_checked_as_all_is():
    head = "regions: {x: {}, y: {}}\nmachines: [{name: m, region: x, gpu: h100, gpus: 1}]\nlinks:\n"
    good = "latency: 1 ms, bandwidth: 1 Gbit/s, measured: 2026-11-30, spread: {latency: [1 ms, 2 ms]}"
    read_cluster(parse_document(f"{head}  - {{between: [x, y], {good}}}", name="c.yaml"))
    for wrong, words in (
        ("latency: 1 ms, measured: yesterday", "measured"),
        ("latency: 1 ms, spread: {latency: [1 ms]}", "at least 2"),
        ("latency: 1 ms, spread: {latency: [1, 2]}", "unit"),
        ("blocked: true, spread: {latency: [1 ms, 2 ms]}", "a blocked link has no spread"),
        ("measured: 2026-11-30", "says nothing"),
    ):
        with pytest.raises(InputError, match=words):
            read_cluster(parse_document(f"{head}  - {{between: [x, y], {wrong}}}", name="c.yaml"))


@pytest.mark.parametrize("name", ["no", "null", "12", "1e5", "3.5", "a-1", "True", "été", "0x10"])
def test_names_stay_names(name):
    machine = FoundMachine(name, "r", "h100", 8, words="x\\y # [] {")
    cluster = read_cluster(parse_document(cluster_text(name, {}, [machine], [], MADE), name="c.yaml"))
    assert cluster.machines[0].name == name
    assert quoted(name).strip('"')


def test_an_update_extends_the_file_and_wins(tmp_path):
    found = four(BETWEEN)
    base = tmp_path / "base.yaml"
    base.write_text(cluster_text("lab", {}, machines(), found_links(found), MADE), encoding="utf-8")
    faster = found_links(four([reading("x1", "y1", 20, 300, several=300), reading("y2", "x2", 20, 300)]))
    text = update_text("lab", "./base.yaml", faster, MADE)
    cluster = read_cluster(parse_document(text, name="new.yaml"), folder=tmp_path)
    assert cluster.link("x1", "y1").latency == pytest.approx(20e-3, rel=1e-3)
    assert len(cluster.machines) == 4


def test_what_has_drifted_is_named():
    text = cluster_text("lab", {}, machines(), found_links(four(BETWEEN)), MADE)
    cluster = read_cluster(parse_document(text, name="lab.yaml"))
    same = by_drift(cluster, four(BETWEEN))
    assert same["x", "y"] == ()
    slower = four([reading("x1", "y1", 15, 50, several=50), reading("y2", "x2", 15, 50)])
    assert by_drift(cluster, slower)["x", "y"] == ("latency", "bandwidth")
    shared = four(BETWEEN, together={("x", "y"): Together(APART, carried(120))})
    assert by_drift(cluster, shared)["x", "y"] == ("trunk",)
    cut = four(BETWEEN)
    del cut.trips["x1", "y1"]
    cut.blocked["x1", "y1"] = "silent"
    assert by_drift(cluster, cut)["x1", "y1"] == ("blocked",)


def by_drift(cluster, found):
    return {each.now.ends: each.changed for each in drift(cluster, found_links(found))}


# ---- Machines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("Tesla V100-SXM2-16GB", "v100-16"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("Voodoo 2", None),
    ],
)
def test_a_drivers_name_is_a_type_of_the_catalogue(name, known):
    found = known_gpu(name)
    assert (None if found is None else found.name) == known


def facts(*gpus: dict, **kwargs: object) -> dict:
    return {"hostname": "h", "cores": 4, "memory": 2.0**34, "gpus": list(gpus), "cards": [], "absent": []} | kwargs


def test_machines_are_what_agents_find_unless_somebody_says_more():
    h100 = {"name": "NVIDIA H100 80GB HBM3", "memory": 79.6 * 2**30}
    card = {"name": "eth0", "bytes_per_s": 25e9 / 8, "kind": "ethernet"}
    found = {"a": facts(h100, h100, cards=[card], gpu_link="nvlink"), "b": facts()}
    given = [Given(name="a", region="x"), Given(name="b", region="x", gpu="v100", gpus=4, network="10 Gbit/s")]
    a, b = found_machines(given, found)
    assert (a.gpu, a.gpus, a.memory, a.network.each) == ("h100", 2, None, 25e9 / 8)
    assert "2 × NVIDIA H100" in a.words and "nvlink" in a.words
    assert (b.gpu, b.gpus, b.network.each) == ("v100-16", 4, 10e9 / 8)


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (facts(absent=["GPUs (no driver)"]), "no driver"),
        (facts({"name": "Voodoo 2", "memory": 1.0}), "Voodoo 2"),
        (facts({"name": "NVIDIA L4", "memory": None}, {"name": "NVIDIA A40", "memory": None}), "several types"),
        (facts({"name": "NVIDIA L4", "memory": 2.0**40}), "these have"),
    ],
)
def test_machines_with_unknown_gpus_are_all_named(here, words):
    given = [Given(name="m1", region="x"), Given(name="m2", region="x")]
    with pytest.raises(InputError, match=words) as refused:
        found_machines(given, {"m1": here, "m2": here})
    assert "m1" in str(refused.value) and "m2" in str(refused.value)


def test_what_an_agent_sends_cannot_leave_its_comment():
    evil = facts({"name": "NVIDIA L4", "memory": None}, hostname="h\nmachines: []\r\u2028- x", cards="nonsense")
    (machine,) = found_machines([Given(name="m", region="x")], {"m": evil})
    text = cluster_text("c", {}, [machine], [], MADE)
    assert [m.name for m in read_cluster(parse_document(text, name="c.yaml")).machines] == ["m"]
    assert len(text.splitlines()) == len(text.split("\n")) - 1
