"""Cluster files: what they mean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster, Origin
from hulk.errors import InputError
from hulk.io import estimate
from hulk.io.cluster_file import load_cluster, read_cluster
from hulk.io.jobs_file import read_jobs
from hulk.io.plan_file import read_plan
from hulk.io.schema import schema
from hulk.io.yamlfile import parse_document

BASE = """
regions:
  rome: {label: Rome, at: [41.90, 12.50], egress: 0.09 $/GB}
  paris: {at: [48.86, 2.35]}
machines:
  - {name: rome, count: 3, region: rome, gpu: a100-80, gpus: 8, memory: 79 GiB, network: 10 Gbit/s, price: 16 $/h}
  - {name: p, count: 2, region: paris, gpu: A100-40GB, gpus: 4}
"""


def cluster(more: str = "", base: str = BASE) -> Cluster:
    return read_cluster(parse_document(base + more, name="mine.yaml"))


def test_machines_spread_out_with_overrides_and_defaults() -> None:
    got = cluster()
    assert got.name == "mine"
    assert [m.name for m in got.machines] == ["rome-1", "rome-2", "rome-3", "p-1", "p-2"]
    rome, paris = got.machine("rome-2"), got.machine("p-1")
    assert (rome.memory, rome.network, rome.price) == (79 * 2**30, 1.25e9, pytest.approx(16 / 3600))
    assert paris.gpu.name == "a100-40"
    assert (paris.memory, paris.network, paris.price) == (paris.gpu.memory, 25e9 / 8, 4 * paris.gpu.price)
    assert got.gpu_count == 32
    assert got.egress("rome-1", "p-1") == pytest.approx(0.09e-9)
    assert got.egress("p-1", "rome-1") == 0.0


@pytest.mark.parametrize("words", ["8 x 200 Gbit/s", "8x200 Gbit/s", "8 × 200 Gbit/s"])
def test_several_network_cards(words: str) -> None:
    got = cluster(base=BASE.replace("10 Gbit/s", words)).machine("rome-1")
    assert (got.cards, got.network, got.card) == (8, 200e9, 25e9)
    one_flow = cluster(base=BASE.replace("10 Gbit/s", words)).link("rome-1", "rome-2")
    assert one_flow.bandwidth == 25e9


@pytest.mark.parametrize(
    "words", ["0 x 200 Gbit/s", "65 x 200 Gbit/s", "8 x", "8 x 8 x 200 Gbit/s", "x 200 Gbit/s", "8 x 0 Gbit/s"]
)
def test_cards_that_cannot_be(words: str) -> None:
    with pytest.raises(InputError, match=r"machines\[0\].network"):
        cluster(base=BASE.replace("10 Gbit/s", words))


def test_what_nobody_measured_is_estimated() -> None:
    got = cluster()
    inside = got.link("rome-1", "rome-2")
    assert (inside.latency, inside.bandwidth) == (0.5e-3, 1.25e9)
    between = got.link("rome-1", "p-2")
    assert between.latency == pytest.approx(1.397 * 1.106e6 / 2e8 + 2.83e-3, rel=0.01)
    assert between.bandwidth == estimate.bandwidth_from_latency(between.latency)
    for link in (inside, between):
        assert (link.latency_origin, link.bandwidth_origin) == (Origin.ESTIMATED, Origin.ESTIMATED)


def test_links_of_machines_win_over_groups_and_groups_over_regions() -> None:
    got = cluster("""
links:
  - {between: [rome, paris], latency: 20 ms, bandwidth: 1 Gbit/s, trunk: 10 Gbit/s, egress: 0.02 $/GB}
  - {between: [rome-1, p], latency: 30 ms}
  - {between: [p-1, rome-1], latency: 40 ms, bandwidth: ~2 Gbit/s}
  - {inside: rome, latency: 1 ms}
  - {inside: p, bandwidth: 5 Gbit/s}
""")
    assert got.link("rome-2", "p-1").latency == 0.020
    assert got.link("rome-1", "p-2").latency == 0.030
    assert got.link("rome-1", "p-1").latency == 0.040
    exception = got.link("rome-1", "p-1")
    assert (exception.latency_origin, exception.bandwidth_origin) == (Origin.MEASURED, Origin.ESTIMATED)
    assert (exception.trunk, exception.egress) == (1.25e9, pytest.approx(0.02e-9))
    assert got.egress("p-2", "rome-2") == pytest.approx(0.02e-9)
    inside = got.link("rome-1", "rome-3")
    assert (inside.latency, inside.bandwidth) == (1e-3, estimate.bandwidth_from_latency(1e-3))
    assert got.link("p-1", "p-2").latency_origin is Origin.ESTIMATED
    assert got.link("p-1", "p-2").bandwidth_origin is Origin.MEASURED


def test_unmeasured_pairs_are_like_the_median_of_the_measured_or_blocked() -> None:
    links = """
links:
  - {between: [rome-1, p-1], latency: 20 ms}
  - {between: [rome-2, p-1], latency: 30 ms}
  - {between: [rome-3, p-1], latency: 70 ms}
"""
    got = cluster(links)
    assert got.link("rome-1", "p-2").latency == 0.030
    assert got.link("rome-1", "p-2").origin is Origin.ESTIMATED
    assert got.link("rome-3", "p-1").origin is Origin.MEASURED
    strict = cluster(links + "assume: {unmeasured_pairs: blocked}\n")
    assert strict.link("rome-1", "p-2").blocked
    assert not strict.link("rome-1", "p-1").blocked
    assert not strict.link("rome-1", "rome-2").blocked


def test_assumptions() -> None:
    got = cluster("assume: {inside: {latency: 2 ms, bandwidth: 3 Gbit/s}, between: blocked}\n")
    assert (got.link("rome-1", "rome-2").latency, got.link("rome-1", "rome-2").bandwidth) == (2e-3, 3e9 / 8)
    assert got.link("rome-1", "rome-2").origin is Origin.ESTIMATED
    assert got.link("rome-1", "p-1").blocked
    assert cluster("assume: {inside: {blocked: true}}\n").link("p-1", "p-2").blocked


def test_extending_adds_and_overrides(tmp_path: Path) -> None:
    links = "links:\n  - {between: [rome-1, p-1], latency: 20 ms}\n  - {inside: rome, latency: 1 ms}\n"
    (tmp_path / "base.yaml").write_text(BASE + links)
    (tmp_path / "child.yaml").write_text("""
extends: base.yaml
regions: {oslo: {at: [59.91, 10.75]}}
machines: [{name: o, region: oslo, gpu: h100, gpus: 8}]
links:
  - {inside: rome, latency: 2 ms}
  - {between: [rome, paris], blocked: true}
  - {between: [o, p-1], latency: 15 ms}
assume: {between: blocked}
""")
    got = load_cluster(str(tmp_path / "child.yaml"))
    assert got.name == "child"
    assert len(got.machines) == 6
    assert got.link("rome-1", "rome-2").latency == 2e-3
    assert got.link("rome-1", "p-1").blocked, "what is said later of two regions wins"
    assert got.link("o", "p-1").latency == 0.015
    assert got.link("o", "rome-1").blocked


def test_a_region_without_coordinates_is_fine_where_nothing_is_estimated() -> None:
    text = "regions: {a: {}, b: {}}\nmachines:\n"
    text += "".join(f"  - {{name: m-{r}, region: {r}, gpu: t4, gpus: 1}}\n" for r in "ab")
    got = cluster("links: [{between: [m-a, m-b], latency: 1 ms}]\n", base=text)
    assert got.link("m-a", "m-b").latency == 1e-3


def test_the_estimates_hold_their_stated_errors_on_measured_pairs() -> None:
    """The 28 pairs of world8 are among the 45 that the fit was made on; its latencies are round trips."""
    world = load_cluster("world8")
    latency_errors, bandwidth_errors = [], []
    for (a, b), link in world.region_links.items():
        if a == b:
            continue
        metres = estimate.distance(world.region(a), world.region(b))
        assert metres is not None
        latency_errors.append(abs(estimate.latency_from_distance(metres) / (link.latency / 2) - 1))
        bandwidth_errors.append(abs(estimate.bandwidth_from_latency(link.latency / 2) / link.bandwidth - 1))
    assert sorted(latency_errors)[14] < 0.20
    assert max(latency_errors) < 0.48
    assert sorted(bandwidth_errors)[14] < 0.12
    assert max(bandwidth_errors) < 0.56


def test_estimated_bandwidth_falls_with_latency() -> None:
    values = [estimate.bandwidth_from_latency(1e-5 * 1.3**step) for step in range(60)]
    assert values == sorted(values, reverse=True)
    assert estimate.bandwidth_from_latency(0.0) == 12.5e9
    assert estimate.bandwidth_from_latency(0.0025) == pytest.approx(2e9 / 8)


def test_ten_thousand_machines_load() -> None:
    text = "regions: {a: {at: [0, 0]}, b: {at: [1, 1]}}\nmachines:\n"
    text += "".join(f"  - {{name: m-{r}, count: 5000, region: {r}, gpu: h100, gpus: 8}}\n" for r in "ab")
    got = cluster("links: [{between: [m-a-1, b], latency: 7 ms}]\n", base=text)
    assert got.gpu_count == 80_000
    assert got.link("m-b-4999", "m-a-1").latency == 7e-3


@pytest.mark.parametrize("kind", ["cluster", "jobs", "plan"])
def test_every_field_of_a_schema_is_described(kind: str) -> None:
    document = schema(kind)
    assert document["title"] == f"Hulk {kind} file"
    for name, part in {"": document, **document["$defs"]}.items():
        assert part.get("description"), name
        for key, field in part.get("properties", {}).items():
            assert field.get("description"), f"{name}.{key}"


def test_the_examples_of_the_documentation_load() -> None:
    text = (Path(__file__).parents[1] / "docs" / "file-formats.md").read_text()
    blocks = re.findall(r"^```(\w+) (cluster|jobs|plan)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [kind for _, kind, _ in blocks] == ["cluster", "cluster", "cluster", "cluster", "jobs", "plan"]
    documents = [parse_document(body, name=f"{kind}.{form}", is_json=form == "json") for form, kind, body in blocks]
    labs, own, extended, stored = (read_cluster(document) for document in documents[:4])
    assert stored.storage == {"rome": 2.5e8, "oslo": 5e8}
    assert len(labs.machines) == 7
    assert [gpu.name for gpu in own.gpus] == ["a100-big", "h100-cool", "mine"]
    assert len(extended.machines) == 48
    check_plan(read_plan(documents[5]), labs, read_jobs(documents[4]))


def test_the_schemas_accept_the_documentations_examples() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = (Path(__file__).parents[1] / "docs" / "file-formats.md").read_text()
    for form, kind, body in re.findall(r"^```(\w+) (cluster|jobs|plan)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        jsonschema.validate(parse_document(body, name="x", is_json=form == "json").value, schema(kind))
