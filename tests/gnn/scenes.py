"""Scenes the tests look at, and one small network that is trained on nothing."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch

from hulk.cost.engine import HULK
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.gnn.export import export
from hulk.gnn.generator import Scale, scattered
from hulk.gnn.labels import Example, packed_of
from hulk.gnn.model import Proposer, Shape
from hulk.io.profiles import bundled_compute
from hulk.propose.decode import decode
from hulk.propose.facts import Facts
from hulk.propose.graph import Graph
from hulk.propose.network import Network, load_network
from hulk.search.deals import COLUMNS
from hulk.search.job_space import JobSpace, Places
from hulk.search.tables import SearchTables, pack

torch.set_num_threads(1)  # tiny networks: threads would only wait for each other
SCALE = Scale(most=60, jobs=6)
SHAPE = Shape(hidden=16, pair=8, rounds=2)


@cache
def packed(seed: int) -> SearchTables:
    """A scene as the search sees it."""
    cluster, jobs = scattered(seed, SCALE)
    return packed_of(cluster, jobs, bundled_compute())


def packed_without(cluster: Cluster, jobs: Sequence[Job], without: dict[str, frozenset[str]]) -> SearchTables:
    """A scene in which jobs must keep off some machines."""
    places = Places.of(cluster)
    compute = bundled_compute()
    return pack(
        [
            JobSpace(job, cluster, places, compute=compute, engine=HULK, without=without.get(job.name, frozenset()))
            for job in jobs
        ]
    )


def small_model(seed: int = 0, shape: Shape = SHAPE) -> Proposer:
    """A network with random weights."""
    torch.manual_seed(seed)
    return Proposer(shape).eval()


@cache
def exported_folder() -> Path:
    """A folder with a network of random weights; exporting takes seconds, so once for all tests."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    export(small_model(), folder, card={"about": "random weights"})
    return folder


@cache
def exported() -> Network:
    """That network, read again."""
    network = load_network(exported_folder())
    assert network is not None
    return network


def example(seed: int, network: Network) -> Example:
    """A made-up example: what an untrained network would deal out, as if it were a near-best plan."""
    facts = Facts.of(packed(seed))
    tables, _ = decode(network, facts, Graph.of(facts), np.random.default_rng(seed), samples=2, rounds=2)
    recipes = np.zeros((2, facts.jobs, COLUMNS), np.int64)
    recipes[1] = np.random.default_rng(seed).integers(1, 4, recipes[1].shape)  # one plan without, one with recipes
    beside = np.random.default_rng(seed).random((2, facts.places, facts.places)) < 0.2
    return Example(seed, facts, tables, recipes, beside | beside.transpose(0, 2, 1), np.array([1.0, 1.01]))
