"""What the graph network is worth: how much sooner the search has a good plan, how good proposals are, what it costs.

    python benchmarks/gnn.py --only time --cap 60      finds the best plans known, too: both ways have 60 s a scene
    python benchmarks/gnn.py                           everything, about an hour on two cores
    python benchmarks/gnn.py --only time --scenes 20   parts: time, proposal, inference, bundled, change, cold

Scenes are drawn by seeds that training has not seen, with 32 to 1,000 machines spread evenly in the logarithm, at least
two jobs each. The best plan known of a scene is the cheapest deal that any run has come across; its cost is kept in
benchmarks/data/gnn.json. Costs are those of `GroupSearch.cost`, the search's own price of a deal: the weighted sum of
the jobs' times before the cuts are refined.

time       seconds until the search for deals has one within 1 % of the best known, with and without the network. The
           same search, one core: runs of 1, 2, 4 … s, each from new draws, the last one's best deals and, with the
           network, its proposals, until the cap. Reading the network, packing the scene and making proposals count;
           loading compiled code does not. A miss counts as the cap; scenes that both miss are left out of ratios.
proposal   the best of 16 proposals, without search over who gets what: its cuts by quick looks, then by the planner's
           search for cuts inside given groups, as the baselines greedy and METIS have it. Beside it the paper's
           one-shot policy, and networks trained without edge features or as a plain graph convolution
           (benchmarks/data/networks), refined alike and, as drawn, with one look at each proposal and nothing refined.
inference  what the planner waits for: all proposals for hulk47, and for 10,000 machines with 60 jobs.
bundled    plans of the bundled clusters, with and without the network, in the same time.
change     one machine is taken away: how much of the proposal changes, and the plan with the network against without.
cold       `hulk plan hulk47 paper4`: seconds until the first plan is on screen, and in all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common import Report, parser
from gnn_plans import bundled_part, change_part, cold_part, infer_large, inference_part
from gnn_proposal import proposal_part
from gnn_scenes import DRAWS, Given, Kept, warm
from gnn_search import time_part

PARTS: dict[str, Callable[[Report, Kept, Given], None]] = {
    "time": time_part,
    "proposal": proposal_part,
    "inference": inference_part,
    "bundled": bundled_part,
    "change": change_part,
    "cold": cold_part,
}


def build_report(given: Given, only: Sequence[str] = tuple(PARTS), kept: Kept | None = None) -> Report:
    """The parts asked for."""
    report = Report("gnn")
    warm()
    for name in only:
        PARTS[name](report, kept or Kept(), given)
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    default = Given()
    arguments.add_argument("--seed", type=int, default=default.seed, help="which scenes; 0 are the kept ones")
    arguments.add_argument("--scenes", type=int, default=default.scenes, help=f"how many, up to {DRAWS}")
    arguments.add_argument("--cap", type=float, default=default.cap, help="seconds for each way to search a scene")
    arguments.add_argument("--first", type=float, default=default.first, help="seconds of its first run; then doubled")
    arguments.add_argument("--workers", type=int, default=default.workers, help="scenes at a time, a core for each")
    arguments.add_argument("--repeats", type=int, default=default.repeats, help="searches of a scene each way")
    arguments.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    arguments.add_argument("--network", type=Path, default=default.network, help="folder with network.onnx")
    arguments.add_argument("--one", action="store_true", help="10,000 machines, numbers as JSON")
    got = arguments.parse_args()
    network = got.network.resolve()
    given = Given(min(got.scenes, DRAWS), got.seed, got.cap, got.first, got.workers, network, got.repeats)
    only = got.only.split(",")
    if unknown := set(only) - PARTS.keys():
        arguments.error(f"no part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    if got.one:
        print(json.dumps(infer_large(given.network, given.seed)))
        return 0
    return build_report(given, only).finish(got.json)


if __name__ == "__main__":
    sys.exit(main())
