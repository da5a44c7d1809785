"""The bundled clusters and jobs: all load, and hold what they say."""

from __future__ import annotations

from collections import Counter

import pytest

from hulk.domain.cluster import Origin
from hulk.io.cluster_file import load_cluster
from hulk.io.files import bundled_names
from hulk.io.gpus import gpu, load_gpus
from hulk.io.jobs_file import load_jobs

CLUSTERS = bundled_names("clusters")


def test_the_catalogue_is_complete() -> None:
    expected = {"hulk47", "hulk47-strict", "datacenter", "spot", "universities", "us4", "world8", "gcp5", "mixed-rtx"}
    assert expected <= set(CLUSTERS)
    assert {"paper4", "paper6"} <= set(bundled_names("jobs"))


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_cluster_loads_and_states_its_sources(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    assert cluster.sources
    assert "Assumed" in cluster.about or "assumed" in cluster.about
    for link in (*cluster.region_links.values(), *cluster.machine_links.values()):
        assert link.blocked or (0 <= link.latency < 1 and 1e6 < link.bandwidth < 1e11)


@pytest.mark.parametrize("name", ["datacenter", "spot", "universities", "us4", "world8"])
def test_the_five_scenarios_have_64_v100(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.gpu_count == 64
    assert {machine.gpu.name for machine in cluster.machines} == {"v100-16"}


def test_hulk47_is_the_papers_cluster() -> None:
    cluster = load_cluster("hulk47")
    assert len(cluster.machines) == 47
    assert len(cluster.regions) == 12
    cities = Counter(machine.region for machine in cluster.machines)
    assert cities == {
        "beijing": 5, "neimeng": 5, "nanjing": 5, "quanzhou": 5, "california": 5, "tokyo": 5, "berlin": 3, "london": 1,
        "new-delhi": 3, "paris": 4, "rome": 5, "brasilia": 1,
    }  # fmt: skip
    measured = [link for link in cluster.machine_links.values() if link.latency_origin is Origin.MEASURED]
    assert len(measured) == len(cluster.machine_links) == 613
    assert all(link.bandwidth_origin is Origin.ESTIMATED for link in measured)
    assert sum(link.latency for link in measured) == pytest.approx(104.1793), "the sum of the cleaned list"
    assert cluster.link("beijing-1", "rome-2").latency == 0.296
    assert cluster.link("rome-5", "nanjing-1").latency == 0.740
    assert cluster.link("california-1", "california-5").latency == 0.0005
    blocked = [regions for regions, link in cluster.region_links.items() if link.blocked]
    assert blocked == [("beijing", "paris")]
    assert cluster.link("rome-1", "rome-2").origin is Origin.ESTIMATED
    assert cluster.link("rome-1", "rome-2").latency == 0.008
    assert cluster.link("beijing-1", "rome-3").latency == 0.296, "unmeasured: the median of the city pair"


def test_hulk47s_memory_is_the_data_sets_10124_gb() -> None:
    """Cards are sold in GB and hold about as many GiB."""
    cluster = load_cluster("hulk47")
    sold = {machine.name: round(machine.gpu.memory / 2**30) for machine in cluster.machines}
    sold |= {m.name: 19 for m in cluster.machines if m.gpu.name == "rtx-a4500"}
    assert sum(machine.gpus * sold[machine.name] for machine in cluster.machines) == 10124


def test_hulk47_strict_knows_the_measured_pairs_only() -> None:
    loose, strict = load_cluster("hulk47"), load_cluster("hulk47-strict")
    assert strict.machine_links == loose.machine_links
    assert all(link.blocked for link in strict.region_links.values())
    assert strict.machines == loose.machines


def test_gcp5_has_zones_with_egress_prices() -> None:
    cluster = load_cluster("gcp5")
    assert len(cluster.regions) == 5
    assert {machine.gpu.name for machine in cluster.machines} == {"a100-40", "v100-16"}
    assert cluster.egress("a100-central-a-1", "v100-central-b-1") == pytest.approx(0.01e-9)
    assert cluster.egress("a100-central-a-1", "a100-west-b-1") == pytest.approx(0.02e-9)
    assert cluster.egress("a100-central-a-1", "v100-central-a-1") == 0.0
    far = cluster.link("a100-central-a-1", "a100-west-b-1")
    assert (far.latency_origin, far.bandwidth_origin) == (Origin.ESTIMATED, Origin.MEASURED)


def test_mixed_rtx_is_slow_wherever_a_3090_takes_part() -> None:
    cluster = load_cluster("mixed-rtx")
    assert cluster.link("rtx3090-1", "titan-1").bandwidth < 0.12e9
    assert cluster.link("rtx2080-1", "titan-2").bandwidth == 2.857e9
    assert all(machine.gpus == 8 for machine in cluster.machines)


def test_world8_and_us4_hold_the_published_figures() -> None:
    world, us = load_cluster("world8"), load_cluster("us4")
    link = world.link("tokyo-1", "frankfurt-8")
    assert (link.latency, link.bandwidth) == (0.223, pytest.approx(0.36e9 / 8))
    assert len(world.region_links) == 36
    link = us.link("oregon-1", "virginia-16")
    assert (link.latency, link.bandwidth) == (0.067, pytest.approx(1.15e9 / 8))
    assert not any(link.blocked for link in (*world.region_links.values(), *us.region_links.values()))


def test_jobs_load() -> None:
    four, six = load_jobs("paper4"), load_jobs("paper6")
    assert [job.name for job in four] == ["opt-175b", "t5-11b", "gpt2-xl", "bert-large"]
    assert six[:4] == four
    assert [job.name for job in six[4:]] == ["roberta-large", "xlnet-large"]
    assert four[0].model.params == pytest.approx(175e9, rel=0.01)


def test_gpus_answer_to_aliases_in_any_case() -> None:
    assert gpu("A100-SXM4-40GB") is gpu("a100-40")
    assert len({id(kind) for kind in load_gpus().values()}) >= 40
    for kind in load_gpus().values():
        assert 4 * 2**30 <= kind.memory <= 300 * 2**30
        assert kind.rates
