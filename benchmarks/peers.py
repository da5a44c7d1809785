"""Hulk against search by others: evolutionary, METIS, greedy by region and random, each given ten times the time.

On bundled clusters and on irregular ones drawn by seed. The measure is the planner's default objective by the same
price: the weighted sum of the jobs' step times. Evolutionary and random search use all of the time; METIS and
greedy stop when they have tried everything they know. Hulk has two processes; the others have one each, all with a core
of their own.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median

from common import Report, parser
from generator import irregular
from hulk.contestant import PLANNED, hulk_result
from hulk.cost.compute import ComputeModel
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_profiles
from hulk.propose import bundled_network
from hulk.search.baselines import BASELINES
from hulk.search.baselines.evolution import evolution, random_best
from hulk.search.budget import Effort
from hulk.search.defaults import WORKERS

# OPT-175B needs more memory than any of these has but hulk47.
BUNDLED = {
    "world8": ("t5-11b", "gpt2-xl", "bert-large"),
    "us4": ("t5-11b", "gpt2-xl", "bert-large"),
    "spot": ("t5-11b", "gpt2-xl", "bert-large"),
    "gcp5": ("t5-11b", "gpt2-xl", "bert-large", "roberta-large", "xlnet-large"),
    "mixed-rtx": ("t5-11b", "gpt2-xl", "bert-large"),
    "hulk47": ("opt-175b", "t5-11b", "gpt2-xl", "bert-large", "roberta-large", "xlnet-large"),
}
SEEDS = range(20)
TIME_LIMIT = 4.0
MORE_TIME = 10.0
NO_END = 10**9  # moves: the time limit alone ends the search
PEERS = {
    "greedy": BASELINES.get("greedy").run,
    "metis": BASELINES.get("metis").run,
    "evolution": partial(evolution, evaluations=None),
    "random": partial(random_best, evaluations=None),
}


def scene(name: str) -> tuple[Cluster, tuple[Job, ...]]:
    """A bundled cluster with its jobs, or an irregular one ("seed 7")."""
    if name not in BUNDLED:
        return irregular(int(name.removeprefix("seed ")))
    known = {job.name: job for job in load_jobs("paper6")}
    return load_cluster(name), tuple(known[job] for job in BUNDLED[name])


def cost_of(peer: str, name: str, limit: float) -> float:
    """One peer's objective."""
    cluster, jobs = scene(name)
    compute = ComputeModel(bundled_profiles())
    return PEERS[peer](cluster, jobs, compute=compute, engine=PLANNED, seed=0, time_limit=limit).score(jobs).cost


def our_cost(name: str, time_limit: float) -> tuple[float, float]:
    """Hulk's objective, and the seconds that planning took."""
    cluster, jobs = scene(name)
    compute, network = ComputeModel(bundled_profiles()), bundled_network()
    effort = Effort(time_limit=time_limit, evaluations=NO_END)
    start = time.perf_counter()
    cost = hulk_result(cluster, jobs, compute=compute, network=network, effort=effort).score(jobs).cost
    return cost, time.perf_counter() - start


def build_report(time_limit: float = TIME_LIMIT, seeds: range = SEEDS, at_once: int = 2) -> Report:
    """All cases, `at_once` processes at a time."""
    report = Report("peers")
    names = (*BUNDLED, *(f"seed {seed}" for seed in seeds))
    fork = get_context("fork")
    with ProcessPoolExecutor(max(1, at_once // WORKERS), mp_context=fork) as pool:
        ours = dict(zip(names, pool.map(partial(our_cost, time_limit=time_limit), names), strict=True))
    with ProcessPoolExecutor(at_once, mp_context=fork) as pool:
        # The two that use all of their time first.
        tasks = [(peer, name) for peer in reversed(PEERS) for name in names]
        found = {task: pool.submit(cost_of, *task, MORE_TIME * time_limit) for task in tasks}
        for (peer, name), one in found.items():
            one.add_done_callback(lambda _, done=f"{name}: {peer}": print(done, file=sys.stderr))
        costs = {task: one.result() for task, one in found.items()}
    rows, worst, gains = [], 0.0, []
    for name in names:
        cluster, jobs = scene(name)
        own, others = ours[name][0], [costs[peer, name] for peer in PEERS]
        best = min(others)
        worst = max(worst, own / best)
        if name.startswith("seed"):
            gains.append(100 * (1 - own / best))
        report.figure(f"{name}.hulk_s", own)
        report.figure(f"{name}.best_peer_s", best)
        cells = [f"{cost:.4g}" if cost < 1e8 else "waits" for cost in (own, *others)]
        rows.append([name, len(cluster.machines), len(jobs), *cells, f"{1 - own / best:+.1%}"])
    head = ["cluster", "machines", "jobs", "hulk", *PEERS, "below the best"]
    report.table("weighted sum of step times, seconds (waits: a job found no place)", head, rows)
    report.figure("worst_ratio_to_best_peer", worst, most=1.0 + 1e-9)
    if gains:
        report.figure("median_below_best_peer_irregular_percent", median(gains), least=5.0)
    report.figure("slowest_plan_s", max(took for _, took in ours.values()))
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--time-limit", type=float, default=TIME_LIMIT, help="seconds for Hulk; the others have ten times as many"
    )
    arguments.add_argument("--seeds", type=int, default=len(SEEDS), help="how many irregular clusters")
    arguments.add_argument("--first", type=int, default=0, help="the first of them")
    arguments.add_argument("--at-once", type=int, default=2, help="processes at a time: as many as there are cores")
    given = arguments.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    return build_report(given.time_limit, seeds, given.at_once).finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
