"""`hulk probe` finds the network that a testbed emulates: latency within 5 %, bandwidth and shared lines within 10 %,
blocked pairs. Skipped where this machine cannot hold a testbed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from wide import fresh_name, needs_testbed

from hulk.domain.cluster import Cluster
from hulk.io.cluster_file import load_cluster
from hulk.testbed import Testbed

pytestmark = needs_testbed
ATTEMPTS = 3  # another process may take the processor away in the middle of a measurement
SLACK = 0.5e-3  # seconds: what the router and two processes take for a message, whatever the latency
THREE_SITES = """
name: three-sites
regions: {rome: {}, paris: {}, oslo: {}}
machines:
  - {name: rome, count: 2, region: rome, gpu: a100-80, gpus: 8}
  - {name: paris, count: 2, region: paris, gpu: a100-80, gpus: 8}
  - {name: oslo-1, region: oslo, gpu: rtx-4090, gpus: 4}
links:
  - {inside: rome, latency: 2 ms, bandwidth: 120 Mbit/s}
  - {inside: paris, latency: 3 ms, bandwidth: 80 Mbit/s}
  - {between: [rome, paris], latency: 12 ms, bandwidth: 60 Mbit/s, trunk: 75 Mbit/s}
  - {between: [rome, oslo], latency: 30 ms, bandwidth: 40 Mbit/s}
  - {between: [paris-1, oslo-1], latency: 20 ms, bandwidth: 50 Mbit/s}
  - {between: [paris-2, oslo-1], blocked: true}
"""


@pytest.fixture
def sites(tmp_path) -> Iterator[tuple[str, Cluster]]:
    path = tmp_path / "sites.yaml"
    path.write_text(THREE_SITES, encoding="utf-8")
    cluster = load_cluster(path)
    with Testbed.up(cluster, name=fresh_name()) as testbed:
        yield testbed.name, cluster


def hulk(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from hulk.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=400, check=False)


def wrong(found: Cluster, truth: Cluster) -> list[str]:
    """What is not as the testbed has it."""
    words = []
    for a, b in combinations((machine.name for machine in truth.machines), 2):
        was, now = truth.link(a, b), found.link(a, b)
        if was.blocked or now.blocked:
            words += [f"{a}–{b} blocked"] * (was.blocked != now.blocked)
            continue
        if abs(now.latency - was.latency) > max(0.05 * was.latency, SLACK):
            words.append(f"{a}–{b} latency {now.latency} for {was.latency}")
        if abs(now.bandwidth - was.bandwidth) > 0.1 * was.bandwidth:
            words.append(f"{a}–{b} bandwidth {now.bandwidth} for {was.bandwidth}")
        if was.trunk is not None and (now.trunk is None or abs(now.trunk - was.trunk) > 0.1 * was.trunk):
            words.append(f"{a}–{b} trunk {now.trunk} for {was.trunk}")
        # Where several flows share what one could have, that is a trunk of the flow's own bandwidth.
        if was.trunk is None and now.trunk is not None and now.trunk < 0.9 * was.bandwidth:
            words.append(f"{a}–{b} trunk {now.trunk} where there is none")
    return words


def test_the_emulated_network_is_found(sites, tmp_path):
    name, truth = sites
    quick = ("--seconds", "0.8", "--samples", "2")
    found: list[str] = ["not tried"]
    for attempt in range(ATTEMPTS):
        output = f"found-{attempt}.yaml"
        done = hulk("probe", "--testbed", name, "--update", "sites.yaml", "-o", output, "--json", *quick, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["missed"] == []
        found = wrong(load_cluster(tmp_path / output), truth)
        if not found:
            break
    assert not found
