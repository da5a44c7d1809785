"""Scenes that training has not seen, and the best plans known of them, for `gnn.py`."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np

import hulk.propose
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.gnn.generator import Scale, scattered
from hulk.io.profiles import bundled_compute
from hulk.planner import load_compiled
from hulk.propose import Network, load_network, starts
from hulk.search.assignment.race import GroupSearch
from hulk.search.deals import Deal
from hulk.search.job_space import JobSpace
from hulk.search.request import Request

KEPT = Path(__file__).parent / "data" / "gnn.json"
SHIPPED = Path(hulk.propose.__file__).parent / "data"
FIRST_SEED, SEED_STEP, DRAWS = 1_000_000, 1_000, 100
LEAST, MOST, MOST_JOBS = 32, 1_000, 20
T = TypeVar("T")


@dataclass(frozen=True)
class Given:
    """What was asked for: so many scenes from a first one on, each searched for `limit` seconds each way with so many
    seeds, so many at once."""

    scenes: int = 64
    first: int = 0
    limit: float = 16.0
    at_once: int = 2
    network: Path = SHIPPED
    repeats: int = 1

    @property
    def numbers(self) -> range:
        """The numbers of the scenes."""
        return range(self.first, self.first + self.scenes)


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

    def request(self) -> Request:
        """What a search is asked, made anew: nothing of an earlier run is remembered."""
        return Request(self.cluster, self.jobs, bundled_compute())

    def spaces(self) -> list[JobSpace]:
        """A space for each job, made anew likewise."""
        return self.request().spaces()

    def search(self, *seed: int, report: Callable[[Deal], None] | None = None) -> GroupSearch:
        """The search for deals, packed anew."""
        return GroupSearch(self.spaces(), np.random.default_rng([self.seed, *seed]), report=report)


def draw(number: int) -> Scene:
    """The scene of a number: every first few numbers have sizes spread over the whole range; so have those from each
    hundred on."""
    block, place = divmod(number, DRAWS)
    # Bits of the number backwards (van der Corput): 0, 1/2, 1/4, 3/4, 1/8 …
    spread = int(f"{place:016b}"[::-1], 2) / 2**16
    size = round(LEAST * (MOST / LEAST) ** spread)
    first = FIRST_SEED + SEED_STEP * block + place
    for seed in range(first, FIRST_SEED + SEED_STEP * (block + 1), DRAWS):
        cluster, jobs = scattered(seed, Scale(size, size, MOST_JOBS))
        if len(jobs) > 1:
            return Scene(seed, cluster, jobs)
    raise ValueError(f"no scene {number} with two jobs")


@dataclass(frozen=True)
class Best:
    """The cheapest deal known of a scene, who found it, and the most seconds that both ways of searching have had."""

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
            "made_by": "python benchmarks/gnn.py --only marks",
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


def propose(search: GroupSearch, network: Network, seed: int, *, samples: int, times: int) -> list[Deal]:
    """Proposals as the planner asks for them, but so many, each completed anew so many times."""
    return starts(search, rng=np.random.default_rng(seed), samples=samples, network=network, times=times)


@cache
def warm() -> None:
    """Load compiled code and the libraries."""
    scene = draw(0)
    load_compiled()
    search = scene.search()
    search.deals(moves=100, deadline=time.monotonic() + 1)


def spread(work: Callable[[Scene], T], given: Given) -> Iterator[tuple[Scene, T]]:
    """Scenes and what becomes of them, as they are done, so many at a time, each on one core."""
    if given.at_once == 1:
        for number in given.numbers:
            scene = draw(number)
            yield scene, work(scene)
        return
    with ProcessPoolExecutor(given.at_once, mp_context=get_context("fork")) as pool:
        for done in as_completed([pool.submit(_drawn, work, number) for number in given.numbers]):
            number, result = done.result()
            yield draw(number), result


def _drawn(work: Callable[[Scene], T], number: int) -> tuple[int, T]:
    """Scenes are drawn where they are looked at, since they cannot be sent."""
    return number, work(draw(number))


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def middle(values: Sequence[float]) -> float:
    """The median; not a number where there are none."""
    return median(values) if values else float("nan")
