"""Proposals priced by the search: how far the best of several is from the best plan known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hulk.cost.compute import ComputeModel
from hulk.gnn.generator import Scale, scattered
from hulk.gnn.labels import Example
from hulk.gnn.model import Proposer
from hulk.propose.decode import owners, proposals
from hulk.propose.graph import Graph
from hulk.propose.network import Answer, Proposing
from hulk.propose.paper import paper_policy
from hulk.search.assignment.moves import deal_out
from hulk.search.assignment.race import GroupSearch
from hulk.search.deals import empty_deal
from hulk.search.spaces import spaces_of

Ints = NDArray[np.int64]
_LOOKS = 3
WAYS = ("label", "network", "first", "paper", "random")


@dataclass(frozen=True)
class TorchNetwork:
    """A network in training, run like the exported one."""

    model: Proposer
    device: torch.device

    def run(self, graph: Graph, known: NDArray[np.floating]) -> Answer:
        """See `hulk.propose.network.Network.run`."""
        names = ("place", "job", "pair", "neighbour", "link", "maps", "worth")
        given = [torch.from_numpy(getattr(graph, name))[None].to(self.device) for name in names]
        with torch.no_grad():
            found = self.model(*given, torch.from_numpy(known.astype(np.float32)).to(self.device))
        return Answer(*(each.cpu().numpy() for each in found))


@dataclass(frozen=True)
class Verdict:
    """One scene. Gaps are relative to the objective of the best plan known, whose shapes were searched for long; a deal
    here gets a quick look at shapes only. A gap of None: a job waits.

    label      the best plan's own deal, with that quick look: what proposals can hope for
    network    the best of the samples
    first      the likeliest deal alone
    paper      the paper's one-shot policy
    random     the best of as many random deals as there were samples
    """

    seed: int
    machines: int
    jobs: int
    label: float | None
    network: float | None
    first: float | None
    paper: float | None
    random: float | None


@dataclass(frozen=True)
class Scene:
    """An example's scene, drawn again, and the search that prices deals of it."""

    example: Example
    search: GroupSearch


def scenes_of(examples: Sequence[Example], *, scale: Scale, compute: ComputeModel) -> list[Scene]:
    """The scenes of examples; made once, they can be judged many times."""
    scenes = []
    for example in examples:
        cluster, jobs = scattered(example.seed, scale)
        scenes.append(Scene(example, GroupSearch(spaces_of(cluster, jobs, compute), np.random.default_rng(0))))
    return scenes


def judge(
    network: Proposing,
    scenes: Sequence[Scene],
    *,
    samples: int,
    rounds: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Verdict]:
    """Proposals for every scene, priced. The same every time."""
    verdicts = []
    for number, scene in enumerate(scenes):
        verdicts.append(_verdict(network, scene, samples, rounds))
        if progress:
            progress(number + 1, len(scenes))
    return verdicts


def _verdict(network: Proposing, scene: Scene, samples: int, rounds: int | None) -> Verdict:
    example, search, packed = scene.example, scene.search, scene.search.packed
    search.rng = np.random.default_rng([example.seed, 0])
    # What served, and what is known, from an earlier look must not help this one.
    search.learned.served[:] = 0
    search.work.memo.keys[:] = 0
    best = float(example.costs[0])
    label = _cost(search, owners(packed, example.tables[0]))
    draws = np.random.default_rng([example.seed, 1])
    drawn = [_cost(search, _random(search, draws)) for _ in range(samples)]
    rng = np.random.default_rng([example.seed, 2])
    deals = proposals(packed, rng, samples=samples, rounds=rounds, network=network).deals
    costs = [_cost(search, deal.owner, deal.recipes) for deal in deals]
    return Verdict(
        seed=example.seed,
        machines=len(packed.place),
        jobs=len(packed.need),
        label=_gap(label, best, search),
        network=_gap(min(costs), best, search),
        first=_gap(costs[0], best, search),
        paper=_gap(_cost(search, paper_policy(packed, network)), best, search),
        random=_gap(min(drawn), best, search),
    )


def summary(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Median gap, and share of scenes in which a job waits, for each way."""
    figures: dict[str, float] = {"scenes": float(len(verdicts))}
    for way in WAYS:
        gaps = [getattr(verdict, way) for verdict in verdicts]
        # A scene where a job waits counts as the worst.
        figures[f"{way}_median_gap"] = float(np.median([np.inf if gap is None else gap for gap in gaps]))
        figures[f"{way}_waiting"] = sum(gap is None for gap in gaps) / max(1, len(gaps))
    return figures


def _cost(search: GroupSearch, owner: Ints, recipes: Ints | None = None) -> float:
    """The best of a few looks, each of which tries some shapes for every group."""
    return min(search.cost(search.judged(owner, recipes)) for _ in range(_LOOKS))


def _random(search: GroupSearch, rng: np.random.Generator) -> Ints:
    deal = empty_deal(search.packed)
    deal_out(search.packed, deal, int(rng.integers(2**31)))
    return deal.owner


def _gap(cost: float, best: float, search: GroupSearch) -> float | None:
    return None if cost >= search.packed.waiting.min() else cost / best - 1
