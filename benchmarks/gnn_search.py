"""How good the search's plan is after so many seconds, with the network and without, for `gnn.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from common import Report
from gnn_scenes import Given, Kept, Scene, load, middle, runs, say, spread
from hulk.planner import plan_jobs
from hulk.search.budget import Effort
from hulk.search.objective import Score

MARKS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds since the begin of a search."""
SIZES = {"small": (0, 299), "large": (300, 1_000)}
"""Machines of a scene, from and to."""
WORST = 10.0
"""The most that a gap counts, and what it is where there is no plan yet or a job waits: then medians are numbers."""
HALVED = (0.5, 1.0)
MOST_RATIO = 0.6
"""Of the gap without the network that is left with it on large scenes at those marks: half, and room for noise."""
MOST_MORE = 1.0
"""Percentage points by which a gap may be larger with the network: noise."""


@dataclass(frozen=True)
class Track:
    """How the best cost of a search fell: seconds since its begin, and the cost from then on."""

    points: tuple[tuple[float, float], ...]

    @property
    def least(self) -> float:
        """The best cost in the end; infinite where there is none."""
        return self.at(math.inf)

    def at(self, seconds: float) -> float:
        """The best cost by then; infinite before the first."""
        return min((cost for taken, cost in self.points if taken <= seconds), default=math.inf)


@dataclass(frozen=True)
class Race:
    """One scene: tracks of the same searches without and with the network, one for each seed, and the best cost
    known."""

    scene: Scene
    without: tuple[Track, ...]
    with_network: tuple[Track, ...]
    best: float

    def gaps(self, tracks: Sequence[Track], mark: float) -> list[float]:
        """How far each is above the best known at a mark, as a share of it."""
        return [min(WORST, each.at(mark) / self.best - 1) for each in tracks]

    @property
    def ways(self) -> dict[str, tuple[Track, ...]]:
        """Both ways by name."""
        return {"without": self.without, "with": self.with_network}


def track(scene: Scene, limit: float, folder: Path | None, seed: int) -> Track:
    """A search of at most so many seconds, as `hulk plan` makes it, followed. Packing the scene counts; reading the
    network and loading compiled code, which come before, do not."""
    points: list[tuple[float, float]] = []

    def follow(seconds: float, score: Score) -> None:
        points.append((seconds, score.goal))

    network = load(folder) if folder else None
    plan_jobs(scene.request(), Effort(time_limit=limit, seed=seed), network=network, progress=follow)
    return Track(tuple(points))


def both_ways(given: Given, scene: Scene) -> list[tuple[Track, Track]]:
    """A scene without and with the network, one after the other, with each seed."""
    scene.search()  # so that no way finds anything of the scene's models remembered that the other did not
    return [
        (track(scene, given.limit, None, seed), track(scene, given.limit, given.network, seed))
        for seed in range(given.repeats)
    ]


def marks_part(report: Report, kept: Kept, given: Given) -> None:
    """With and without the network, scene by scene. What is found on the way may be the best known."""
    command = f"python benchmarks/gnn.py --only marks --limit {given.limit:g} --repeats {given.repeats}"
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
        best = kept.offer(scene, search, least, f"{command}: {way}", given.limit).cost
        say(f"{done} of {given.scenes}: {scene.machines} machines, {least / best - 1:+.1%} from the best, {way}")
        if runs(search, best):
            races.append(Race(scene, without, with_network, best))
        else:
            waiting += 1
    if waiting:
        report.note(f"left out: {waiting} scenes where the best plan known has a job wait")
    marks = [mark for mark in MARKS if mark <= given.limit]
    races.sort(key=lambda each: each.scene.machines)
    head = ["scene", "machines", "jobs", *(f"{mark:g} s" for mark in marks)]
    report.table("percent above the best known, median of the seeds: without / with", head, list(_rows(races, marks)))
    rows: list[list[object]] = []
    for size, (least_machines, most_machines) in SIZES.items():
        chosen = [each for each in races if least_machines <= each.scene.machines <= most_machines]
        report.figure(f"scenes_{size}", len(chosen))
        rows += [[size, f"{mark:g} s", *_figures(report, chosen, size, mark)] for mark in marks if chosen]
    report.table(
        "median gaps, percent, and percentage points more with the network",
        ["scenes", "after", "without", "with", "more with"],
        rows,
    )


def _rows(races: Sequence[Race], marks: Sequence[float]) -> Iterator[list[object]]:
    for race in races:
        cells = (
            " / ".join(f"{100 * middle(race.gaps(tracks, mark)):.1f}" for tracks in race.ways.values())
            for mark in marks
        )
        yield [race.scene.cluster.name, race.scene.machines, len(race.scene.jobs), *cells]


def _figures(report: Report, races: Sequence[Race], size: str, mark: float) -> list[str]:
    """Figures of some scenes at a mark, and cells that say the same."""
    without, with_network = (
        middle([gap for race in races for gap in race.gaps(race.ways[way], mark)]) for way in ("without", "with")
    )
    where = f"{size}_at_{mark:g}_s"
    report.figure(f"gap_percent_without_{where}", 100 * without)
    report.figure(f"gap_percent_with_{where}", 100 * with_network)
    report.figure(f"gap_points_more_with_{where}", 100 * (with_network - without), most=MOST_MORE)
    if size == "large" and mark in HALVED:
        report.figure(f"gap_ratio_{where}", with_network / max(without, 1e-9), most=MOST_RATIO)
    return [f"{100 * each:.2f}" for each in (without, with_network, with_network - without)]
