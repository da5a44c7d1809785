"""Proposals made better before any search. Jobs leave what only slows them down: a class drawn too much is the most
common fault of a draw. Then a part of a deal is hidden, the network completes it anew, and what is cheaper stays: a
move that no list of moves has, since whole groups change hands in a way that makes sense together."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hulk.propose.decode import SAMPLES, complete, in_turn, owners, table_of
from hulk.propose.facts import Facts
from hulk.propose.graph import Graph
from hulk.propose.network import Proposing
from hulk.propose.recipe import recipes_of
from hulk.propose.repair import repaired
from hulk.search.assignment.race import GroupSearch
from hulk.search.deals import Deal
from hulk.search.layouts import TOUR

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_ROUNDS = 6
_TEMPERATURE = 1.0
_LEAST_HIDDEN, _MOST_HIDDEN = 0.2, 0.7
_SPREAD_EVERY = 5  # times, the worst quarter goes on from the best


def starts(
    groups: GroupSearch,
    *,
    rng: np.random.Generator,
    network: Proposing,
    samples: int = SAMPLES,
    times: int = 0,
    deadline: float = float("inf"),
    own: Deal | None = None,
    moves: int = 0,
) -> list[Deal]:
    """Proposals for a search, refined, which from then on may also order stages as the network would. The likeliest is
    judged before the others are asked for; these are left out where the deadline on the monotonic clock has passed or
    the search is stopped. `own`: a deal that the search has made before; `moves`: so many are made with the better of
    it and the likeliest before the others are asked for. What comes of that, and `own`, are among the answers where
    they are better than all proposals."""
    judged: list[Deal] = []
    others = [own] if own else []
    seen: set[bytes] = set()
    for part in in_turn(groups.packed, rng, samples=samples, network=network):
        if not judged and part.apart is not None:
            _go_by(groups, part.apart, own)
        for deal in part.deals:
            if deal.owner.tobytes() in seen:
                continue
            seen.add(deal.owner.tobytes())
            judged.append(trimmed(groups, groups.judged(deal.owner, deal.recipes)))
            if _is_over(groups, deadline):
                return _with_better(groups, _best_first(groups, judged), others)
        if moves:
            others.append(groups.annealed(min([*judged, *others], key=groups.cost), moves, deadline))
            moves = 0
    return _with_better(groups, refined(groups, network, judged, rng, times=times, deadline=deadline), others)


def _with_better(groups: GroupSearch, found: list[Deal], others: Sequence[Deal]) -> list[Deal]:
    """Deals, best first, and before them those others that are better than all of them."""
    better = [deal for deal in others if groups.cost(deal) < groups.cost(found[0])]
    return [*sorted(better, key=groups.cost), *found]


def _go_by(groups: GroupSearch, apart: Floats, own: Deal | None) -> None:
    """Let tours go by a network's word. Recipes of before that went by the last kind of tour went by the kind before
    it, which is the same until then: they say so from now on, or they would not be what was priced."""
    last = len(groups.packed.tours) - 1
    for recipes in (groups.archive.recipes, *([own.recipes] if own else [])):
        recipes[..., TOUR][recipes[..., TOUR] == last] = last - 1
    groups.go_by(apart)


def _is_over(groups: GroupSearch, deadline: float) -> bool:
    """Whether the deadline has passed or the search is stopped: then it is a hurried one."""
    over = time.monotonic() > deadline or groups.budget.stop()
    groups.budget.hurried |= over
    return over


def _best_first(groups: GroupSearch, deals: Sequence[Deal]) -> list[Deal]:
    """Deals joined with groups of others, the best first."""
    return sorted((groups.combined(deal) for deal in deals), key=groups.cost)


def refined(
    groups: GroupSearch,
    network: Proposing,
    deals: Sequence[Deal],
    rng: np.random.Generator,
    *,
    times: int,
    deadline: float = float("inf"),
) -> list[Deal]:
    """Judged deals after so many tries to better each of them; the best first. Earlier where the deadline on the
    monotonic clock passes or the search is stopped."""
    packed, facts = groups.packed, Facts.of(groups.packed)
    graph, best = Graph.of(facts), list(deals)
    for deal in best:
        groups.combined(deal)
    tables = np.stack([table_of(deal.owner, packed) for deal in best])
    for turn in range(times):
        if _is_over(groups, deadline):
            break
        trial = tables.copy()
        for table in trial:
            table[_hidden(table, rng)] = 0
        trial, shares = complete(network, facts, graph, rng, trial, rounds=_ROUNDS, temperature=_TEMPERATURE)
        trial = np.stack([repaired(facts, table, share) for table, share in zip(trial, shares, strict=True)])
        answer = network.run(graph, trial / facts.members[:, None])
        for i, table in enumerate(trial):
            known = recipes_of(answer.recipes[i], packed, rng, likeliest=False, heads=answer.heads)
            found = groups.regrouped(best[i], owners(packed, table, best[i].owner), known)
            found = trimmed(groups, found, only=_changed(best[i], found))
            if groups.cost(found) < groups.cost(best[i]):
                best[i], tables[i] = found, table_of(found.owner, packed)
        if turn % _SPREAD_EVERY == _SPREAD_EVERY - 1:
            _spread(groups, best, tables)
    return _best_first(groups, best)


def trimmed(groups: GroupSearch, deal: Deal, only: Ints | None = None) -> Deal:
    """A judged deal in which jobs (or those of `only`) have left all but one of their places or regions, one of the two
    strongest, where that is cheaper."""
    packed = groups.packed
    for job in range(len(packed.need)) if only is None else only:
        for where in (packed.region_of_machine, packed.place):
            mine = np.flatnonzero(deal.owner == job)
            found, of_machine = np.unique(where[mine], return_inverse=True)
            power = np.bincount(of_machine, packed.rate[job, mine], minlength=len(found))
            for kept in np.argsort(-power, kind="stable")[: 2 if len(found) > 1 else 0]:
                owner = deal.owner.copy()
                owner[mine[of_machine != kept]] = -1
                trial = groups.regrouped(deal, owner, deal.recipes)
                if groups.cost(trial) < groups.cost(deal):
                    deal = trial
                    break
    return deal


def _changed(before: Deal, after: Deal) -> Ints:
    """Jobs whose machines are others than before."""
    differ = before.owner != after.owner
    jobs = np.union1d(before.owner[differ], after.owner[differ])
    return jobs[jobs >= 0]


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
