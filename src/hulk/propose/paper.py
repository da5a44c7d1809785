"""The paper's policy: one look at the network, jobs from large to small, each with the machines it is the likeliest
owner of. For comparison; `hulk.propose.decode` does better."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hulk.propose.decode import owners
from hulk.propose.facts import Facts
from hulk.propose.graph import Graph
from hulk.propose.network import Proposing
from hulk.propose.repair import MEMORY
from hulk.search.tables import SearchTables


def paper_policy(packed: SearchTables, network: Proposing) -> NDArray[np.int64]:
    """The owner of every machine, −1 for nobody. A job whose machines do not hold its model waits, and its machines go
    on to the likeliest of the jobs that are still to come."""
    facts = Facts.of(packed)
    known = np.zeros((1, facts.places, facts.jobs + 1))
    shares = np.exp(network.run(Graph.of(facts), known).shares[0].astype(float))
    shares[:, :-1][facts.usable.T < 1.0] = 0.0
    table = np.zeros((facts.places, facts.jobs + 1), np.int64)
    free = np.ones(facts.places, bool)
    still = np.append(np.ones(facts.jobs, bool), True)
    for job in np.argsort(-facts.need, kind="stable"):
        likeliest = np.where(still, shares, -1.0).argmax(axis=1)
        group = free & (likeliest == job)
        still[job] = False
        if (facts.room * facts.members)[group].sum() >= MEMORY * facts.need[job]:
            table[group, job] = facts.members[group]
            free &= ~group
    return owners(packed, table)
