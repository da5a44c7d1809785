"""What the network learns from: scenes with several near-best plans of the planner's own search, as counts of each
class's machines by owner. Kept in shards of plain numpy arrays; a shard that is there is not made again."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.cost.compute import ComputeModel
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.errors import InputError
from hulk.gnn.generator import Scale, scattered
from hulk.io.profiles import bundled_compute
from hulk.propose.decode import table_of
from hulk.propose.facts import Facts
from hulk.propose.network import Network, Proposing, load_network
from hulk.propose.recipe import with_codes
from hulk.propose.refine import starts
from hulk.search.assignment.race import GroupSearch
from hulk.search.deals import Deal
from hulk.search.layouts import DEGREE, LENGTH
from hulk.search.results import RUNS
from hulk.search.spaces import spaces_of
from hulk.search.tables import SearchTables, pack

NEAR_BEST = 0.03
"""Plans up to this much above the best found are kept."""
SHARD = 16
"""Seeds whose examples are in one file."""
_PREFIX, _ABOUT = "examples-", "data.json"
Progress = Callable[[int, int], None]
"""Called with shards done and shards in all."""


@dataclass(frozen=True)
class Budget:
    """How hard the planner's search over deals looks at one scene: so many searches, each with so many moves, or for
    `seconds` and `per_machine` seconds more for each machine."""

    searches: int = 2
    moves: int = 200_000
    seconds: float = 1.5
    per_machine: float = 0.012
    longest: float = 8.0


@dataclass(frozen=True)
class Example:
    """A scene and its near-best plans, best first: `tables` [N, P, J + 1] machines of a class by owner, the last column
    idle; `recipes` [N, J, COLUMNS] what makes pipelines of each group; `beside` [N, P, P] whether two classes follow
    each other in a pipeline; `costs` [N] the objective."""

    seed: int
    facts: Facts
    tables: NDArray[np.int64]
    recipes: NDArray[np.int64]
    beside: NDArray[np.bool_]
    costs: NDArray[np.float64]


def packed_of(cluster: Cluster, jobs: Sequence[Job], compute: ComputeModel) -> SearchTables:
    """A scene as the search sees it."""
    return pack(spaces_of(cluster, jobs, compute))


def make_example(
    seed: int, scale: Scale, budget: Budget, compute: ComputeModel, network: Proposing | None = None
) -> Example | None:
    """The scene of a seed, searched from drawn deals and, in later rounds of training, from a network's proposals; None
    where no plan has a place for every job."""
    cluster, jobs = scattered(seed, scale)
    if not jobs:
        return None
    spaces = spaces_of(cluster, jobs, compute)
    time_limit = min(budget.longest, budget.seconds + budget.per_machine * len(cluster.machines))
    found: dict[bytes, _Found] = {}
    for search in range(budget.searches):
        groups = GroupSearch(spaces, np.random.default_rng([seed, search]))
        deadline = time.monotonic() + time_limit
        given = starts(groups, rng=groups.rng, network=network) if network else []
        for deal in groups.deals(moves=budget.moves, deadline=deadline, starts=given):
            if (deal.status == RUNS).all():
                table = table_of(deal.owner, groups.packed)
                made = _Found(groups.cost(deal), table, plain_recipes(deal, groups.packed), beside_of(deal, groups))
                found[table.tobytes()] = made
    ranked = sorted(found.values(), key=lambda entry: entry.cost)
    if not ranked:
        return None
    kept = [entry for entry in ranked if entry.cost <= ranked[0].cost * (1 + NEAR_BEST)]
    return Example(
        seed,
        Facts.of(groups.packed),
        np.stack([entry.table for entry in kept]),
        np.stack([entry.recipes for entry in kept]),
        np.stack([entry.beside for entry in kept]),
        np.array([entry.cost for entry in kept]),
    )


class _Found(NamedTuple):
    """A plan of an example."""

    cost: float
    table: NDArray[np.int64]
    recipes: NDArray[np.int64]
    beside: NDArray[np.bool_]


def beside_of(deal: Deal, groups: GroupSearch) -> NDArray[np.bool_]:
    """[P, P] whether two classes follow each other in a pipeline of the deal, either way round."""
    place = groups.packed.place
    beside = np.zeros(groups.packed.latency.shape, np.bool_)
    for skeleton in groups.state(deal).skeletons:
        for chain in skeleton.chains if skeleton else ():
            for one, two in pairwise(chain):
                beside[place[one.machine], place[two.machine]] = True
    return beside | beside.T


def plain_recipes(deal: Deal, packed: SearchTables) -> NDArray[np.int64]:
    """A deal's recipes [J, COLUMNS], options by the numbers of their values, none asking for longer pipelines than its
    group has slots for."""
    plain = with_codes(deal.recipes, packed)
    for job, recipe in enumerate(plain):
        gpus = int(packed.gpus[deal.owner == job].sum())
        recipe[LENGTH] = min(recipe[LENGTH], max(1, gpus // recipe[DEGREE]), packed.layers[job])
    return plain


def make_shards(
    folder: Path,
    seeds: range,
    *,
    scale: Scale,
    budget: Budget,
    workers: int = 1,
    use_ray: bool = False,
    network: Path | None = None,
    progress: Progress | None = None,
) -> None:
    """Examples of these seeds in files of `SHARD` seeds each. Those that are there are left alone, so that a run that
    was stopped goes on; they depend on their seeds alone, as long as no search runs into its time limit. `network`: the
    folder of a trained one, whose proposals the searches begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    folder, network = folder.resolve(), network.resolve() if network else None  # workers may stand elsewhere
    _describe(folder, scale, budget, _trained(network))
    parts = [seeds[i : i + SHARD] for i in range(0, len(seeds), SHARD)]
    missing = [part for part in parts if not shard_path(folder, part).exists()]
    make = partial(make_shard, folder, scale=scale, budget=budget, network=network)
    done = len(parts) - len(missing)
    if progress:
        progress(done, len(parts))
    for _ in _spread(make, missing, workers, use_ray):
        done += 1
        if progress:
            progress(done, len(parts))


@cache
def _trained(folder: Path | None) -> Network | None:
    """The network of a folder; InputError where there is none that can be used."""
    if folder is None:
        return None
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always", RuntimeWarning)
        network = load_network(folder)
    if network is None:
        raise InputError("no network that can be used", where=str(folder), hint="train one: hulk gnn train")
    return network


def _describe(folder: Path, scale: Scale, budget: Budget, network: Network | None) -> None:
    """Say in data.json what the folder's examples are; InputError where it says something else already."""
    wanted: dict[str, Any] = {"scale": asdict(scale), "budget": asdict(budget)}
    if network:
        wanted["network"] = network.card["sha256"]
    path = folder / _ABOUT
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != wanted:
        raise InputError("this folder holds examples of another kind", where=str(path), hint="take another folder")
    path.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")


def scale_of(folder: Path) -> Scale:
    """How large the scenes of a folder's examples are."""
    try:
        return Scale(**json.loads((folder / _ABOUT).read_text(encoding="utf-8"))["scale"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError("no examples in this folder", where=str(folder), hint="make some: hulk gnn data") from None


def make_shard(folder: Path, seeds: range, *, scale: Scale, budget: Budget, network: Path | None = None) -> int:
    """Make one shard; returns how many examples are in it."""
    compute, trained = bundled_compute(), _trained(network)
    made = (make_example(seed, scale, budget, compute, trained) for seed in seeds)
    examples = [example for example in made if example is not None]
    save_shard(shard_path(folder, seeds), examples)
    return len(examples)


def shard_path(folder: Path, seeds: range) -> Path:
    """Where the examples of these seeds are."""
    return folder / f"{_PREFIX}{seeds.start:07d}-{seeds.stop:07d}.npz"


def save_shard(path: Path, examples: Sequence[Example]) -> None:
    """Write examples, whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {}
    for example in examples:
        for field in fields(Facts):
            values = getattr(example.facts, field.name)
            small = np.dtype(np.float32 if values.dtype.kind == "f" else np.int32)
            arrays[f"{example.seed}.{field.name}"] = values.astype(small)
        arrays[f"{example.seed}.tables"] = example.tables.astype(np.int32)
        arrays[f"{example.seed}.recipes"] = example.recipes.astype(np.int32)
        arrays[f"{example.seed}.beside"] = example.beside
        arrays[f"{example.seed}.costs"] = example.costs
    temporary = path.with_suffix(".partial")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    temporary.replace(path)


def load_shard(path: Path) -> list[Example]:
    """Examples of a file, by seed."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            seeds = sorted({int(name.split(".")[0]) for name in stored.files})
            return [_example(stored, seed) for seed in seeds]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"not a shard of examples ({error})", where=str(path), hint="delete it to make it anew"
        ) from None


def load_examples(folder: Path) -> list[Example]:
    """All examples of a folder."""
    paths = sorted(folder.glob(f"{_PREFIX}*.npz"))
    if not paths:
        raise InputError("no examples in this folder", where=str(folder), hint="make some: hulk gnn data")
    return [example for path in paths for example in load_shard(path)]


def _example(stored: Any, seed: int) -> Example:
    values = {}
    for field in fields(Facts):
        array = stored[f"{seed}.{field.name}"]
        values[field.name] = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    tables = stored[f"{seed}.tables"].astype(np.int64)
    recipes = stored[f"{seed}.recipes"].astype(np.int64)
    return Example(seed, Facts(**values), tables, recipes, stored[f"{seed}.beside"], stored[f"{seed}.costs"])


def _spread(make: Callable[[range], int], parts: Sequence[range], workers: int, use_ray: bool) -> Iterator[int]:
    """Shards as they are done: here, in processes of this machine, or over a Ray cluster."""
    if use_ray:
        yield from _over_ray(make, parts)
    elif workers == 1 or not hasattr(os, "fork"):
        yield from map(make, parts)
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
            for done in as_completed([pool.submit(make, part) for part in parts]):
                yield done.result()


def _over_ray(make: Callable[[range], int], parts: Sequence[range]) -> Iterator[int]:
    """The folder must be one that all machines of the Ray cluster share."""
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray, which is not installed", hint="pip install ray") from None
    ray.init(ignore_reinit_error=True, log_to_driver=False, include_dashboard=False)
    try:
        remote = ray.remote(num_cpus=1)(_made)  # it takes plain functions only
        waiting = [remote.remote(make, part) for part in parts]
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            yield from ray.get(done)
    finally:
        ray.shutdown()


def _made(make: Callable[[range], int], part: range) -> int:
    return make(part)
