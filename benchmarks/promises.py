"""Draws clusters, jobs, objectives and options together, runs `hulk plan` on each, and checks with a checker of its own
that every promise is kept or the exit code says that it cannot be.

python benchmarks/promises.py --json                 3,000 draws
python benchmarks/promises.py --from 217 --draws 1 --keep failing    draw 217 again; its files stay in failing/
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import Report, parser
from promises_run import Verdict, run_draw, warm_up

DRAWS, SEED = 3000, 2026
EVERY = 50  # draws between words on how far it is
# Each of these must be asked for and kept, and asked for where it cannot be kept.
BOTH_WAYS = (
    "max-cost",
    "min-throughput",
    "deadline",
    "pin",
    "avoid",
    "allow or deny",
    "place",
    "blocked link",
    "cheapest",
    "exact",
    "uniform",
    "engine",
    "headroom",
)


def main() -> int:
    """Draw, check, report. Exits 1 where a promise is broken or the draws are too one-sided to say so."""
    options = parser(__doc__)
    options.add_argument("--draws", type=int, default=DRAWS, help=f"how many ({DRAWS})")
    options.add_argument("--seed", type=int, default=SEED, help=f"of the draws ({SEED})")
    options.add_argument("--from", dest="first", type=int, default=0, metavar="K", help="the first draw's number (0)")
    options.add_argument("--keep", type=Path, metavar="DIR", help="keep the files of draws that break a promise")
    chosen = options.parse_args()
    warm_up()
    begin = time.monotonic()
    verdicts = []
    for number in range(chosen.first, chosen.first + chosen.draws):
        verdict = run_draw(chosen.seed, number, chosen.keep)
        verdicts.append(verdict)
        if verdict.faults:
            print(f"draw {number}: " + "; ".join(map(str, verdict.faults)), file=sys.stderr, flush=True)
        if len(verdicts) % EVERY == 0:
            broken = sum(bool(one.faults) for one in verdicts)
            words = f"{len(verdicts)} of {chosen.draws} draws, {broken} with faults, {time.monotonic() - begin:.0f} s"
            print(words, file=sys.stderr, flush=True)
    report = summary(verdicts, whole=chosen.draws >= 300)
    report.figure("seconds", time.monotonic() - begin)
    if not chosen.json:
        return report.finish(json=False)
    print(json.dumps(report.as_dict() | details(verdicts, chosen.seed)))
    return 0 if report.ok else 1


def summary(verdicts: list[Verdict], *, whole: bool) -> Report:
    """Counts and shares; `whole`: enough draws for shares to mean something."""
    report = Report("promises")
    count = len(verdicts)
    tags = Counter(tag for verdict in verdicts for tag in verdict.tags)
    crashes = sum(any(fault.promise == "ends well" for fault in verdict.faults) for verdict in verdicts)
    report.figure("draws", count)
    report.figure("crashes", crashes, most=0)
    report.figure("broken_promises", sum(bool(verdict.faults) for verdict in verdicts) - crashes, most=0)
    for code in (0, 2, 3):
        report.figure(f"share_exit_{code}", tags[f"exit {code}"] / count, least=0.5 if whole and code == 0 else None)
    report.figure("share_refused_as_it_may", tags["refused as it may"] / count, most=0.1 if whole else None)
    report.figure("share_gave_up", tags["gave up"] / count, most=0.02 if whole else None)
    report.figure("slowest_s", max(verdict.seen.seconds for verdict in verdicts))
    for kind in BOTH_WAYS:
        for word in ("kept", "not kept"):
            report.figure(f"{kind}: {word}", tags[f"{kind} {word}"], least=1 if whole else None)
    report.figure("allow nowhere", tags["allow nowhere not kept"], least=1 if whole else None)
    report.figure("exact compared", tags["exact compared"], least=1 if whole else None)
    refused = Counter(verdict.case.refuse for verdict in verdicts if verdict.case.refuse)
    report.table("contradictions", ["what", "draws"], sorted(refused.items()))
    by_promise = Counter(fault.promise for verdict in verdicts for fault in set(verdict.faults))
    report.table("broken promises", ["promise", "times"], by_promise.most_common())
    return report


def details(verdicts: list[Verdict], seed: int) -> dict[str, Any]:
    """For the JSON: how each draw ended, the slowest ones, and every failure with how to see it again."""
    slowest = sorted(verdicts, key=lambda verdict: -verdict.seen.seconds)[:5]
    again = f"python benchmarks/promises.py --seed {seed} --draws 1 --keep failing --from"
    return {
        "by_exit": dict(Counter(verdict.seen.how for verdict in verdicts)),
        "slowest": [{"draw": verdict.number, "seconds": round(verdict.seen.seconds, 2)} for verdict in slowest],
        "gave_up": [verdict.number for verdict in verdicts if "gave up" in verdict.tags],
        "failures": [
            {
                "draw": verdict.number,
                "faults": [str(fault) for fault in verdict.faults],
                "again": f"{again} {verdict.number}",
            }
            for verdict in verdicts
            if verdict.faults
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
