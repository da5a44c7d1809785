"""Scenes within scenes: more to learn from the same plans.

A job and its machines taken out of a near-best plan leave a near-best plan of what remains, since groups share nothing
and the objective is a sum: could the others do better among themselves, they could have done so before. The same holds
for machines that are idle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hulk.gnn.labels import Example
from hulk.propose.facts import Facts

_WITHOUT_IDLE = 0.5  # of the parts leave some idle machines away too
_OF_JOBS = ("need", "flops", "weight", "cut", "layers", "batch")
_OF_BOTH = ("rate", "usable")
_OF_LINKS = ("latency", "bandwidth", "measured")


def part_of(example: Example, rng: np.random.Generator) -> Example | None:
    """One of the example's plans without some of its jobs, or some of the machines that are idle in it, or both; None
    where nothing is left away, or a job is without machines. The objective left is not known: costs are 1."""
    jobs = example.facts.jobs
    plan = int(rng.integers(len(example.costs)))
    kept = np.sort(rng.permutation(jobs)[: int(rng.integers(1, jobs + 1))])
    table = example.tables[plan][:, [*kept, -1]].copy()
    if not table[:, :-1].any(axis=0).all():
        return None
    if len(kept) == jobs or rng.random() < _WITHOUT_IDLE:
        table[:, -1] = rng.binomial(table[:, -1], rng.random())
    if table.sum() == example.facts.members.sum():
        return None
    places = np.flatnonzero(table.sum(axis=1))
    return Example(
        example.seed,
        _facts_of(example.facts, kept, places, table[places].sum(axis=1)),
        table[places][None],
        example.recipes[plan][kept][None],
        example.beside[plan][np.ix_(places, places)][None],
        np.ones(1),
    )


def _facts_of(facts: Facts, jobs: np.ndarray, places: np.ndarray, members: np.ndarray) -> Facts:
    """Facts of some jobs and of some machines of some classes."""
    changed = {name: getattr(facts, name)[jobs] for name in _OF_JOBS}
    changed |= {name: getattr(facts, name)[np.ix_(jobs, places)] for name in _OF_BOTH}
    changed |= {name: getattr(facts, name)[np.ix_(places, places)] for name in _OF_LINKS}
    changed |= {name: getattr(facts, name)[places] for name in ("gpus", "room", "local", "card", "region")}
    return replace(facts, members=members, **changed)
