"""Examples as padded tensors, with a random part of a near-best plan revealed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hulk.gnn.labels import Example
from hulk.propose.graph import Graph
from hulk.propose.recipe import HEADS, UNKNOWN, classes_of

_GRAPH = ("place", "job", "pair", "neighbour", "link", "maps", "worth")
_ALL_HIDDEN, _ALL_SHOWN = 0.3, 0.15
# Of two near-best plans, one that is 1 % worse is drawn e times less often.
_QUALITY = 0.01


@dataclass(frozen=True)
class Item:
    """An example ready to be put in a batch: shares [N, P, J + 1] of its plans, their recipes' classes [N, J, heads],
    which classes are beside each other [N, P, P], and how often each plan is drawn."""

    graph: Graph
    shares: NDArray[np.float32]
    recipes: NDArray[np.int64]
    beside: NDArray[np.bool_]
    chance: NDArray[np.float64]
    power: NDArray[np.float32]  # [P] weight of each class in the loss

    @classmethod
    def of(cls, example: Example) -> Item:
        """Features and shares of an example."""
        facts = example.facts
        power = (facts.rate * facts.members / (facts.rate * facts.members).sum(axis=1, keepdims=True)).mean(axis=0)
        chance = np.exp(-(example.costs / example.costs.min() - 1) / _QUALITY)
        return cls(
            graph=Graph.of(facts),
            shares=(example.tables / facts.members[:, None]).astype(np.float32),
            recipes=classes_of(example.recipes),
            beside=example.beside,
            chance=chance / chance.sum(),
            # Half by power, half by head: weak classes make up small jobs' groups.
            power=(0.5 * power + 0.5 / len(power)).astype(np.float32),
        )

    @property
    def places(self) -> int:
        """Classes of machines."""
        return len(self.power)

    @property
    def jobs(self) -> int:
        """Jobs."""
        return int(self.shares.shape[2]) - 1


@dataclass(frozen=True)
class Batch:
    """B padded graphs (in the order of the network's arguments), the plans' shares [B, P, J + 1], weights [B, P],
    classes of recipes [B, J, heads], and 1 where classes are beside each other in a pipeline [B, P, P]."""

    graph: tuple[Tensor, ...]
    target: Tensor
    power: Tensor
    recipes: Tensor
    beside: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(
            tuple(each.to(device, non_blocking=True) for each in self.graph),
            self.target.to(device, non_blocking=True),
            self.power.to(device, non_blocking=True),
            self.recipes.to(device, non_blocking=True),
            self.beside.to(device, non_blocking=True),
        )


def grouped(items: Sequence[Item], rng: np.random.Generator, *, pairs: int, most: int) -> list[list[Item]]:
    """Batches of items of like size, in random order: at most `most` items and about `pairs` pairs of class and job
    (and as many pairs of classes) each, padding included."""
    size = np.array([max(item.places * item.jobs, item.places**2 / 4) for item in items], float)
    order = np.argsort(size * rng.lognormal(0.0, 0.2, len(items)))
    batches: list[list[Item]] = []
    widest, longest = 0, 0
    for item in (items[i] for i in order):
        places, jobs = max(longest, item.places), max(widest, item.jobs)
        count = len(batches[-1]) + 1 if batches else 0
        if batches and count <= most and count * places * max(jobs, places / 4) <= pairs:
            batches[-1].append(item)
            longest, widest = places, jobs
        else:
            batches.append([item])
            longest, widest = item.places, item.jobs
    return [batches[i] for i in rng.permutation(len(batches))]


def collate(items: Sequence[Item], rng: np.random.Generator | None) -> Batch:
    """A padded batch, a plan drawn for each item; without `rng` the best one. Padding has no allowed pair, no link, no
    worth and no weight, so that nothing hears it."""
    places, jobs = max(item.places for item in items), max(item.jobs for item in items)
    target = np.zeros((len(items), places, jobs + 1), np.float32)
    power = np.zeros((len(items), places), np.float32)
    recipes = np.full((len(items), jobs, len(HEADS)), UNKNOWN, np.int64)
    beside = np.zeros((len(items), places, places), np.float32)
    stacked = []
    for name in _GRAPH:
        first = getattr(items[0].graph, name)
        shape = {
            "place": (places, first.shape[-1]),
            "job": (jobs, first.shape[-1]),
            "pair": (places, jobs, first.shape[-1]),
            "neighbour": (places, first.shape[-1]),
            "link": (places, *first.shape[1:]),
            "maps": (first.shape[0], places, places),
            "worth": (places, jobs, first.shape[-1]),
        }[name]
        padded = np.zeros((len(items), *shape), first.dtype)
        for b, item in enumerate(items):
            array = getattr(item.graph, name)
            padded[b][tuple(slice(0, n) for n in array.shape)] = array
        stacked.append(torch.from_numpy(padded))
    for b, item in enumerate(items):
        plan = 0 if rng is None else int(rng.choice(len(item.chance), p=item.chance))
        shares = item.shares[plan]
        target[b, : item.places, : item.jobs] = shares[:, :-1]
        target[b, : item.places, -1] = shares[:, -1]
        power[b, : item.places] = item.power
        recipes[b, : item.jobs] = item.recipes[plan]
        beside[b, : item.places, : item.places] = item.beside[plan]
    return Batch(tuple(stacked), *(torch.from_numpy(each) for each in (target, power, recipes, beside)))


def reveal(target: Tensor, draw: torch.Generator) -> Tensor:
    """The known part of plans [B, P, J + 1]: every owner of a class is revealed with its whole share of it or not at
    all, at a rate of each plan's own; often nothing is, and sometimes everything, which leaves the recipes to learn."""
    batch = target.shape[0]
    device = target.device
    rate = torch.rand(batch, 1, 1, generator=draw, device=device)
    draws = torch.rand(batch, 1, 1, generator=draw, device=device)
    rate = torch.where(draws > 1 - _ALL_SHOWN, torch.ones_like(rate), rate * (draws > _ALL_HIDDEN))
    shown = torch.rand(target.shape, generator=draw, device=device) < rate
    return target * shown
