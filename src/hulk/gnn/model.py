"""The network: places and jobs tell each other what they are, and what a tentative plan would mean, four times over.

A state for every place, every job and every pair of the two. In each round a pair looks at both ends and at the group
that the job would have by the present guess (how near, how much power, how much memory); places hear their neighbours
over links with features, and the pairs they are in; jobs hear their pairs. The guess starts from what is known of the
plan. Nothing depends on the order of places and jobs or on how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, MessagePassing

from hulk.propose.graph import (
    FROM_LINKS,
    JOB_FEATURES,
    LINK_FEATURES,
    MAPS,
    NEARNESS_POWER,
    NEIGHBOURS,
    PAIR_FEATURES,
    PLACE_FEATURES,
)
from hulk.propose.recipe import WIDTH

_NEVER = -1e4
_GROUP_PAIR = 5
_GROUP_JOB = 4
_GROUP_PLACE = 2
EDGES = ("full", "zeroed")
KINDS = ("edge", "gcn")
INPUTS = ("place", "job", "pair", "neighbour", "link", "maps", "worth", "known")


@dataclass(frozen=True)
class Shape:
    """A network's size, and the share of states that training drops. `edges` "zeroed" hides all features of links and
    pairs, and what places know of links; `kind` "gcn" is a plain graph convolution that has none. Both are for
    comparison."""

    hidden: int = 64
    pair: int = 32
    rounds: int = 4
    edges: str = "full"
    kind: str = "edge"
    dropout: float = 0.1


class LinkConv(MessagePassing):  # type: ignore[misc]
    """Messages over links with features. Every place hears the same number of neighbours, one after the other in the
    list of edges, so that mean and greatest need no scatter: fast in onnxruntime."""

    def __init__(self, hidden: int) -> None:
        super().__init__(aggr=None)
        self.source = nn.Linear(hidden, hidden, bias=False)
        self.target = nn.Linear(hidden, hidden)
        self.edge = nn.Linear(LINK_FEATURES, hidden, bias=False)

    def forward(self, state: Tensor, edges: Tensor, link: Tensor) -> Tensor:
        """[N, H] states, [2, N × K] edges, [N × K, F] features → [N, 2 H]."""
        heard: Tensor = self.propagate(
            edges, source=self.source(state), target=self.target(state), edge=self.edge(link), exists=link[:, :1]
        )
        return heard

    def message(self, source_j: Tensor, target_i: Tensor, edge: Tensor, exists: Tensor) -> Tensor:
        """What one neighbour says."""
        return torch.relu(source_j + target_i + edge) * exists

    def aggregate(self, inputs: Tensor, index: Tensor) -> Tensor:
        """Mean and greatest over the neighbours."""
        heard = inputs.reshape(-1, NEIGHBOURS, inputs.shape[-1])
        return torch.cat([heard.mean(dim=1), heard.amax(dim=1)], dim=-1)


class Round(nn.Module):
    """One exchange of messages."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        hidden, pair = shape.hidden, shape.pair
        self.plain = shape.kind == "gcn"
        self.links = GCNConv(hidden, 2 * hidden) if self.plain else LinkConv(hidden)
        self.from_place = nn.Linear(hidden, pair)  # the one bias of the four: here it costs least
        self.from_job = nn.Linear(hidden, pair, bias=False)
        self.from_pair = nn.Linear(pair, pair, bias=False)
        self.from_group = nn.Linear(_GROUP_PAIR, pair, bias=False)
        self.to_pair = nn.Linear(pair, pair, bias=False)
        self.pair_norm = nn.LayerNorm(pair)
        self.to_place = _mlp(3 * hidden + 2 * pair + _GROUP_PLACE, hidden, dropout=shape.dropout)
        self.to_job = _mlp(hidden + 3 * pair + _GROUP_JOB, hidden, dropout=shape.dropout)
        self.dropout = nn.Dropout(shape.dropout)
        self.place_norm = nn.LayerNorm(hidden)
        self.job_norm = nn.LayerNorm(hidden)
        self.score = nn.Linear(pair, 1)
        self.idle = nn.Linear(hidden, 1)

    def forward(
        self, place: Tensor, job: Tensor, pair: Tensor, seen: Seen, may: Tensor, edges: Tensor, link: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """New states of places, jobs and pairs, and logits [B, P, J + 1]; the last column is idle."""
        said = torch.relu(
            self.from_place(place).unsqueeze(2)
            + self.from_job(job).unsqueeze(1)
            + self.from_pair(pair)
            + self.from_group(seen.pair)
        ) * may.unsqueeze(-1)
        pair = self.pair_norm(pair + self.to_pair(self.dropout(said)))
        batch, places, hidden = place.shape
        flat = place.reshape(batch * places, hidden)
        heard = self.links(flat, edges) if self.plain else self.links(flat, edges, link)
        heard = torch.relu(heard).reshape(batch, places, 2 * hidden)
        of_place = _pooled(said, may, dim=2)
        place = self.place_norm(place + self.to_place(torch.cat([place, heard, of_place, seen.place], dim=-1)))
        # What a job has by the present guess, beside what all places offer.
        has = (said * seen.weight.unsqueeze(-1)).sum(dim=1)
        of_job = torch.cat([_pooled(said, may, dim=1), has], dim=-1)
        job = self.job_norm(job + self.to_job(torch.cat([job, of_job, seen.job], dim=-1)))
        score = self.score(torch.relu(pair)).squeeze(-1)
        score = torch.where(may > 0, score, torch.full_like(score, _NEVER))
        return place, job, pair, torch.cat([score, self.idle(place)], dim=-1)


class Beside(nn.Module):
    """Whether two places follow each other in a pipeline: by their states and by the link between them, the same both
    ways."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.state = nn.Linear(shape.hidden, shape.pair)
        self.weight = nn.Parameter(torch.ones(shape.pair) / shape.pair)
        self.link = nn.Linear(MAPS - 1, 1)

    def forward(self, place: Tensor, maps: Tensor) -> Tensor:
        """[B, P, H] states, [B or 1, MAPS, P, P] → logits [B, P, P]."""
        state: Tensor = self.state(place)
        far: Tensor = self.link(maps[:, 1:].permute(0, 2, 3, 1)).squeeze(-1)  # not the nearness: another scale
        return (state * self.weight) @ state.transpose(1, 2) + far


@dataclass(frozen=True)
class Seen:
    """What a guess means: features of pairs, jobs and places, and each place's weight within a job's group."""

    pair: Tensor
    job: Tensor
    place: Tensor
    weight: Tensor


class Proposer(nn.Module):
    """Logits of who gets what is not known yet, how much of it, and by which recipe."""

    def __init__(self, shape: Shape | None = None) -> None:
        super().__init__()
        self.shape = shape or Shape()
        self.place = nn.Linear(PLACE_FEATURES, self.shape.hidden)
        self.job = nn.Linear(JOB_FEATURES, self.shape.hidden)
        self.pair = nn.Linear(PAIR_FEATURES + 1, self.shape.pair)
        self.rounds = nn.ModuleList([Round(self.shape) for _ in range(self.shape.rounds)])
        self.amount = nn.Linear(self.shape.pair, 1)
        self.amount_idle = nn.Linear(self.shape.hidden, 1)
        self.recipe = _mlp(self.shape.hidden + _GROUP_JOB, 2 * self.shape.hidden, WIDTH, dropout=self.shape.dropout)
        self.beside = Beside(self.shape)

    def forward(
        self,
        place: Tensor,
        job: Tensor,
        pair: Tensor,
        neighbour: Tensor,
        link: Tensor,
        maps: Tensor,
        worth: Tensor,
        known: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The last round's log shares [B, P, J + 1] and amounts [B, P, J + 1], logits of recipes [B, J, WIDTH] for
        the groups that jobs would have, and logits of classes beside each other [B, P, P]. `known` [B, P, J + 1]:
        shares of each class that are given to a job already, or idle for certain. The others are a `Graph` with a
        leading dimension, which is 1 where all of a batch share one graph."""
        logits, amount, recipe, beside = self.all_rounds(place, job, pair, neighbour, link, maps, worth, known)
        return torch.log_softmax(logits[-1], dim=-1), torch.sigmoid(amount), recipe, beside

    def all_rounds(
        self,
        place: Tensor,
        job: Tensor,
        pair: Tensor,
        neighbour: Tensor,
        link: Tensor,
        maps: Tensor,
        worth: Tensor,
        known: Tensor,
    ) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        """Logits of every round, of the amounts, of the recipes, and of classes beside each other."""
        batch, places, _ = known.shape
        may = (pair[..., 0] > 0).to(pair.dtype)
        if self.shape.edges == "zeroed" or self.shape.kind == "gcn":
            pair, link, maps = torch.zeros_like(pair), link * _only_first(link), torch.zeros_like(maps)
            place = torch.cat([place[..., :-FROM_LINKS], torch.zeros_like(place[..., -FROM_LINKS:])], dim=-1)
        edges = _edges(neighbour, batch, places)
        flat_link = link.expand(batch, -1, -1, -1).reshape(-1, LINK_FEATURES)
        places_state = torch.relu(self.place(place)).expand(batch, -1, -1)
        jobs_state = torch.relu(self.job(job)).expand(batch, -1, -1)
        given = known[..., :-1]
        pair = torch.cat([pair.expand(batch, -1, -1, -1), given.unsqueeze(-1)], dim=-1)
        pairs_state = torch.relu(self.pair(pair))
        left = (1.0 - known.sum(dim=-1, keepdim=True)).clamp(min=0.0)
        guess, logits = known, []
        for each in self.rounds:
            seen = _seen(guess, left, maps, worth)
            places_state, jobs_state, pairs_state, out = each(
                places_state, jobs_state, pairs_state, seen, may, edges, flat_link
            )
            logits.append(out)
            guess = known + left * torch.softmax(out, dim=-1)
        amount = self.amount(torch.relu(pairs_state)).squeeze(-1)
        group = _seen(guess, left, maps, worth).job
        recipe = self.recipe(torch.cat([jobs_state, group], dim=-1))
        return (
            logits,
            torch.cat([amount, self.amount_idle(places_state)], dim=-1),
            recipe,
            self.beside(places_state, maps),
        )


def _seen(guess: Tensor, left: Tensor, maps: Tensor, worth: Tensor) -> Seen:
    """What a guess [B, P, J + 1] means for pairs, jobs and places."""
    shares = guess[..., :-1]
    power = shares * worth[..., 0]
    total = power.sum(dim=1, keepdim=True)
    weight = power / (total + 1e-6)
    has = total / (total + 1e-3)
    # Not below 1e-7: the exporter takes what is that near to zero for zero and leaves it out.
    nearest = -torch.log(maps[:, 0] @ shares + 1e-6) / (2 * NEARNESS_POWER)
    far, wide, blocked = (maps[:, i] @ weight for i in (1, 2, 3))
    # Without a group there is nothing to be near to: all zero.
    pair = torch.stack([nearest * has, far, wide, blocked, weight], dim=-1)
    memory = (shares * worth[..., 1]).sum(dim=1)
    total = total.squeeze(1)
    job = torch.stack([torch.log(total + 0.05), torch.log(memory + 0.05), has.squeeze(1), total.clamp(max=3.0)], dim=-1)
    return Seen(pair, job, torch.cat([left, guess[..., -1:]], dim=-1), weight)


def _edges(neighbour: Tensor, batch: int, places: int) -> Tensor:
    """[2, B × P × K] from neighbour to place, the graphs of a batch side by side."""
    offset = torch.arange(batch, device=neighbour.device).reshape(-1, 1, 1) * places
    source = (neighbour + offset).reshape(-1)
    target = torch.arange(batch * places, device=neighbour.device).unsqueeze(1).expand(-1, NEIGHBOURS).reshape(-1)
    return torch.stack([source, target])


def _pooled(said: Tensor, may: Tensor, dim: int) -> Tensor:
    """Mean over those that may, and greatest (messages are never below zero)."""
    count = may.sum(dim=dim).unsqueeze(-1).clamp(min=1.0)
    return torch.cat([said.sum(dim=dim) / count, said.amax(dim=dim)], dim=-1)


def _only_first(link: Tensor) -> Tensor:
    first = torch.zeros(link.shape[-1], dtype=link.dtype, device=link.device)
    first[0] = 1.0
    return first


def _mlp(inputs: int, hidden: int, outputs: int | None = None, *, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, outputs or hidden)
    )
