"""The suite runs compiled code with every index checked and optimised little, people run it unchecked and optimised in
full: both give the same numbers."""

from __future__ import annotations

import json
import os

from warm import ROOT, hulk_anew

PRICE = ("price", "examples/hulk47.plan.json", "--cluster", "hulk47", "--jobs", "paper4", "--json")


def test_prices_are_the_same_with_and_without_checks() -> None:
    told = []
    for as_tested in ({}, {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1"}):
        as_people_run_it = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        done = hulk_anew(*PRICE, cwd=ROOT, env=as_people_run_it | as_tested)
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    assert told[0] == told[1]
