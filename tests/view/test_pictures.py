"""The README's pictures show the plan that the README prints."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import hulk

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
NOTE = json.loads((RESULTS / "page-pictures.json").read_text(encoding="utf-8"))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def test_they_were_made_of_the_example_and_are_as_they_were_made():
    assert NOTE["plan"] == digest(ROOT / "examples" / "hulk47.plan.json"), "make pictures"
    assert NOTE["pictures"] == {path.name: digest(path) for path in sorted(RESULTS.glob("page-*.png"))}, "make pictures"


def test_the_readme_shows_three_and_prints_their_plan():
    shown = re.findall(r"!\[[^]]*\]\(benchmarks/results/(page-[a-z]+\.png)\)", README)
    assert len(shown) >= 3
    assert set(shown) <= set(NOTE["pictures"])
    assert README.index("![") < README.index("```")  # one of them at the top
    printed = re.findall(r"^([a-z0-9-]+): (.+ a step, .+ tokens/s)$", README, re.M)
    assert printed
    for job, headline in printed:
        assert NOTE["headlines"][job] == headline, "the README's plan is another one than its pictures'"


def test_the_readme_prints_what_the_present_code_says_of_that_plan():
    block = " ".join(re.search(r"```text\n(.*?)```", README, re.S)[1].split())
    [(job, _)] = re.findall(r"^([a-z0-9-]+): (.+ a step, .+ tokens/s)$", README, re.M)
    told = hulk.load(ROOT / "examples" / "hulk47.plan.json", "hulk47", "paper4").words["jobs"][job]
    said = [
        told["headline"],
        told["plan"],
        told["memory"],
        told["cost"],
        told["bottleneck"],
        *told["group"],
        *told["cut"],
    ]
    parts = [f"{part['part']} {part['text']} {part['share']:.0%}" for part in told["step"]]
    missing = [words for words in said + parts if " ".join(words.split()) not in block]
    assert not missing, "hulk explain examples/hulk47.plan.json -c hulk47 -j paper4"
