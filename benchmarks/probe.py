"""How long `hulk probe` takes for 16 machines of a testbed, and how close it comes to the network that is emulated.

Four regions of four machines, 2 to 60 ms apart, three shared lines, two blocked pairs. Needs what `hulk testbed` needs:
Linux, root.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

from common import Report, parser
from hulk.domain.cluster import Cluster, pair
from hulk.io.cluster_file import load_cluster
from hulk.testbed import Testbed, missing

CLUSTER = """
name: sixteen
regions: {rome: {}, paris: {}, oslo: {}, tokyo: {}}
machines:
  - {name: rome, count: 4, region: rome, gpu: a100-80, gpus: 8}
  - {name: paris, count: 4, region: paris, gpu: a100-80, gpus: 8}
  - {name: oslo, count: 4, region: oslo, gpu: rtx-4090, gpus: 4}
  - {name: tokyo, count: 4, region: tokyo, gpu: h100, gpus: 8}
links:
  - {inside: rome, latency: 2 ms, bandwidth: 150 Mbit/s}
  - {inside: paris, latency: 2 ms, bandwidth: 120 Mbit/s}
  - {inside: oslo, latency: 3 ms, bandwidth: 100 Mbit/s}
  - {inside: tokyo, latency: 2 ms, bandwidth: 150 Mbit/s}
  - {between: [rome, paris], latency: 12 ms, bandwidth: 60 Mbit/s, trunk: 100 Mbit/s}
  - {between: [rome, oslo], latency: 20 ms, bandwidth: 50 Mbit/s}
  - {between: [rome, tokyo], latency: 60 ms, bandwidth: 30 Mbit/s, trunk: 60 Mbit/s}
  - {between: [paris, oslo], latency: 15 ms, bandwidth: 50 Mbit/s, trunk: 80 Mbit/s}
  - {between: [paris, tokyo], latency: 55 ms, bandwidth: 40 Mbit/s}
  - {between: [oslo, tokyo], latency: 50 ms, bandwidth: 40 Mbit/s}
  - {between: [rome-4, tokyo-4], blocked: true}
  - {between: [oslo-1, oslo-2], blocked: true}
"""
MINUTES = 3.0


def measure(folder: Path) -> tuple[Cluster, Cluster, float]:
    """The network as it is and as `hulk probe` finds it, and the seconds that took."""
    (folder / "truth.yaml").write_text(CLUSTER, encoding="utf-8")
    truth = load_cluster(folder / "truth.yaml")
    with Testbed.up(truth, name=f"probe-{os.getpid()}") as testbed:
        given = ["--testbed", testbed.name, "--update", "truth.yaml", "-o", "found.yaml"]
        began = time.monotonic()
        command = [sys.executable, "-c", "from hulk.cli import main; main()", "probe", *given]
        subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)
        return truth, load_cluster(folder / "found.yaml"), time.monotonic() - began


def build_report() -> Report:
    """Time, and errors over all pairs of machines."""
    report = Report("probe")
    with tempfile.TemporaryDirectory() as folder:
        truth, found, seconds = measure(Path(folder))
    latency, bandwidth, trunk, blocked = 0.0, 0.0, 0.0, 0
    rows = {}
    for a, b in combinations((machine.name for machine in truth.machines), 2):
        was, now = truth.link(a, b), found.link(a, b)
        if was.blocked or now.blocked:
            blocked += was.blocked != now.blocked
            continue
        off = [abs(now.latency / was.latency - 1), abs(now.bandwidth / was.bandwidth - 1)]
        if was.trunk is not None:
            trunk = max(trunk, 1.0 if now.trunk is None else abs(now.trunk / was.trunk - 1))
        latency, bandwidth = max(latency, off[0] if was.latency > 5e-3 else 0.0), max(bandwidth, off[1])
        between = pair(truth.machine(a).region, truth.machine(b).region)
        rows[between] = [" – ".join(between), *(f"{x:.4g}" for x in (was.latency * 1e3, now.latency * 1e3))]
        rows[between] += [f"{x * 8e-6:.1f}" for x in (was.bandwidth, now.bandwidth, was.trunk or 0, now.trunk or 0)]
    head = ["between", "latency (ms)", "found", "bandwidth (Mbit/s)", "found", "trunk", "found"]
    report.table("16 machines; the last pair of each two regions", head, list(rows.values()))
    report.figure("minutes", seconds / 60, most=MINUTES)
    report.figure("worst_latency_percent_above_5_ms", 100 * latency, most=5)
    report.figure("worst_bandwidth_percent", 100 * bandwidth, most=10)
    report.figure("worst_trunk_percent", 100 * trunk, most=10)
    report.figure("pairs_wrongly_blocked_or_open", blocked, most=0)
    return report


def main() -> int:
    """Command line."""
    given = parser(__doc__).parse_args()
    if missing():
        sys.exit(f"a testbed needs {', '.join(missing())}")
    return build_report().finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
