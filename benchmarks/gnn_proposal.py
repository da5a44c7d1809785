"""How good the network's proposals are without any search over who gets what, for `gnn.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from common import Report
from gnn_scenes import Given, Kept, Scene, load, middle, propose, runs, say, spread
from hulk.cost.engine import HULK
from hulk.io.profiles import bundled_compute
from hulk.propose import Network, paper_policy
from hulk.propose.decode import SAMPLES, proposals
from hulk.search.assignment.race import GroupSearch
from hulk.search.baselines import BASELINES
from hulk.search.deals import Deal, empty_deal
from hulk.search.objective import job_cost
from hulk.search.results import OPEN, RUNS
from hulk.search.shape.arrange import arrange

ABLATIONS = Path(__file__).parent / "data" / "networks"
LOOKS = 10
ARRANGED = 3
TIMES = 10
BASELINE_LIMIT = 10.0
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Verdict:
    """One scene. `costs`: the objective of each way's best proposal with the best cut found inside each group, infinite
    where a job waits; `quick`: the network's with a few quick looks at cuts only; `drawn`: each network's as they were
    drawn, one look each, nothing refined; `likeliest`: each network's first answer alone, with the best cut found, so
    that no price chooses among several; `ratios`: the network's over each baseline's, next to nothing where only the
    baseline lets a job wait."""

    quick: float
    drawn: dict[str, float]
    likeliest: dict[str, float]
    costs: dict[str, float]
    ratios: dict[str, float]


def looked_at(search: GroupSearch, owner: Ints, known: Ints | None = None) -> Deal:
    """A deal with each job's shape the best of some quick looks at its machines, by `known` recipes among others.
    Groups share nothing, so that every job may take its best look."""
    best = search.judged(owner)._replace(owner=owner)
    best.status[:] = OPEN
    for _ in range(LOOKS):
        deal = search.judged(owner, known)
        if not np.array_equal(deal.owner, owner):  # it has made a move
            continue
        better = (deal.status == RUNS) & ((best.status != RUNS) | (deal.value < best.value))
        for own, its in zip(best[1:], deal[1:], strict=True):  # all but who has what
            own[better] = its[better]
    return best


def arranged(search: GroupSearch, deal: Deal) -> float:
    """The objective of a deal with the best cut found inside each group; infinite where a job waits."""
    total = 0.0
    for number, space in enumerate(search.spaces):
        better = arrange(space, np.flatnonzero(deal.owner == number).tolist())
        both = (deal.seconds[number], better[1].seconds if better else None)
        found = [seconds for seconds in both if seconds is not None]
        total += job_cost(space.job, min(found)) if found else math.inf
    return total


def cost_of(search: GroupSearch, deals: Sequence[Deal]) -> tuple[float, float]:
    """The least objective of some deals: with quick looks at cuts, and of the best few of those, arranged."""
    seen = sorted((looked_at(search, deal.owner, deal.recipes) for deal in deals), key=search.cost)
    quick = search.cost(seen[0])
    return quick if runs(search, quick) else math.inf, min(arranged(search, deal) for deal in seen[:ARRANGED])


def verdict(given: Given, others: dict[str, Path], scene: Scene) -> Verdict:
    """A scene, by the network, the paper's policy, networks to compare with, and baselines."""
    network = load(given.network)
    quick, ours = cost_of(*_proposed(scene, network))
    costs = {"network": ours, "paper": _of_paper(scene, network)}
    costs |= {name: cost_of(*_proposed(scene, load(folder)))[1] for name, folder in others.items()}
    raw = {name: _as_drawn(scene, load(folder)) for name, folder in {"network": given.network, **others}.items()}
    drawn, likeliest = ({name: pair[i] for name, pair in raw.items()} for i in (0, 1))
    return Verdict(quick, drawn, likeliest, costs, _over_baselines(scene, ours))


def _proposed(scene: Scene, network: Network) -> tuple[GroupSearch, list[Deal]]:
    search = scene.search(2)
    return search, propose(search, network, scene.seed, samples=SAMPLES, times=TIMES)


def _as_drawn(scene: Scene, network: Network) -> tuple[float, float]:
    """The least objective of proposals with one look at each, and that of the first, the likeliest, with the best cut
    found; infinite where a job waits."""
    search = scene.search(3)
    deals = proposals(search.packed, np.random.default_rng(scene.seed), samples=SAMPLES, network=network).deals
    least = min(search.cost(search.judged(deal.owner, deal.recipes)) for deal in deals)
    return least if runs(search, least) else math.inf, cost_of(search, deals[:1])[1]


def _of_paper(scene: Scene, network: Network) -> float:
    search = scene.search(2)
    owner = paper_policy(search.packed, network)
    return cost_of(search, [empty_deal(search.packed)._replace(owner=owner)])[1]


def _over_baselines(scene: Scene, ours: float) -> dict[str, float]:
    """The proposal's objective over each baseline's."""
    ratios = {}
    for name in ("greedy", "metis"):
        run = BASELINES.get(name).run
        result = run(
            scene.cluster, scene.jobs, compute=bundled_compute(), engine=HULK, seed=0, time_limit=BASELINE_LIMIT
        )
        theirs = sum(job_cost(job, result.seconds(job.name)) for job in scene.jobs)
        ratios[name] = ours / theirs if math.isfinite(ours) else math.inf
    return ratios


def proposal_part(report: Report, kept: Kept, given: Given) -> None:
    """The network's proposals, as they come."""
    others = {path.name: path for path in sorted(ABLATIONS.glob("*")) if (path / "network.onnx").exists()}
    verdicts: list[tuple[Verdict, float]] = []
    rows: list[list[object]] = []
    unknown = 0
    for done, (scene, found) in enumerate(spread(partial(verdict, given, others), given), 1):
        search = scene.search()
        best = kept.get(scene, search)
        if best is None or not runs(search, best.cost):
            unknown += 1
            continue
        verdicts.append((found, best.cost))
        gaps = [_percent(cost / best.cost - 1) for cost in (found.quick, *found.costs.values())]
        ratios = [f"{ratio:.3f}" for ratio in found.ratios.values()]
        rows.append([scene.cluster.name, scene.machines, len(scene.jobs), *gaps, *ratios])
        say(f"{done} of {given.scenes}: {scene.machines} machines, {gaps[1]}")
    if unknown:
        report.note(f"left out: {unknown} scenes of which no plan is known (--only marks finds them) or a job waits")
    rows.sort(key=lambda row: int(str(row[1])))
    head = ["scene", "machines", "jobs", "quick looks", "network", "paper", *others, "over greedy", "over METIS"]
    report.table("proposals above the best known; the network's over baselines", head, rows)
    _figures(report, verdicts)
    for name in {"zeroed", "gcn"} - others.keys():
        report.note(f"no network in {ABLATIONS.name}/{name}: not compared")


def _figures(report: Report, verdicts: Sequence[tuple[Verdict, float]]) -> None:
    if not verdicts:
        return
    gaps = {way: middle([v.costs[way] / best - 1 for v, best in verdicts]) for way in verdicts[0][0].costs}
    full = gaps.pop("network")
    report.figure("proposal_median_gap_percent", 100 * full, most=10)
    quick = middle([v.quick / best - 1 for v, best in verdicts])
    report.figure("proposal_quick_looks_median_gap_percent", 100 * quick)
    for name in verdicts[0][0].ratios:
        report.figure(f"better_than_{name}_share", fmean(v.ratios[name] < 1 for v, _ in verdicts), least=0.8)
    waiting = fmean(math.isinf(v.costs["paper"]) for v, _ in verdicts)
    report.figure("paper_policy_waiting_share", waiting)
    for name, gap in gaps.items():
        report.figure(f"{name}_median_gap_percent", 100 * gap)
        if name != "paper":
            report.figure(f"{name}_over_full", gap / full, least=1.2)
    for way, found in (
        ("as_drawn", [(v.drawn, best) for v, best in verdicts]),
        ("likeliest", [(v.likeliest, best) for v, best in verdicts]),
    ):
        medians = {name: middle([costs[name] / best - 1 for costs, best in found]) for name in found[0][0]}
        for name, gap in medians.items():
            report.figure(f"{way}_{name}_median_gap_percent", 100 * gap)
            if name != "network":
                report.figure(f"{way}_{name}_over_full", gap / medians["network"], least=1.2)


def _percent(gap: float) -> str:
    return "waits" if math.isinf(gap) else f"{100 * gap:.1f} %"
