"""Proposals that the network itself makes better: a part of a deal is hidden, the network completes it anew, and what
is cheaper stays. A move that no list of moves has: whole groups change hands in a way that makes sense together."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hulk.propose.decode import complete, owners, table_of
from hulk.propose.facts import Facts
from hulk.propose.graph import Graph
from hulk.propose.network import Proposing
from hulk.propose.recipe import recipes_of
from hulk.propose.repair import repaired
from hulk.search.dealing import Deal
from hulk.search.groups import GroupSearch

Ints = NDArray[np.int64]
_ROUNDS = 3
_TEMPERATURE = 0.6
_LEAST_HIDDEN, _MOST_HIDDEN = 0.2, 0.7
_SPREAD_EVERY = 5  # times, the worst quarter goes on from the best


def refined(
    groups: GroupSearch,
    network: Proposing,
    deals: Sequence[Deal],
    rng: np.random.Generator,
    *,
    times: int,
    deadline: float = float("inf"),
) -> list[Deal]:
    """Deals, judged, after so many tries to better each of them; earlier where the deadline on the monotonic clock
    passes."""
    packed, facts = groups.packed, Facts.of(groups.packed)
    graph = Graph.of(facts)
    best = [groups.judged(deal.owner, deal.recipes) for deal in deals]
    tables = np.stack([table_of(deal.owner, packed) for deal in best])
    for turn in range(times):
        if time.monotonic() > deadline:
            break
        trial = tables.copy()
        for table in trial:
            table[_hidden(table, rng)] = 0
        trial, shares = complete(network, facts, graph, rng, trial, rounds=_ROUNDS, temperature=_TEMPERATURE)
        trial = np.stack([repaired(facts, table, share) for table, share in zip(trial, shares, strict=True)])
        logits = network.run(graph, trial / facts.members[:, None]).recipes
        for i, table in enumerate(trial):
            known = recipes_of(logits[i], packed, rng, likeliest=False)
            found = groups.regrouped(best[i], owners(packed, table, best[i].owner), known)
            if groups.cost(found) < groups.cost(best[i]):
                best[i], tables[i] = found, table_of(found.owner, packed)
        if turn % _SPREAD_EVERY == _SPREAD_EVERY - 1:
            _spread(groups, best, tables)
    return best


def _hidden(table: Ints, rng: np.random.Generator) -> NDArray[np.bool_]:
    """[P] classes to hide: any, or all that two or three jobs (or nobody) have."""
    places, columns = table.shape
    if rng.random() < 0.5:
        return np.asarray(rng.random(places) < rng.uniform(_LEAST_HIDDEN, _MOST_HIDDEN))
    chosen = rng.choice(columns, min(columns, int(rng.integers(2, 4))), replace=False)
    return np.asarray((table[:, chosen] > 0).any(axis=1))


def _spread(groups: GroupSearch, best: list[Deal], tables: Ints) -> None:
    """In place: the worst quarter goes on from the best."""
    order = sorted(range(len(best)), key=lambda i: groups.cost(best[i]))
    for good, bad in zip(order, order[::-1][: len(best) // 4], strict=False):
        best[bad], tables[bad] = best[good].copy(), tables[good]
