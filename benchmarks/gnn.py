"""What the graph network is worth: how good the search's plan is after so many seconds, how good proposals are, what
they cost.

    python benchmarks/gnn.py                                           everything, about an hour on two cores
    python benchmarks/gnn.py --only marks --scenes 100 --repeats 3 --at-once 16    ten minutes on 16 cores
    python benchmarks/gnn.py --only marks --scenes 4 --first 100 --limit 4         parts: marks, proposal, inference,
                                                                                   bundled, change, cold

Scenes are drawn by seeds that training has not seen, with 32 to 1,000 machines spread evenly in the logarithm, at least
two jobs each. The best plan known of a scene is the cheapest that any run has come across; its cost is kept in
benchmarks/data/gnn.json. Costs are the default objective: the weighted sum of the jobs' times.

marks      the gap to the best known after 0.2, 0.5, 1, 2, 4, 8 and 16 s, median over scenes and seeds, of the search
           alone and with the network: small scenes (under 300 machines) and large ones. One search, on one core, is
           followed for all marks. At 0.5 and 1 s the network must leave at most 0.6 of the gap of large scenes, and
           nowhere may its gap be larger by more than a percentage point. Packing the scene counts, which is most of
           the first mark where there are many jobs; reading the network and loading compiled code do not. Without a
           plan yet, or where a job waits, a gap is 1,000 %.
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
from gnn_scenes import Given, Kept, warm
from gnn_search import marks_part

PARTS: dict[str, Callable[[Report, Kept, Given], None]] = {
    "marks": marks_part,
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
    arguments.add_argument("--scenes", type=int, default=default.scenes, help="how many")
    arguments.add_argument("--first", type=int, default=default.first, help="the first of them")
    arguments.add_argument("--limit", type=float, default=default.limit, help="seconds for each search of a scene")
    arguments.add_argument("--repeats", type=int, default=default.repeats, help="searches of a scene each way")
    arguments.add_argument("--at-once", type=int, default=default.at_once, help="scenes at a time, a core for each")
    arguments.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    arguments.add_argument("--network", type=Path, default=default.network, help="folder with network.onnx")
    arguments.add_argument("--one", action="store_true", help="10,000 machines, numbers as JSON")
    got = arguments.parse_args()
    network = got.network.resolve()
    given = Given(got.scenes, got.first, got.limit, got.at_once, network, got.repeats)
    only = got.only.split(",")
    if unknown := set(only) - PARTS.keys():
        arguments.error(f"no part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    if got.one:
        print(json.dumps(infer_large(given.network)))
        return 0
    return build_report(given, only).finish(got.json)


if __name__ == "__main__":
    sys.exit(main())
