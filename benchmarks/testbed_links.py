"""How exact an emulated network is, and what it costs: links of a testbed, each measured as `hulk testbed check` does.

Latency and throughput of seven links beside what is asked for; and the router's share of a core while it carries 50
Mbit/s to three links of 500 Mbit/s at once, as processor time for each second of traffic at the full rate. `--busy 4`
keeps four more processes at work meanwhile. Needs what `hulk testbed` needs: Linux, root.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from common import Report, parser
from hulk.domain.cluster import BLOCKED, Cluster, Link, Machine, Region, pair
from hulk.io.gpus import gpu
from hulk.testbed import Reading, Testbed, check, missing
from hulk.testbed.check import THROUGHPUT_HELD

MBIT = 1e6 / 8
LINKS = ((1, 0.2), (10, 10), (50, 1), (200, 75), (500, 75), (500, 150), (1000, 40))
"""Mbit/s, and ms one way."""
CARRIED = ((50, 1), (200, 1), (500, 1), (1000, 1), (500, 3))
"""Mbit/s, and how many such links at once."""
CARRIED_MS = 20
SECONDS = 5.0


@dataclass(frozen=True)
class Measured:
    """Links that were measured at the same time, and the router's share of a core while they were at their full
    rate."""

    readings: list[Reading]
    share: float


def cluster_of(links: int, mbits: float, milliseconds: float) -> Cluster:
    """Pairs of machines, a link between the two of each."""
    kind, card = gpu("v100-32"), 1e11
    names = [f"{side}{i}" for i in range(links) for side in "ab"]
    machines = tuple(Machine(name, name[0], kind, 1, kind.memory, card, kind.price) for name in names)
    link = Link(latency=milliseconds * 1e-3, bandwidth=mbits * MBIT)
    known = {pair("a", "a"): BLOCKED, pair("b", "b"): BLOCKED, pair("a", "b"): link}
    return Cluster("links", (Region("a"), Region("b")), machines, known)


def measure(links: int, mbits: float, milliseconds: float) -> Measured:
    """So many links of a kind, all at the same time."""
    with Testbed.up(cluster_of(links, mbits, milliseconds), name=f"links-{os.getpid()}") as testbed:
        before = _processor_seconds(testbed.pid)
        with ThreadPoolExecutor(links) as pool:
            found = pool.map(lambda i: check(testbed, [(f"a{i}", f"b{i}")], seconds=SECONDS), range(links))
            readings = [reading for each in found for reading in each]
        used = _processor_seconds(testbed.pid) - before
        carried = sum(path["bytes"] for path in testbed.traffic()["paths"])
        return Measured(readings, used / (carried / (links * mbits * MBIT)))


def _processor_seconds(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def build_report() -> Report:
    """All links."""
    report = Report("testbed_links")
    rows = []
    for mbits, milliseconds in LINKS:
        (reading,) = measure(1, mbits, milliseconds).readings
        name = f"{_rate(mbits)}, {milliseconds:g} ms"
        print(f"{name} …", file=sys.stderr)
        assert reading.latency is not None and reading.throughput is not None
        rows.append([name, f"{1e3 * reading.latency:.1f} ms", _rate(reading.throughput / MBIT)])
        off = 100 * abs(reading.throughput / (mbits * MBIT) - 1)
        report.figure(f"{name}.late_ms", 1e3 * reading.latency - milliseconds, most=max(2.0, 0.05 * milliseconds))
        report.figure(f"{name}.off_percent", off, most=10 if mbits * MBIT <= THROUGHPUT_HELD else None)
    report.table("one link at a time", ["link", "latency measured", "throughput"], rows)
    rows = []
    for mbits, links in CARRIED:
        measured = measure(links, mbits, CARRIED_MS)
        name = f"{links} × {_rate(mbits)}"
        print(f"{name} …", file=sys.stderr)
        least = min(reading.throughput or 0.0 for reading in measured.readings) / MBIT
        rows.append([name, _rate(least), f"{measured.share:.0%}"])
        report.figure(f"{name}.router_percent", 100 * measured.share)
    head = [f"carried at once, {CARRIED_MS} ms", "throughput of each, at least", "router's share of a core"]
    report.table("the router", head, rows)
    return report


def _rate(mbits: float) -> str:
    return f"{mbits:.3g} Mbit/s" if mbits < 999.5 else f"{mbits / 1e3:.3g} Gbit/s"


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--busy", type=int, default=0, metavar="N", help="so many processes at work meanwhile (0)")
    given = arguments.parse_args()
    if missing():
        sys.exit(f"a testbed needs {', '.join(missing())}")
    with busy(given.busy):
        report = build_report()
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
