"""The suite runs compiled code with every index checked, people run it without: both give the same numbers."""

from __future__ import annotations

import json
import os

from warm import ROOT, hulk_anew

PRICE = ("price", "examples/hulk47.plan.json", "--cluster", "hulk47", "--jobs", "paper4", "--json")


def test_prices_are_the_same_with_and_without_checks() -> None:
    told = []
    for checked in ("0", "1"):
        done = hulk_anew(*PRICE, cwd=ROOT, env=os.environ | {"NUMBA_BOUNDSCHECK": checked})
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    assert told[0] == told[1]
