"""What becomes of a toy option in a copy of the package, which `tests/test_extending.py` makes: its way from plans and
prices to a network's proposals, asked through what people and programs use, and told as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from hulk.cli.app import app
from hulk.domain.options import COLUMN, SPACE, options_of, places_of
from hulk.domain.plan import Plan
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.plan_file import dump_plan, load_plan, save_plan
from hulk.io.profiles import bundled_compute
from hulk.propose import bundled_network, proposals, starts
from hulk.propose.graph import Graph
from hulk.propose.network import Answer, Proposing
from hulk.propose.recipe import Head
from hulk.search.assignment.race import GroupSearch
from hulk.search.deals import COLUMNS
from hulk.search.layouts import DEGREE, LAYOUT, LENGTH, SLOW_DEGREE
from hulk.search.recipes import price
from hulk.search.results import RUNS
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.spaces import spaces_of

CONFIG = {
    "model_type": "gpt2", "n_embd": 512, "n_layer": 4, "n_head": 8, "vocab_size": 2048, "n_positions": 512,
    "tie_word_embeddings": False,
}  # fmt: skip
JOBS = "jobs: [{name: toy, model: config.json, sequence: 512, global_batch: 16, precision: fp32}]\n"
REGIONS = "regions: {rome: {at: [41.9, 12.5], egress: 0.1 $/GB}, paris: {at: [48.9, 2.4], egress: 0.1 $/GB}}\n"
MACHINES = """machines:
  - {name: a, region: rome, gpu: gtx-1080, gpus: 1, network: 25 Gbit/s}
  - {name: b, region: paris, gpu: gtx-1080, gpus: 1, network: 25 Gbit/s}
"""
LINKS = "links: [{{between: [rome, paris], latency: 0.01 ms, bandwidth: {}}}]\n"
ONE = "regions: {rome: {at: [41.9, 12.5]}}\nmachines: [{name: a, region: rome, gpu: gtx-1080, gpus: 1}]\n"
SEARCH = ("--evaluations", "300", "--workers", "1")


class Case:
    """A folder with the job on two machines with a good link ("good"), with a bad one ("bad"), and on one ("one")."""

    def __init__(self, folder: Path, option: str) -> None:
        self.folder = folder
        self.option = option
        self.column = COLUMN[option]
        (folder / "config.json").write_text(json.dumps(CONFIG))
        (folder / "jobs.yaml").write_text(JOBS)
        (folder / "good.yaml").write_text(REGIONS + MACHINES + LINKS.format("25 Gbit/s"))
        (folder / "bad.yaml").write_text(REGIONS + MACHINES + LINKS.format("10 Mbit/s"))
        (folder / "one.yaml").write_text(ONE)

    def hulk(self, *words: str) -> str:
        """What a command prints, in one line."""
        paths = [str(self.folder / word) if word.endswith((".yaml", ".json")) else word for word in words]
        done = CliRunner().invoke(app, paths, catch_exceptions=False)
        assert done.exit_code == 0, f"hulk {' '.join(words)}: {done.output}"
        return " ".join(done.stdout.split())

    def groups(self, cluster: str) -> GroupSearch:
        """A search over a cluster."""
        machines, jobs = load_cluster(self.folder / f"{cluster}.yaml"), load_jobs(self.folder / "jobs.yaml")
        return GroupSearch(spaces_of(machines, jobs, bundled_compute()), np.random.default_rng(0))

    def planned(self, cluster: str, *how: str) -> dict[str, Any]:
        """A plan by `hulk plan`: what it says, what stands in its file, and what is read from there."""
        words = self.hulk("plan", f"{cluster}.yaml", "jobs.yaml", "-o", "plan.json", *how)
        text = (self.folder / "plan.json").read_text()
        plan = load_plan(self.folder / "plan.json")
        files = ("plan.json", "--cluster", f"{cluster}.yaml", "--jobs", "jobs.yaml")
        return {
            "words": words,
            "explained": self.hulk("explain", *files),
            "value": json.loads(text)["jobs"]["toy"][self.option],
            "loaded": getattr(plan.jobs["toy"].options, self.option),
            "same": dump_plan(plan, cluster=load_cluster(self.folder / f"{cluster}.yaml")) == text,
            "step": json.loads(self.hulk("price", *files, "--json"))["jobs"]["toy"]["step_s"],
        }

    def prices(self, cluster: str, machines: int) -> list[dict[str, float]]:
        """By each value of the option, what two replicas (or one) take: by `hulk price`, `hulk simulate`, and what the
        search asks for in Python; last the bytes that leave a region, in dollars."""
        space = self.groups(cluster).spaces[0]
        found = []
        for value in SPACE[self.column].values:
            options = replace(space.plainest, microbatch_size=4, **{self.option: value})
            skeleton = Skeleton(tuple((Slot(m, 1),) for m in range(machines)), options)
            made, _ = space.plan(skeleton)
            plan = Plan({"toy": replace(made, options=options)})  # also where it has no effect
            save_plan(plan, self.folder / "by_hand.json")
            files = ("by_hand.json", "--cluster", f"{cluster}.yaml", "--jobs", "jobs.yaml", "--json")
            told = json.loads(self.hulk("price", *files))["jobs"]["toy"]
            played = json.loads(self.hulk("simulate", *files))["jobs"]["toy"]
            found.append(
                {
                    "price": told["step_s"],
                    "simulate": played["step_s"],
                    "search": space.result(skeleton).value,
                    "egress": told["money_per_step"]["egress"],
                }
            )
        return found

    def compiled_prices(self, cluster: str) -> dict[str, Any]:
        """The compiled search's own price of replicas, by each value, nothing forgotten in between; and how many prices
        it then remembers."""
        groups = self.groups(cluster)
        owner, recipe = np.zeros(len(groups.packed.place), np.int64), np.zeros(COLUMNS, np.int64)
        recipe[[DEGREE, SLOW_DEGREE, LENGTH]] = 1
        seconds = []
        for place in range(len(SPACE[self.column].values)):
            recipe[LAYOUT + self.column] = place
            status, value = price(groups.packed, groups.work, 0, owner, recipe, np.inf)
            assert status == RUNS
            seconds.append(float(value))
        return {"seconds": seconds, "remembered": int(np.count_nonzero(groups.work.memo.keys))}

    def round_trip(self) -> bool:
        """Whether each value is found again from its place among those tried."""
        scope, plain = self.groups("good").spaces[0].scope, self.groups("good").spaces[0].plainest
        each = [replace(plain, **{self.option: value}) for value in SPACE[self.column].values]
        return [options_of(scope, places_of(options, scope)) for options in each] == each

    def proposed(self, network: Proposing) -> list[int]:
        """The option's place in the recipes that a network proposes."""
        found = proposals(self.groups("good").packed, np.random.default_rng(0), samples=8, network=network)
        return [int(deal.recipes[0, LAYOUT + self.column]) for deal in found.deals]


class Knowing:
    """The shipped network, as if it had a head for the option and were sure of one value."""

    def __init__(self, option: str, place: int) -> None:
        self.network = bundled_network()
        self.head = Head(option, (False, True))
        self.logits = 50.0 * np.eye(2, dtype=np.float32)[place]

    def run(self, graph: Graph, known: Any) -> Answer:
        """See `hulk.propose.network.Proposing`."""
        answer = self.network.run(graph, known)
        more = np.broadcast_to(self.logits, (*answer.recipes.shape[:-1], 2))
        recipes = np.concatenate([answer.recipes, more], axis=-1)
        return answer._replace(recipes=recipes, heads=(*answer.heads, self.head))


def report(folder: Path, option: str) -> dict[str, Any]:
    """All of it."""
    case = Case(folder, option)
    network = bundled_network()
    groups = case.groups("good")
    begun = starts(groups, rng=np.random.default_rng(0), network=network, samples=4)
    return {
        "planned": case.planned("good", *SEARCH),
        "exact": case.planned("good", "--exact"),
        "planned_on_one": case.planned("one", *SEARCH),
        "exact_on_one": case.planned("one", "--exact"),
        "schema": json.loads(case.hulk("schema", "plan"))["$defs"]["JobPlanEntry"]["properties"][option],
        "prices": case.prices("bad", 2),
        "prices_on_one": case.prices("one", 1),
        "compiled": case.compiled_prices("bad"),
        "compiled_on_one": case.compiled_prices("one"),
        "round_trip": case.round_trip(),
        "heads": [head.name for head in network.heads],
        "proposed": [case.proposed(Knowing(option, place)) for place in (0, 1)],
        "begun": [deal.seconds[0] for deal in begun],
    }


if __name__ == "__main__":
    print(json.dumps(report(Path(sys.argv[1]), sys.argv[2])))
