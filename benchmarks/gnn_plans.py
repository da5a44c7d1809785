"""What the network costs, and what whole plans gain by it, for `gnn.py`."""

from __future__ import annotations

import json
import math
import os
import pty
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from common import Report
from gnn_scenes import Given, Kept, draw, load, say
from hulk.domain.cluster import change_cluster
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_compute
from hulk.planner import plan_in_parallel, plan_jobs
from hulk.propose import Facts, Graph, Network, proposals
from hulk.propose.decode import Proposals
from hulk.search.assignment.race import GroupSearch
from hulk.search.budget import Effort
from hulk.search.job_space import JobSpace
from hulk.search.request import Request
from hulk.search.spaces import spaces_of
from hulk.starting import SAMPLES
from peers import BUNDLED
from scale import SIZES, scenario

PLAN_LIMIT = 3.0
CHANGED, LEAST_CHANGED, MOST_CHANGED = 10, 48, 256  # scenes, and machines of each
REPEATS = 5
Ints = NDArray[np.int64]


def seconds_of(action: Callable[[], object]) -> float:
    """Seconds an action takes: the median of several times."""
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begin)
    return median(taken)


def inference_part(report: Report, kept: Kept, given: Given) -> None:
    """hulk47 here, 10,000 machines in a process of its own, so that its memory is its own."""
    del kept
    network = load(given.network)
    spaces = spaces_of(load_cluster("hulk47"), load_jobs("paper4"), bundled_compute())
    search = GroupSearch(spaces, np.random.default_rng(0))
    facts = Facts.of(search.packed)
    graph, known = Graph.of(facts), np.zeros((SAMPLES, facts.places, facts.jobs + 1))
    report.figure("inference_hulk47_ms", 1e3 * seconds_of(lambda: inferred(search, network)), most=50)
    report.figure("one_call_hulk47_ms", 1e3 * seconds_of(lambda: network.run(graph, known)))
    report.figure("read_network_ms", 1e3 * seconds_of(lambda: load(given.network)))
    command = [
        sys.executable,
        str(Path(__file__).with_name("gnn.py")),
        "--one",
        "--network",
        str(given.network),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    large = json.loads(done.stdout)
    report.figure("inference_10000_s", large["seconds"], most=1)
    report.figure("inference_10000_gib", large["bytes"] / 2**30, most=1)
    report.note(f"10,000 machines are {large['places']} classes")


def inferred(search: GroupSearch, network: Network) -> Proposals:
    """What the planner asks the network for first: proposals as they come, before any is refined."""
    return proposals(search.packed, np.random.default_rng(0), samples=SAMPLES, network=network)


def infer_large(folder: Path) -> dict[str, float]:
    """Proposals for 10,000 machines; how far the peak of memory then is above what was held before the network."""
    regions, count, _ = SIZES[10_000]
    cluster, jobs = scenario(10_000, regions, count, 0)
    search = GroupSearch(spaces_of(cluster, jobs, bundled_compute()), np.random.default_rng(0))
    held = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    network = load(folder)
    seconds = seconds_of(lambda: inferred(search, network))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "bytes": float(peak - held), "places": len(search.packed.latency)}


def bundled_part(report: Report, kept: Kept, given: Given) -> None:
    """Every bundled cluster with two seeds."""
    del kept
    network, paper6 = load(given.network), {job.name: job for job in load_jobs("paper6")}
    cases = {name: (name, tuple(paper6[job] for job in jobs)) for name, jobs in BUNDLED.items()}
    cases["hulk47, paper4"] = ("hulk47", load_jobs("paper4"))
    rows, ratios = [], []
    for title, (name, jobs) in cases.items():
        cluster = load_cluster(name)
        for seed in (0, 1):
            effort = Effort(time_limit=PLAN_LIMIT, workers=2, seed=seed)
            plan = partial(plan_in_parallel, Request(cluster, jobs, bundled_compute()), effort)
            costs = [plan(network=given_to).cost for given_to in (None, network)]
            ratios.append(costs[1] / costs[0])
            cells = [f"{cost:.5g}" for cost in costs]
            rows.append([title, len(cluster.machines), len(jobs), seed, *cells, f"{ratios[-1]:.4f}"])
            say(f"bundled: {'  '.join(map(str, rows[-1]))}")
    head = ["cluster", "machines", "jobs", "seed", "without", "with", "with / without"]
    report.table(f"objective after {PLAN_LIMIT:g} s", head, rows)
    report.figure("worst_with_over_without", max(ratios), most=1.0 + 1e-9)
    report.figure("mean_with_over_without", math.exp(fmean(map(math.log, ratios))))


def change_part(report: Report, kept: Kept, given: Given) -> None:
    """One machine less, in some scenes of middle size."""
    del kept
    network = load(given.network)
    rows, changed, ratios = [], [], []
    for number in given.numbers:
        scene = draw(number)
        if not LEAST_CHANGED <= scene.machines <= MOST_CHANGED:
            continue
        lost = int(np.random.default_rng(scene.seed).integers(scene.machines))
        smaller = change_cluster(scene.cluster, [scene.cluster.machines[lost].name], [])
        owners = [
            _first(spaces_of(cluster, scene.jobs, bundled_compute()), network) for cluster in (scene.cluster, smaller)
        ]
        changed.append(float(np.mean(np.delete(owners[0], lost) != owners[1])))
        plan = partial(plan_jobs, Request(smaller, scene.jobs, bundled_compute()), Effort(time_limit=PLAN_LIMIT))
        plans = [plan(network=given_to) for given_to in (None, network)]
        costs = [made.cost for made in plans]
        ratio = "a job waits"
        if not any(made.plan.waiting for made in plans):
            ratios.append(costs[1] / costs[0])
            ratio = f"{ratios[-1]:.4f}"
        cells = [f"{100 * changed[-1]:.1f} %", *(f"{cost:.5g}" for cost in costs), ratio]
        rows.append([scene.cluster.name, scene.machines, len(scene.jobs), *cells])
        say(f"change: {'  '.join(map(str, rows[-1]))}")
        if len(rows) == CHANGED:
            break
    head = ["scene", "machines", "jobs", "owners changed", "without", "with", "with / without"]
    report.table(f"one machine less; objective after {PLAN_LIMIT:g} s", head, rows)
    report.figure("owners_changed_share", fmean(changed))
    report.figure("replan_with_over_without", math.exp(fmean(map(math.log, ratios))), most=1.02)


def _first(spaces: Sequence[JobSpace], network: Network) -> Ints:
    """The likeliest deal: nothing drawn."""
    packed = GroupSearch(spaces, np.random.default_rng(0)).packed
    return proposals(packed, np.random.default_rng(0), samples=1, network=network).deals[0].owner


def watched(command: Sequence[str], words: bytes) -> tuple[float, float]:
    """Run a command whose stderr is a terminal: seconds until it shows these words (or until its end), and in all."""
    ours, theirs = pty.openpty()
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown, first = b"", None
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # nobody has the other end any more
            break
        shown += part
        if first is None and words in shown:
            first = time.perf_counter() - begin
    os.close(ours)
    if process.wait():
        raise RuntimeError(shown.decode(errors="replace"))
    total = time.perf_counter() - begin
    return total if first is None else first, total


def cold_part(report: Report, kept: Kept, given: Given) -> None:
    """The middle one of three runs, after one that compiles where that is needed."""
    del kept, given
    plan = [sys.executable, "-c", "from hulk.cli import main; main()", "plan", "hulk47", "paper4"]
    watched([*plan, "--time-limit", "1"], b"best so far")
    runs_of_it = [watched(plan, b"best so far") for _ in range(3)]
    report.figure("first_plan_on_screen_s", median(first for first, _ in runs_of_it), most=2)
    report.figure("plan_command_s", median(total for _, total in runs_of_it), most=10)
