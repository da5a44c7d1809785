"""What the graph network is worth: how much sooner the search has a good plan, how good proposals are, what it costs.

    python benchmarks/gnn.py --find                    the best plans known: 60 s each way, two processes; resumes
    python benchmarks/gnn.py                           everything, about an hour
    python benchmarks/gnn.py --only time --scenes 20   parts: time, proposal, inference, bundled, change, cold

Scenes are drawn by seeds that training has not seen, with 32 to 1,000 machines spread evenly in the logarithm, at least
two jobs each. The best plan known of a scene is the cheapest deal that any run has come across; its cost is kept in
benchmarks/data/gnn.json. Costs are those of `GroupSearch.cost`, the search's own price of a deal: the weighted sum of
the jobs' times before the cuts are refined.

time       seconds until the search for deals has one within 1 % of the best known, with and without the network. The
           same search, one process: runs of 1, 2, 4 … s, each from new draws, the last one's best deals and, with the
           network, its proposals, until one gets there or the cap is reached (--first 20: one run that cools down over
           the whole cap). Reading the network, packing the scene and making proposals count; loading compiled code
           does not. A miss counts as the cap; scenes that both miss are left out of ratios.
proposal   proposals priced by a few quick looks, no search: the best of them, the paper's one-shot policy, and networks
           trained without edge features or as a plain graph convolution, where benchmarks/data/networks has them. And
           the best proposal against greedy and METIS, with the same search for cuts inside the groups.
inference  what the planner waits for: all proposals for hulk47, and for 10,000 machines with 60 jobs.
bundled    plans of the bundled clusters, with and without the network, in the same time.
change     one machine is taken away: how much of the proposal changes, and the plan with the network against without.
cold       `hulk plan hulk47 paper4`: seconds until the first plan is on screen, and in all.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pty
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

import hulk.propose
from common import Report, parser
from hulk import planner
from hulk.cost.engine import HULK
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.gnn.generator import Scale, scattered
from hulk.gnn.labels import compute_model, spaces_of
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.planner import load_compiled, plan_in_parallel, plan_jobs
from hulk.propose import Facts, Graph, Network, load_network, paper_policy, proposals
from hulk.search.baselines import BASELINES
from hulk.search.dealing import Deal, empty_deal
from hulk.search.evaluate import JobSpace
from hulk.search.existing import change_cluster
from hulk.search.groups import GroupSearch
from hulk.search.objective import job_cost
from hulk.search.seeds import arrange
from peers import BUNDLED, objective
from scale import SIZES, scenario

HERE = Path(__file__).parent
KEPT = HERE / "data" / "gnn.json"
ABLATIONS = HERE / "data" / "networks"
SHIPPED = Path(hulk.propose.__file__).parent / "data"
FIRST_SEED, SEED_STEP, DRAWS = 1_000_000, 1_000, 100
LEAST, MOST, MOST_JOBS = 32, 1_000, 20
BANDS = {"32_47": (32, 47), "48_256": (48, 256), "257_1000": (257, 1_000)}
WITHIN = 1.01
LOOKS = 10
BASELINE_LIMIT = 10.0
NO_END = 10**9
PLAN_LIMIT = 3.0
CHANGED = 10
REPEATS = 5
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Scene:
    """A cluster and its jobs, drawn by seed."""

    seed: int
    cluster: Cluster
    jobs: tuple[Job, ...]

    @property
    def machines(self) -> int:
        """How many machines it has."""
        return len(self.cluster.machines)

    def spaces(self) -> list[JobSpace]:
        """A space for each job, made anew: nothing of an earlier run is remembered."""
        return spaces_of(self.cluster, self.jobs, compute_model())

    def search(self, *seed: int) -> GroupSearch:
        """The search for deals, packed anew."""
        return GroupSearch(self.spaces(), np.random.default_rng([self.seed, *seed]))


def draw(number: int, block: int) -> Scene:
    """The scene of a number: every first few numbers have sizes spread over the whole range."""
    # Bits of the number backwards (van der Corput): 0, 1/2, 1/4, 3/4, 1/8 …
    spread = int(f"{number:016b}"[::-1], 2) / 2**16
    size = round(LEAST * (MOST / LEAST) ** spread)
    first = FIRST_SEED + SEED_STEP * block + number
    for seed in range(first, FIRST_SEED + SEED_STEP * (block + 1), DRAWS):
        cluster, jobs = scattered(seed, Scale(size, size, MOST_JOBS))
        if len(jobs) > 1:
            return Scene(seed, cluster, jobs)
    raise ValueError(f"no scene {number} with two jobs")


@dataclass(frozen=True)
class Best:
    """The cheapest deal known of a scene, who found it, and how many seconds every way of `--find` had."""

    cost: float
    found_by: str
    searched_s: float
    machines: int
    jobs: int
    fingerprint: str


class Kept:
    """The best plans known, in a file that is written whenever one is found. One whose scene is priced differently by
    now is not known any more."""

    def __init__(self, path: Path = KEPT) -> None:
        self.path = path
        entries = json.loads(path.read_text())["scenes"] if path.exists() else {}
        self._best = {int(seed): Best(**entry) for seed, entry in entries.items()}

    def get(self, scene: Scene, search: GroupSearch) -> Best | None:
        """What is known of a scene."""
        best = self._best.get(scene.seed)
        return best if best and best.fingerprint == fingerprint(search) else None

    def offer(self, scene: Scene, search: GroupSearch, cost: float, found_by: str, searched_s: float = 0.0) -> Best:
        """Keep it where it is cheaper than what is known; the best known from now on."""
        known = self.get(scene, search)
        found = Best(cost, found_by, searched_s, scene.machines, len(scene.jobs), fingerprint(search))
        if known and known.cost <= cost * (1 + 1e-9):
            found = known
        best = replace(found, searched_s=max(searched_s, known.searched_s if known else 0.0))
        if best != known:
            self._best[scene.seed] = best
            self._write()
        return best

    def _write(self) -> None:
        made = {
            "made_by": "python benchmarks/gnn.py --find",
            "scenes": {str(seed): asdict(self._best[seed]) for seed in sorted(self._best)},
        }
        draft = self.path.with_suffix(".part")
        draft.write_text(json.dumps(made, indent=1) + "\n")
        draft.replace(self.path)


def fingerprint(search: GroupSearch) -> str:
    """Changes with the scene and with what the price says of it."""
    packed = search.packed
    made = hashlib.sha256()
    for part in (
        packed.floats,
        packed.need,
        packed.weight,
        packed.rate,
        packed.allowed,
        packed.latency,
        packed.bandwidth,
    ):
        made.update(np.asarray(part, np.float32).tobytes())
    return made.hexdigest()[:16]


def runs(search: GroupSearch, cost: float) -> bool:
    """Whether no job waits at that cost."""
    return cost < float(search.packed.waiting.min())


def load(folder: Path) -> Network:
    """A network, read anew; the end where there is none."""
    network = load_network(folder)
    if network is None:
        sys.exit(2)  # the warning has said why
    return network


def propose(search: GroupSearch, network: Network, *seed: int) -> list[Deal]:
    """Proposals as the planner asks for them."""
    return proposals(search.packed, np.random.default_rng(seed), samples=planner._SAMPLES, network=network)


@cache
def warm() -> None:
    """Load compiled code and the libraries."""
    scene = draw(0, 0)
    load_compiled(scene.spaces()[0])
    search = scene.search()
    search.deals(moves=100, deadline=time.monotonic() + 1, stop=lambda: False)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


# The best known.


def found_in(seconds: float, folder: Path | None, number: int, block: int) -> tuple[int, dict[str, float]]:
    """A scene's best deals, each way having so much time."""
    scene = draw(number, block)
    costs = {}
    for way, network in (("without the network", None), ("with the network", load(folder) if folder else None)):
        if way == "with the network" and network is None:
            continue
        search = scene.search(len(costs))
        starts = propose(search, network, scene.seed) if network else []
        deadline = time.monotonic() + seconds
        deals = search.deals(moves=NO_END, deadline=deadline, stop=lambda: False, starts=starts)
        costs[f"{seconds:g} s {way}"] = search.cost(deals[0])
    return number, costs


def find(given: Given) -> None:
    """Search every scene that has not been searched for so long, in two processes, and keep what is found."""
    warm()
    kept = Kept()
    folder = given.network if (given.network / "network.onnx").exists() else None
    scenes = {number: draw(number, given.seed) for number in range(given.scenes)}
    known = {number: kept.get(scene, scene.search()) for number, scene in scenes.items()}
    needed = [number for number, best in known.items() if best is None or best.searched_s < given.seconds]
    command = f"python benchmarks/gnn.py --find --seed {given.seed} --seconds {given.seconds:g}"
    with ProcessPoolExecutor(2) as pool:
        work = [pool.submit(found_in, given.seconds, folder, number, given.seed) for number in needed]
        for done, future in enumerate(as_completed(work), 1):
            number, costs = future.result()
            scene, way = scenes[number], min(costs, key=costs.__getitem__)
            kept.offer(scene, scene.search(), costs[way], f"{command}: {way}", given.seconds)
            cells = ", ".join(f"{name} {cost:.5g}" for name, cost in costs.items())
            say(f"{done} of {len(needed)}: {scene.cluster.name}, {scene.machines} machines: {cells}")


@dataclass(frozen=True)
class Known:
    """A scene, the search that prices it, and the cost of its best plan known."""

    scene: Scene
    search: GroupSearch
    best: float


def known_scenes(report: Report, kept: Kept, given: Given) -> Iterator[Known]:
    """The scenes whose best plan known lets no job wait. One that was never searched is searched shortly."""
    waiting, short = 0, 0
    for number in range(given.scenes):
        scene = draw(number, given.seed)
        search = scene.search()
        best = kept.get(scene, search)
        if best is None or best.searched_s == 0:
            short += 1
            _, costs = found_in(given.cap / 4, given.network, number, given.seed)
            best = kept.offer(scene, search, min(costs.values()), f"python benchmarks/gnn.py --cap {given.cap:g}")
        if not runs(search, best.cost):
            waiting += 1
            continue
        yield Known(scene, search, best.cost)
    if waiting:
        report.note(f"left out: {waiting} scenes where the best plan known has a job wait")
    if short:
        report.note(f"searched for {given.cap / 4:g} s only: {short} scenes (--find searches longer)")


# Time to come near the best known.


@dataclass(frozen=True)
class Reached:
    """Seconds until a deal within 1 % was found (None: not by the cap), and the best cost seen."""

    seconds: float | None
    cost: float


@dataclass
class Watch:
    """Listens to a search: the best cost so far, and when it came below the target."""

    target: float
    begin: float
    cost: float = math.inf
    seconds: float | None = None

    def report(self, cost: float) -> None:
        """The search's best so far."""
        self.cost = min(self.cost, cost)
        if self.seconds is None and self.cost <= self.target:
            self.seconds = time.monotonic() - self.begin

    def stop(self) -> bool:
        """Whether it is near enough."""
        return self.seconds is not None


def reach(scene: Scene, best: float, given: Given, folder: Path | None) -> Reached:
    """Search until near the best known: runs twice as long as the one before, the last one to the cap."""
    watch = Watch(WITHIN * best, time.monotonic())
    network = load(folder) if folder else None
    search = scene.search(1)
    starts = propose(search, network, scene.seed) if network else []
    length, end = given.first, watch.begin + given.cap
    best_so_far: list[Deal] = []
    while not watch.stop() and (now := time.monotonic()) < end:
        deadline = now + length if now + 2 * length < end else end
        best_so_far = search.deals(
            moves=NO_END, deadline=deadline, stop=watch.stop, starts=[*starts, *best_so_far], report=watch.report
        )
        watch.report(search.cost(best_so_far[0]))
        length *= 2
    in_time = watch.seconds is not None and watch.seconds <= given.cap
    return Reached(watch.seconds if in_time else None, watch.cost)


@dataclass(frozen=True)
class Race:
    """One scene: seconds to come near the best known."""

    machines: int
    without: float | None
    with_network: float | None

    def speedup(self, cap: float) -> float:
        """How many times sooner with the network; a miss counts as the cap."""
        return (self.without or cap) / (self.with_network or cap)

    @property
    def counts(self) -> bool:
        """Whether either got there."""
        return self.without is not None or self.with_network is not None


def time_part(report: Report, kept: Kept, given: Given) -> None:
    """With and without the network, scene by scene."""
    races, rows = [], []
    for known in known_scenes(report, kept, given):
        scene = known.scene
        reached = [reach(scene, known.best, given, folder) for folder in (None, given.network)]
        command = f"python benchmarks/gnn.py --only time --cap {given.cap:g}"
        kept.offer(scene, known.search, min(each.cost for each in reached), command)
        race = Race(scene.machines, reached[0].seconds, reached[1].seconds)
        races.append(race)
        shown = [
            f"{each.seconds:.2f}" if each.seconds else f"{100 * (each.cost / known.best - 1):+.1f} %"
            for each in reached
        ]
        rows.append([scene.cluster.name, scene.machines, len(scene.jobs), *shown, f"{race.speedup(given.cap):.2f}"])
        say(f"time: {'  '.join(map(str, rows[-1]))}")
    head = ["scene", "machines", "jobs", "without", "with", "speedup"]
    report.table("seconds until within 1 % of the best known (or how far above it at the cap)", head, rows)
    _time_figures(report, races, given.cap)


def _time_figures(report: Report, races: Sequence[Race], cap: float) -> None:
    counted = [race for race in races if race.counts]
    middle = [race for race in counted if BANDS["48_256"][0] <= race.machines <= BANDS["48_256"][1]]
    report.figure("scenes", len(races))
    report.figure("scenes_both_miss", len(races) - len(counted))
    report.figure("speedup_median", _median([race.speedup(cap) for race in counted]), least=3)
    report.figure("speedup_median_48_256", _median([race.speedup(cap) for race in middle]), least=5)
    slowdowns = [1 / race.speedup(cap) for race in counted]
    report.figure("slowdown_p95", float(np.percentile(slowdowns, 95)) if slowdowns else math.nan, most=1.5)
    for name, (least, most) in BANDS.items():
        band = [race for race in races if least <= race.machines <= most]
        if band:
            report.figure(f"hit_rate_without_{name}", fmean(race.without is not None for race in band))
            report.figure(f"hit_rate_with_{name}", fmean(race.with_network is not None for race in band))


def _median(values: Sequence[float]) -> float:
    return median(values) if values else math.nan


# Proposals without search.


@dataclass(frozen=True)
class Verdict:
    """One scene. Gaps over the best known, and ratios of the arranged proposal to baselines: infinite where the
    proposal lets a job wait; a ratio is next to nothing where only the baseline does."""

    gap: float
    paper: float
    ablations: dict[str, float]
    ratios: dict[str, float]


def looked_at(search: GroupSearch, owner: Ints, known: Ints | None = None) -> Deal:
    """A deal with each job's shape the best of some quick looks at its machines, by `known` recipes among others.
    Groups share nothing, so that every job may take its best look."""
    best = search.judged(owner)._replace(owner=owner)
    best.seconds[:] = -1.0
    for _ in range(LOOKS):
        deal = search.judged(owner, known)
        if not np.array_equal(deal.owner, owner):  # it has made a move
            continue
        better = (deal.seconds >= 0) & ((best.seconds < 0) | (deal.seconds < best.seconds))
        best.seconds[better], best.recipes[better] = deal.seconds[better], deal.recipes[better]
    return best


def gap_of(known: Known, deals: Sequence[Deal]) -> tuple[float, Deal]:
    """How far the best of some deals is above the best known, and that deal."""
    search = known.scene.search(2)
    costs = [search.cost(looked_at(search, deal.owner, deal.recipes)) for deal in deals]
    least = min(costs)
    return least / known.best - 1 if runs(search, least) else math.inf, deals[costs.index(least)]


def arranged(scene: Scene, deal: Deal) -> float:
    """The objective of a deal with the best cut found inside each group; infinite where a job waits."""
    search, owner = scene.search(3), deal.owner
    seconds = looked_at(search, owner, deal.recipes).seconds.tolist()
    total = 0.0
    for number, space in enumerate(search.spaces):
        better = arrange(space, np.flatnonzero(owner == number).tolist())
        found = [value for value in (seconds[number], better[1] if better else -1.0) if value >= 0]
        total += job_cost(space.job, min(found)) if found else math.inf
    return total


def against_baselines(scene: Scene, deal: Deal) -> dict[str, float]:
    """The proposal's objective over each baseline's."""
    ours, ratios = arranged(scene, deal), {}
    if not math.isfinite(ours):
        return {"greedy": math.inf, "metis": math.inf}
    for name in ("greedy", "metis"):
        run = BASELINES.get(name).run
        result = run(scene.cluster, scene.jobs, compute=compute_model(), engine=HULK, seed=0, time_limit=BASELINE_LIMIT)
        ratios[name] = ours / objective(result, scene.jobs)
    return ratios


def proposal_part(report: Report, kept: Kept, given: Given) -> None:
    """The network's proposals, as they come."""
    network = load(given.network)
    others = {path.name: load(path) for path in sorted(ABLATIONS.glob("*")) if (path / "network.onnx").exists()}
    verdicts, rows = [], []
    for known in known_scenes(report, kept, given):
        scene, search = known.scene, known.search
        gap, deal = gap_of(known, propose(search, network, scene.seed))
        verdict = Verdict(
            gap,
            gap_of(known, [_dealt(search, paper_policy(search.packed, network))])[0],
            {name: gap_of(known, propose(search, other, scene.seed))[0] for name, other in others.items()},
            against_baselines(scene, deal),
        )
        verdicts.append(verdict)
        gaps = [_percent(each) for each in (verdict.gap, verdict.paper, *verdict.ablations.values())]
        ratios = [f"{ratio:.3f}" for ratio in verdict.ratios.values()]
        rows.append([scene.cluster.name, scene.machines, len(scene.jobs), *gaps, *ratios])
        say(f"proposal: {'  '.join(map(str, rows[-1]))}")
    head = ["scene", "machines", "jobs", "network", "paper", *others, "over greedy", "over METIS"]
    report.table("gaps of proposals over the best known; the arranged proposal over baselines", head, rows)
    _proposal_figures(report, verdicts)
    for name in {"zeroed", "gcn"} - others.keys():
        report.note(f"no network in {ABLATIONS.name}/{name}: not compared")


def _dealt(search: GroupSearch, owner: Ints) -> Deal:
    """Owners alone as a deal."""
    return empty_deal(search.packed)._replace(owner=owner)


def _proposal_figures(report: Report, verdicts: Sequence[Verdict]) -> None:
    full = _median([verdict.gap for verdict in verdicts])
    report.figure("proposal_median_gap_percent", 100 * full, most=10)
    for name in verdicts[0].ratios if verdicts else ():
        share = fmean(verdict.ratios[name] < 1 for verdict in verdicts)
        report.figure(f"better_than_{name}_share", share, least=0.8)
    report.figure("paper_policy_median_gap_percent", 100 * _median([verdict.paper for verdict in verdicts]))
    report.figure("paper_policy_waiting_share", fmean(math.isinf(verdict.paper) for verdict in verdicts))
    for name in verdicts[0].ablations if verdicts else ():
        gap = _median([verdict.ablations[name] for verdict in verdicts])
        report.figure(f"{name}_median_gap_percent", 100 * gap)
        report.figure(f"{name}_over_full", gap / full, least=1.2)


def _percent(gap: float) -> str:
    return "waits" if math.isinf(gap) else f"{100 * gap:.1f} %"


# What it costs.


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
    spaces = spaces_of(load_cluster("hulk47"), load_jobs("paper4"), compute_model())
    search = GroupSearch(spaces, np.random.default_rng(0))
    facts = Facts.of(search.packed)
    graph, known = Graph.of(facts), np.zeros((planner._SAMPLES, facts.places, facts.jobs + 1))
    report.figure("inference_hulk47_ms", 1e3 * seconds_of(lambda: propose(search, network, 0)), most=50)
    report.figure("one_call_hulk47_ms", 1e3 * seconds_of(lambda: network.run(graph, known)))
    report.figure("read_network_ms", 1e3 * seconds_of(lambda: load(given.network)))
    command = [sys.executable, __file__, "--one", "--seed", str(given.seed), "--network", str(given.network)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    large = json.loads(done.stdout)
    report.figure("inference_10000_s", large["seconds"], most=1)
    report.figure("inference_10000_gib", large["bytes"] / 2**30, most=1)
    report.note(f"10,000 machines are {large['places']} classes")


def infer_large(folder: Path, seed: int) -> dict[str, float]:
    """Proposals for 10,000 machines; how far the peak of memory then is above what was held before the network."""
    regions, count, _ = SIZES[10_000]
    cluster, jobs = scenario(10_000, regions, count, seed)
    search = GroupSearch(spaces_of(cluster, jobs, compute_model()), np.random.default_rng(0))
    held = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    network = load(folder)
    seconds = seconds_of(lambda: propose(search, network, 0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": seconds, "bytes": float(peak - held), "places": len(search.packed.latency)}


# Plans.


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
            plan = partial(plan_in_parallel, cluster, jobs, compute=compute_model(), workers=2, seed=seed)
            costs = [plan(time_limit=PLAN_LIMIT, network=given_to).cost for given_to in (None, network)]
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
    network = load(given.network)
    least, most = BANDS["48_256"]
    rows, changed, ratios = [], [], []
    for known in known_scenes(report, kept, given):
        scene = known.scene
        if not least <= scene.machines <= most:
            continue
        lost = int(np.random.default_rng(scene.seed).integers(scene.machines))
        smaller = change_cluster(scene.cluster, [scene.cluster.machines[lost].name], [])
        owners = [
            _first(spaces_of(cluster, scene.jobs, compute_model()), network) for cluster in (scene.cluster, smaller)
        ]
        changed.append(float(np.mean(np.delete(owners[0], lost) != owners[1])))
        plan = partial(plan_jobs, smaller, scene.jobs, compute=compute_model(), time_limit=PLAN_LIMIT)
        costs = [plan(network=given_to).cost for given_to in (None, network)]
        ratios.append(costs[1] / costs[0])
        cells = [f"{100 * changed[-1]:.1f} %", *(f"{cost:.5g}" for cost in costs), f"{ratios[-1]:.4f}"]
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
    return proposals(packed, np.random.default_rng(0), samples=1, network=network)[0].owner


# The command.


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
    plan = [sys.executable, "-c", "from hulk.cli import main; main()", "plan", "hulk47", "paper4", "--time-limit"]
    watched([*plan, "1"], b"best so far")
    runs_of_it = [watched([*plan, "8"], b"best so far") for _ in range(3)]
    report.figure("first_plan_on_screen_s", median(first for first, _ in runs_of_it), most=2)
    report.figure("plan_command_s", median(total for _, total in runs_of_it), most=10)


# Command line.


PARTS: dict[str, Callable[[Report, Kept, Given], None]] = {
    "time": time_part,
    "proposal": proposal_part,
    "inference": inference_part,
    "bundled": bundled_part,
    "change": change_part,
    "cold": cold_part,
}


@dataclass(frozen=True)
class Given:
    """What was asked for."""

    scenes: int = 64
    seed: int = 0
    cap: float = 20.0
    first: float = 1.0
    seconds: float = 60.0
    network: Path = SHIPPED


def build_report(given: Given, only: Sequence[str] = tuple(PARTS), kept: Kept | None = None) -> Report:
    """The parts asked for."""
    report = Report("gnn")
    warm()
    for name in only:
        PARTS[name](report, kept or Kept(), given)
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    default = Given()
    arguments.add_argument("--seed", type=int, default=default.seed, help="which scenes; 0 are the kept ones")
    arguments.add_argument("--scenes", type=int, default=default.scenes, help=f"how many, up to {DRAWS}")
    arguments.add_argument("--cap", type=float, default=default.cap, help="seconds for a search to come near the best")
    arguments.add_argument("--first", type=float, default=default.first, help="seconds of its first run; then doubled")
    arguments.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    arguments.add_argument("--network", type=Path, default=default.network, help="folder with network.onnx")
    arguments.add_argument("--find", action="store_true", help="search for the best plans known, nothing else")
    arguments.add_argument("--seconds", type=float, default=default.seconds, help="with --find: for each way")
    arguments.add_argument("--one", action="store_true", help="10,000 machines, numbers as JSON")
    got = arguments.parse_args()
    given = Given(min(got.scenes, DRAWS), got.seed, got.cap, got.first, got.seconds, got.network.resolve())
    only = got.only.split(",")
    if unknown := set(only) - PARTS.keys():
        arguments.error(f"no part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    if got.one:
        print(json.dumps(infer_large(given.network, given.seed)))
        return 0
    if got.find:
        find(given)
        return 0
    return build_report(given, only).finish(got.json)


if __name__ == "__main__":
    sys.exit(main())
