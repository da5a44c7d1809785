"""Cases that must be refused: drawn ones with a contradiction or a slip of the pen in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import yaml

from promises_case import Case, as_yaml


def contradict(rng: Random, case: Case, turn: int) -> Case:
    """The case with something in it that must be refused: each kind in turn, or the next one that can be put in."""
    kinds = list(_CONTRADICTIONS.items())
    start = turn % len(kinds)
    for name, make in (*kinds[start:], *kinds[:start]):
        made = make(rng, case)
        if made is not None:
            return replace(made, refuse=name)
    raise AssertionError("most kinds fit any case")


def _with(case: Case, **options: Any) -> Case:
    return replace(case, options=replace(case.options, **options))


def _edited(case: Case, number: int, **entry: Any) -> Case:
    """The case with an entry of its jobs file changed, as a file alone: it is to be refused."""
    document = yaml.safe_load(case.files["jobs.yaml"])
    changed = document["jobs"][number] | entry
    document["jobs"][number] = {key: value for key, value in changed.items() if value is not None}
    return replace(case, files={**case.files, "jobs.yaml": as_yaml(document)})


def _pin_and_avoid(rng: Random, case: Case) -> Case:
    pair = (rng.choice(case.jobs).name, rng.choice(case.machines).name)
    return _with(case, pins=(*case.options.pins, pair), avoids=(*case.options.avoids, pair))


def _pin_twice(rng: Random, case: Case) -> Case | None:
    if len(case.jobs) < 2:
        return None
    machine = rng.choice(case.machines).name
    return _with(case, pins=tuple((job.name, machine) for job in rng.sample(case.jobs, 2)), avoids=())


def _pin_elsewhere(rng: Random, case: Case) -> Case:
    number, machine = rng.randrange(len(case.jobs)), rng.choice(case.machines)
    rules: list[dict[str, list[str]]] = [{"deny": [machine.region]}, {"allow": []}, {"allow": ["atlantis"]}]
    return _edited(_with(case, pins=((case.jobs[number].name, machine.name),), avoids=()), number, **rng.choice(rules))


def _too_large(rng: Random, case: Case) -> Case | None:
    large = len(case.machines) > 8 or any(len(job.shape.pieces) > 10 or job.global_batch > 64 for job in case.jobs)
    return _with(case, exact=True, no_gnn=False) if large else None


def _number_of(rng: Random, case: Case) -> int:
    return rng.randrange(len(case.jobs))


_CONTRADICTIONS: dict[str, Callable[[Random, Case], Case | None]] = {
    "the same machine pinned and avoided": _pin_and_avoid,
    "a machine pinned to two jobs": _pin_twice,
    "a pin where the job may not run": _pin_elsewhere,
    "a money limit and a throughput without --cheapest": lambda _, case: _with(case, max_cost=5.0, min_throughput=1.0),
    "--exact on a large case": _too_large,
    "the paper's policy without the network": lambda _, case: _with(case, paper=True, no_gnn=True),
    "the paper's policy and --exact": lambda _, case: _with(case, paper=True, exact=True),
    "a deadline without tokens": lambda rng, case: _edited(case, _number_of(rng, case), tokens=None, deadline="3 h"),
    "a deadline that is no time": lambda rng, case: _edited(
        case, _number_of(rng, case), tokens="1B", deadline=rng.choice(("soon", "5", "3 GB", "-2 h", "nan h"))
    ),
    "a pin of a job that is not there": lambda _, case: _with(case, pins=(("nobody", case.machines[0].name),)),
    "an avoided machine that is not there": lambda _, case: _with(case, avoids=((case.jobs[0].name, "nothing"),)),
    "a money limit that is no price": lambda rng, case: _with(
        case, max_cost=None, min_throughput=None, extra=("--max-cost", rng.choice(("50", "cheap", "-3 $/h", "5 GB")))
    ),
    "an option out of range": lambda rng, case: _with(
        case,
        extra=rng.choice(
            (
                ("--evaluations", "0"),
                ("--time-limit", "0"),
                ("--time-limit", "nan"),
                ("--workers", "0"),
                ("--seed", "-1"),
                ("--min-throughput", "-1"),
                ("--min-throughput", "nan"),
            )
        ),
    ),
    "a plan in a folder that is not there": lambda _, case: _with(case, out="missing/plan.json"),
}
