"""How much sooner the search has a good plan with the network, for `gnn.py`."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from common import Report
from gnn_scenes import BANDS, NO_END, Given, Kept, Scene, load, middle, propose, runs, say, spread
from hulk import planner
from hulk.search.deals import Deal

WITHIN = 1.01
MARKS = (1.0, 3.0, 7.0, 15.0, 30.0, 60.0)


@dataclass(frozen=True)
class Track:
    """How the best cost of a search fell: seconds since its begin, and the cost from then on."""

    points: tuple[tuple[float, float], ...]

    @property
    def least(self) -> float:
        """The best cost in the end."""
        return self.points[-1][1]

    def at(self, seconds: float) -> float:
        """The best cost by then; infinite before the first."""
        return min((cost for taken, cost in self.points if taken <= seconds), default=math.inf)

    def reached(self, cost: float) -> float | None:
        """Seconds until it was no dearer than that."""
        return next((taken for taken, found in self.points if found <= cost), None)


@dataclass(frozen=True)
class Race:
    """One scene: tracks of the same searches without and with the network, one for each seed, and the best cost
    known."""

    scene: Scene
    without: tuple[Track, ...]
    with_network: tuple[Track, ...]
    best: float

    def hits(self, tracks: Sequence[Track]) -> list[float | None]:
        """Seconds until each was within 1 % of the best known."""
        return [each.reached(WITHIN * self.best) for each in tracks]

    def seconds(self, tracks: Sequence[Track], cap: float) -> float:
        """The mean of them; a miss counts as the cap."""
        return fmean(cap if taken is None else taken for taken in self.hits(tracks))

    def speedup(self, cap: float) -> float:
        """How many times sooner with the network."""
        return self.seconds(self.without, cap) / self.seconds(self.with_network, cap)

    @property
    def counts(self) -> bool:
        """Whether any got there."""
        return any(taken is not None for taken in self.hits((*self.without, *self.with_network)))


def track(scene: Scene, given: Given, folder: Path | None, seed: int) -> Track:
    """Search until the cap: runs twice as long as the one before, each from new draws and the last one's best deals,
    with the network also from new proposals, as the planner has them."""
    begin = time.monotonic()
    points: list[tuple[float, float]] = []

    def report(deal: Deal) -> None:
        cost = search.cost(deal)
        if not points or cost < points[-1][1]:
            points.append((time.monotonic() - begin, cost))

    search = scene.search(1, seed, report=report)
    network = load(folder) if folder and planner.asks_network(search) else None
    length, end = given.first, begin + given.cap
    best: list[Deal] = []
    while (now := time.monotonic()) < end:
        deadline = now + length if now + 2 * length < end else end
        proposed = []
        if network:
            until = now + planner._PROPOSING * (deadline - now)
            proposed = propose(search, network, scene.seed, seed, int(length / given.first), deadline=until)
        best = search.deals(
            moves=NO_END,
            deadline=deadline,
            starts=[*proposed, *best],
            length=length / given.first,
        )
        length *= 2
    in_time = [point for point in points if point[0] <= given.cap]
    return Track(tuple(in_time or points[:1]))


def both_ways(given: Given, scene: Scene) -> list[tuple[Track, Track]]:
    """A scene without and with the network, one after the other, with each seed."""
    return [
        (track(scene, given, None, seed), track(scene, given, given.network, seed)) for seed in range(given.repeats)
    ]


def time_part(report: Report, kept: Kept, given: Given) -> None:
    """With and without the network, scene by scene. What is found on the way may be the best known."""
    command = f"python benchmarks/gnn.py --only time --seed {given.seed} --cap {given.cap:g} --repeats {given.repeats}"
    races: list[Race] = []
    waiting = 0
    for done, (scene, tracks) in enumerate(spread(partial(both_ways, given), given), 1):
        search = scene.search()
        without, with_network = zip(*tracks, strict=True)
        least, way = min(
            (track.least, way)
            for way, found in (("without it", without), ("with the network", with_network))
            for track in found
        )
        best = kept.offer(scene, search, least, f"{command}: {way}", given.cap).cost
        say(f"{done} of {given.scenes}: {scene.machines} machines, {least / best - 1:+.1%} from the best, {way}")
        if runs(search, best):
            races.append(Race(scene, without, with_network, best))
        else:
            waiting += 1
    if waiting:
        report.note(f"left out: {waiting} scenes where the best plan known has a job wait")
    races.sort(key=lambda each: each.scene.machines)
    title = f"seconds until within 1 % of the best known, mean of {given.repeats} (or how far above it at the cap)"
    report.table(title, ["scene", "machines", "jobs", "without", "with", "speed-up"], _rows(races, given))
    _figures(report, races, given.cap)


def _rows(races: Sequence[Race], given: Given) -> list[list[object]]:
    return [
        [
            each.scene.cluster.name,
            each.scene.machines,
            len(each.scene.jobs),
            _cell(each, each.without, given.cap),
            _cell(each, each.with_network, given.cap),
            f"{each.speedup(given.cap):.2f}",
        ]
        for each in races
    ]


def _cell(race: Race, tracks: Sequence[Track], cap: float) -> str:
    if all(taken is None for taken in race.hits(tracks)):
        return f"{100 * (min(each.least for each in tracks) / race.best - 1):+.1f} %"
    return f"{race.seconds(tracks, cap):.2f}"


def _figures(report: Report, races: Sequence[Race], cap: float) -> None:
    counted = [each for each in races if each.counts]
    report.figure("scenes", len(races))
    report.figure("scenes_both_miss", len(races) - len(counted))
    report.figure("speedup_median", middle([each.speedup(cap) for each in counted]), least=3)
    slowdowns = [1 / each.speedup(cap) for each in counted]
    report.figure("slowdown_p95", float(np.percentile(slowdowns, 95)) if slowdowns else math.nan, most=1.5)
    for name, (least, most) in BANDS.items():
        band = [each for each in races if least <= each.scene.machines <= most]
        if band:
            ratios = [each.speedup(cap) for each in band if each.counts]
            report.figure(f"speedup_median_{name}", middle(ratios), least=5 if name == "48_256" else None)
            for way, tracks in _ways(band).items():
                hits = [taken is not None for race, found in tracks for taken in race.hits(found)]
                report.figure(f"hit_rate_{way}_{name}", fmean(hits))
    for mark in MARKS:
        if mark <= cap:
            for way, tracks in _ways(races).items():
                gaps = [each.at(mark) / race.best - 1 for race, found in tracks for each in found]
                report.figure(f"gap_percent_{way}_after_{mark:g}_s", 100 * middle(gaps))


def _ways(races: Sequence[Race]) -> dict[str, list[tuple[Race, tuple[Track, ...]]]]:
    """Tracks of both ways."""
    return {
        "without": [(race, race.without) for race in races],
        "with": [(race, race.with_network) for race in races],
    }
