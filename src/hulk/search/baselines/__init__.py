"""Other ways to plan, each honest and as strong as its idea, all priced alike: what the planner is compared with.

Reading order: `result` (what they answer), `score` (what that is worth), `scene` and `groups` (what they share), then
one idea a file.
"""

from __future__ import annotations

from hulk.search.baselines.alone import alone
from hulk.search.baselines.data_parallel import data_parallel
from hulk.search.baselines.evolution import EVALUATIONS, evolution, random_best
from hulk.search.baselines.gpipe import gpipe_in_file_order, gpipe_on_a_tour
from hulk.search.baselines.greedy import greedy_by_region
from hulk.search.baselines.metis import metis
from hulk.search.baselines.registry import Baseline, Entry, Registry
from hulk.search.baselines.result import BaselineResult, Placement
from hulk.search.baselines.score import Score, score
from hulk.search.baselines.tensor_parallel import tensor_parallel

BASELINES = Registry()
BASELINES.add("A", "data parallel on all machines that can hold the model", data_parallel)
BASELINES.add("B", "GPipe over all machines, in file order", gpipe_in_file_order)
BASELINES.add("B-tour", "GPipe over all machines, on a greedy tour", gpipe_on_a_tour)
BASELINES.add("C", "tensor parallel over all machines", tensor_parallel)
BASELINES.add("alone", "each job alone on all machines, cut as the planner cuts", alone)
BASELINES.add("greedy", "greedy by region", greedy_by_region)
BASELINES.add("metis", "METIS partition, the planner's cut inside", metis)
BASELINES.add("evolution", f"evolutionary search of the DT-FM kind, {EVALUATIONS:,} evaluations", evolution)
BASELINES.add("random", f"best of {EVALUATIONS:,} random plans", random_best)

__all__ = [
    "BASELINES",
    "EVALUATIONS",
    "Baseline",
    "BaselineResult",
    "Entry",
    "Placement",
    "Registry",
    "Score",
    "score",
]
