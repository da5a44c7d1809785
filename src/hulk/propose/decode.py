"""From shares to deals. Samples grow side by side: in each round the network sees what each has fixed so far and says
how the rest might go on; the surest are fixed, and the next round knows more.

Fixing everything at once would mix several good plans into a bad one: a job that would do well here or there would get
a part of both. So a round gives a job no second class before the network has seen the first, and a class has as many
owners as there are rounds that draw one. The first sample takes the likeliest owner and is ready before the others,
which draw, so that they differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hulk.propose.facts import Facts
from hulk.propose.graph import Graph
from hulk.propose.network import Proposing, bundled_network
from hulk.propose.recipe import recipes_of
from hulk.propose.repair import repaired
from hulk.search.deals import Deal, empty_deal
from hulk.search.tables import SearchTables

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Amounts = NDArray[np.float32]

SAMPLES = 16
# Rounds: two more than there are jobs, so that each may take its turn in one class, but not fewer or more than these.
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 14
TEMPERATURE = 1.2
"""Of the draws: 0 would be the likeliest owner always, 1 the network's own shares."""
# Pairs of class and job that one call may look at, times samples and rounds: about a second on one core.
_MOST_PAIRS = 450_000
# An owner that takes nearly all of what is left of a class takes all.
_NEARLY_ALL = 0.75


class Proposals(NamedTuple):
    """Deals to begin a search with, and how far apart classes should be in a pipeline [P, P], infinite where they
    cannot talk; no distances where there are no deals."""

    deals: list[Deal]
    apart: Floats | None


def proposals(
    packed: SearchTables,
    rng: np.random.Generator,
    *,
    samples: int = SAMPLES,
    rounds: int | None = None,
    network: Proposing | None = None,
) -> Proposals:
    """What the network proposes: who owns which machine, a recipe for each job, the order of stages; times are open. No
    two groupings are the same, so there may be fewer than `samples`; none without a usable network. On large clusters
    with many jobs fewer samples are drawn, so that it stays within about a second."""
    network = network or bundled_network()
    if network is None:
        return Proposals([], None)
    parts = list(in_turn(packed, rng, samples=samples, rounds=rounds, network=network))
    found = {deal.owner.tobytes(): deal for part in reversed(parts) for deal in reversed(part.deals)}
    return Proposals(list(found.values())[::-1], parts[0].apart)


def in_turn(
    packed: SearchTables,
    rng: np.random.Generator,
    *,
    network: Proposing,
    samples: int = SAMPLES,
    rounds: int | None = None,
) -> Iterator[Proposals]:
    """The same in two parts: the likeliest proposal alone, a fraction of the time sooner than all; then those drawn,
    which are not asked for before the first was taken. A deal of the second part may be that of the first."""
    facts = Facts.of(packed)
    samples, rounds = affordable(facts, samples, rounds or _rounds_for(facts.jobs))
    graph = Graph.of(facts)
    for count, likeliest in ((1, True), (samples - 1, False)):
        if count == 0:
            continue
        tables, surely = decode(network, facts, graph, rng, samples=count, rounds=rounds, likeliest=likeliest)
        mended = np.stack([repaired(facts, table, shares) for table, shares in zip(tables, surely, strict=True)])
        answer = network.run(graph, mended / facts.members[:, None])
        found: dict[bytes, Deal] = {}
        for number, table in enumerate(mended):
            deal = empty_deal(packed)
            deal.owner[:] = owners(packed, table)
            deal.recipes[:] = recipes_of(answer.recipes[number], packed, rng, likeliest=likeliest, heads=answer.heads)
            found.setdefault(deal.owner.tobytes(), deal)
        beside = answer.beside.astype(float).mean(axis=0)
        apart = np.where(np.isfinite(facts.latency), 1 / (1 + np.exp(beside)), np.inf)
        yield Proposals(list(found.values()), apart)


def _rounds_for(jobs: int) -> int:
    return min(_MOST_ROUNDS, max(_LEAST_ROUNDS, jobs + 2))


def affordable(facts: Facts, samples: int, rounds: int) -> tuple[int, int]:
    """So many samples and rounds as a second allows: samples first, down to two, then rounds, down to three."""
    calls = max(1, _MOST_PAIRS // (facts.places * facts.jobs))
    samples = max(min(samples, 2), min(samples, calls // rounds))
    return samples, max(min(rounds, 3), min(rounds, calls // samples))


def decode(
    network: Proposing,
    facts: Facts,
    graph: Graph,
    rng: np.random.Generator,
    *,
    samples: int,
    rounds: int,
    likeliest: bool = True,
) -> tuple[Ints, Floats]:
    """Tables of counts [S, P, J + 1], the last column idle, and the shares [S, P, J + 1] the network last gave.
    `likeliest`: the first takes the likeliest owner always; else all are drawn."""
    nothing = np.zeros((samples, facts.places, facts.jobs + 1), np.int64)
    return complete(network, facts, graph, rng, nothing, rounds=rounds, temperature=TEMPERATURE, likeliest=likeliest)


def complete(
    network: Proposing,
    facts: Facts,
    graph: Graph,
    rng: np.random.Generator,
    known: Ints,
    *,
    rounds: int,
    temperature: float,
    likeliest: bool = True,
) -> tuple[Ints, Floats]:
    """Tables [S, P, J + 1] that go on from what is known of them, and the shares the network last gave. `likeliest`: as
    in `decode`."""
    table = known.copy()
    limit = np.concatenate([np.rint(facts.usable.T * facts.members[:, None]), facts.members[:, None]], axis=1)
    shares = np.zeros(table.shape)
    for turn in range(rounds):
        if (table.sum(axis=2) == facts.members).all():
            break
        answer = network.run(graph, table / facts.members[:, None])
        shares = np.exp(answer.shares.astype(float))
        at_once = max(1, facts.places // (facts.jobs * rounds))
        done = (turn + 1) / rounds
        # Gumbel noise makes the greatest score a draw by shares ** (1 / temperature).
        noise = rng.gumbel(size=table.shape) * temperature
        if likeliest:
            noise[0] = 0.0
        choice = np.where(limit[None] > table, np.log(shares + 1e-12) + noise, -np.inf).argmax(axis=2)
        _fix(table, choice, shares, answer.amounts, facts.members, limit, done, at_once)
    _fix_rest(table, shares, facts.members, limit)
    return table, shares


def _fix(
    table: Ints, choice: Ints, shares: Floats, amounts: Amounts, members: Ints, limit: Floats, done: float, at_once: int
) -> None:
    """In place: the surest of the open classes go to the owner chosen for them [S, P], a part `done` of them, but no
    job gets several before the network has seen where it is (but for huge clusters, where a few rounds must do)."""
    samples, places, owners = table.shape
    left = members - table.sum(axis=2)
    rows = np.arange(places)
    for s in range(samples):
        is_open = left[s] > 0
        count = int(np.ceil(done * is_open.sum()))
        sure = np.where(is_open, shares[s, rows, choice[s]], -1.0)
        may_take = np.full(owners, at_once)
        may_take[-1] = places  # idle
        for p in np.argsort(-sure, kind="stable")[: int(is_open.sum())]:
            if count == 0:
                break
            j = choice[s, p]
            if may_take[j] == 0:
                continue
            may_take[j] -= 1
            count -= 1
            part = float(amounts[s, p, j])
            take = left[s, p] if part > _NEARLY_ALL else int(np.clip(round(left[s, p] * part), 1, left[s, p]))
            table[s, p, j] += min(take, int(limit[p, j]) - table[s, p, j])


def _fix_rest(table: Ints, shares: Floats, members: Ints, limit: Floats) -> None:
    """In place: what is left of classes goes to the likeliest of those who have some of them, or idles."""
    left = members - table.sum(axis=2)
    for s, p in np.argwhere(left > 0):
        wish = np.where((table[s, p] > 0) & (limit[p] - table[s, p] >= left[s, p]), shares[s, p], 0.0)
        wish[-1] = max(shares[s, p, -1], 1e-9)
        table[s, p, wish.argmax()] += left[s, p]


def owners(packed: SearchTables, table: Ints, before: Ints | None = None) -> Ints:
    """A table of counts [P, J + 1] as the owner of every machine: the one of `before` where the count allows it. Jobs
    that may use few machines of a class choose first; what a job may not use stays idle."""
    owner = np.full(len(packed.place), -1, np.int64)
    for p in np.flatnonzero(table[:, :-1].sum(axis=1)):
        members = packed.members[packed.first_member[p] : packed.first_member[p + 1]]
        takers = np.flatnonzero(table[p, :-1])
        if before is not None:
            for j in takers:
                owner[members[before[members] == j][: table[p, j]]] = j
        choices = packed.allowed[np.ix_(takers, members)].sum(axis=1)
        for j in takers[np.argsort(choices, kind="stable")]:
            free = members[(owner[members] == -1) & packed.allowed[j, members]]
            owner[free[: table[p, j] - int((owner[members] == j).sum())]] = j
    return owner


def table_of(owner: Ints, packed: SearchTables) -> Ints:
    """A deal as counts [P, J + 1]: machines of each class by owner, the last column idle."""
    table = np.zeros((len(packed.latency), len(packed.need) + 1), np.int64)
    np.add.at(table, (packed.place, owner), 1)  # owner −1, idle, is the last column
    return table
