"""The price against runs: plans executed by `hulk run` over an emulated wide-area network, with emulated compute.

1. Twenty configurations, each drawn from a seed of its own: 2 to 8 machines in 2 to 4 regions, 5 to 150 ms, 50 to 500
   Mbit/s, 1 to 3 replicas, equal and unequal stages, all schedules. Drawn again until the prediction is a step of 1 to
   4 s with a tenth of compute; the prediction never sees a measurement. Measured: the median step after the first.
2. Eight more in which pipelines share network cards (several GPUs in a machine with a slow card) or the trunk between
   two regions, emulated as such. Drawn again until sharing costs a tenth of the predicted step or more.
3. The paper's claim on a part of hulk47: eight of its machines in four cities with their latencies, one GPU each, all
   bandwidths and the GPUs' memory divided by one number each, and jobs small enough for that. Hulk's plan and the
   systems A, B and C, each run in turn, by the same plans that `hulk validate` runs. C is no plan that can be run
   (tensor parallel over machines), so its price stands for it.

Needs what `hulk testbed` needs: Linux, root. `--only` runs some configurations, for looking at them.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median

from common import Report, parser
from hulk.contestant import compared, paper_systems
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import HULK
from hulk.cost.price import price_job
from hulk.cost.report import Infeasible
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import Options, Schedule, Sharding, Sync
from hulk.domain.plan import JobPlan, Pipeline, Plan, Stage
from hulk.io.cluster_file import load_cluster
from hulk.io.jobs_file import load_jobs
from hulk.io.profiles import bundled_compute
from hulk.propose import bundled_network
from hulk.runtime.measure import Measured, Trial, measure
from hulk.runtime.validate import validate
from hulk.search.budget import Effort
from hulk.testbed import Testbed, missing

CONFIGURATIONS, SHARED = 20, 8
LEAST_SHARING = 0.1
"""Part of a step, as if nothing were shared, that sharing adds in the configurations for it."""
STEPS = 6
SHORTEST, LONGEST = 1.0, 4.0
"""Seconds of a predicted step."""
LEAST_COMPUTE = 0.1
"""Share of a predicted step in which the busiest stage computes: without it every schedule would be the same."""
PART = (
    "beijing-2", "beijing-3", "tokyo-1", "tokyo-2", "california-1", "california-2", "berlin-1", "berlin-2",
)  # fmt: skip
SCALE = 10.0
"""What hulk47's bandwidths are divided by: its fastest link becomes 500 Mbit/s."""
MEMORY_SCALE = 350.0
"""What the memory that tensors can have is divided by, so that models of this size need several machines too."""
JOBS: dict[str, dict[str, object]] = {
    "gpt2": {"sequence": 256, "global_batch": 32},
    "bert": {"sequence": 256, "global_batch": 64},
}
CLAIM_STEPS = 3
GPUS = ("gtx-1080", "quadro-p5000", "v100-32", "rtx-3090", "a100-40")
MODELS: dict[str, dict[str, object]] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 128, "n_layer": 32, "n_head": 4, "n_positions": 1024, "vocab_size": 4000},
    "llama": {
        "model_type": "llama", "hidden_size": 192, "num_hidden_layers": 24, "num_attention_heads": 6,
        "intermediate_size": 512, "vocab_size": 2000,
    },
    "bert": {
        "model_type": "bert", "hidden_size": 96, "num_hidden_layers": 40, "num_attention_heads": 4,
        "intermediate_size": 384, "max_position_embeddings": 512, "vocab_size": 3000,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """A cluster, a job and a plan, as the workers read them from `folder`."""

    number: int
    folder: Path
    cluster: Cluster
    job: Job
    plan: JobPlan

    @property
    def files(self) -> tuple[str, str]:
        """The cluster's and the jobs' file."""
        return str(self.folder / "cluster.yaml"), str(self.folder / "jobs.yaml")

    @property
    def row(self) -> list[str]:
        """What it is, in words."""
        used = {stage.machine for pipeline in self.plan.pipelines for stage in pipeline.stages}
        regions = {self.cluster.machine(name).region for name in used}
        stages = "+".join(str(len(pipeline.stages)) for pipeline in self.plan.pipelines)
        shape = [str(len(used)), str(len(regions)), stages, str(len(self.plan.pipelines))]
        model = str(self.job.model.config["model_type"])
        return [str(self.number), model, *shape, str(self.plan.options.schedule), str(self.plan.options.sync)]


def draw(number: int, folder: Path, compute: ComputeModel) -> Configuration:
    """The configuration of that number; the same every time."""
    rng = random.Random(7000 + number)
    folder.mkdir(parents=True)
    while True:
        machines = 2 + number % 7
        replicas = min(1 + number % 3, machines)
        regions = min(2 + number // 2 % 3, machines)
        names = write_cluster(folder, machines, regions, rng)
        model = rng.choice(sorted(MODELS))
        size = rng.choice((1, 2, 4))
        shares = [rng.randint(4, 20)] * replicas
        if number % 2:  # unequal stages come with unequal shares
            shares = [rng.randint(3, 20) for _ in range(replicas)]
        entry = {
            "name": "job",
            "model": "./config.json",
            "sequence": rng.choice((64, 128, 256, 512)),
            "precision": "fp32",
        }
        entry["global_batch"] = sum(shares) * size
        (folder / "config.json").write_text(json.dumps(MODELS[model]))
        (folder / "jobs.yaml").write_text(json.dumps({"jobs": [entry]}))
        cluster, (job,) = load_cluster(folder / "cluster.yaml"), load_jobs(folder / "jobs.yaml")
        cuts = _cuts(len(job.model.layers), _lengths(machines, replicas, number, rng), number, rng)
        rng.shuffle(names)
        pipelines, at = [], 0
        for share, cut in zip(shares, cuts, strict=True):
            stages = [Stage(names[at + i], (0,), a, b) for i, (a, b) in enumerate(cut)]
            pipelines.append(Pipeline(tuple(stages), share))
            at += len(stages)
        plan = JobPlan(
            tuple(pipelines),
            Options(
                microbatch_size=size,
                schedule=Schedule.parse(("gpipe", "1f1b", f"1f1b+{rng.randint(1, 4)}")[(number + number // 3) % 3]),
                sync=rng.choice(list(Sync)),
                sharding=Sharding.OPTIMIZER if replicas > 1 and rng.random() < 0.4 else Sharding.NONE,
            ),
        )
        price = price_job(job, plan, cluster, compute=compute)  # the closed forms: draws stay as engines change
        if isinstance(price, Infeasible) or not SHORTEST <= price.step <= LONGEST:
            continue
        if price.breakdown.compute >= LEAST_COMPUTE * price.step:
            return Configuration(number, folder, cluster, job, plan)


def draw_shared(number: int, folder: Path, compute: ComputeModel) -> Configuration:
    """A configuration in which messages and sums share cards or trunks; the same every time."""
    rng = random.Random(7000 + number)
    folder.mkdir(parents=True)
    while True:
        flow, gpus = _between(60, 200, rng), rng.choice((2, 3))
        by_trunk = number % 2 == 0
        card = 2000.0 if by_trunk else flow * rng.uniform(0.8, 1.5)
        link: dict[str, object] = {"between": ["r0", "r1"], "latency": f"{_between(5, 40, rng):.0f} ms"}
        link["bandwidth"] = f"{flow:.0f} Mbit/s"
        if by_trunk:
            link["trunk"] = f"{flow * rng.uniform(1.0, 1.6):.0f} Mbit/s"
        kinds = {region: rng.choice(GPUS) for region in ("r0", "r1")}
        machines = [
            {"name": f"m{i}", "region": r, "gpu": kinds[r], "gpus": gpus, "network": f"{card:.0f} Mbit/s"}
            for i, r in enumerate(("r0", "r0", "r1", "r1"))
        ]
        data = {
            "name": "shared",
            "regions": {"r0": {"at": [0, 0]}, "r1": {"at": [10, 10]}},
            "machines": machines,
            "links": [link],
            "assume": {"inside": {"latency": "2 ms", "bandwidth": f"{min(card, 500.0):.0f} Mbit/s"}},
        }
        (folder / "cluster.yaml").write_text(json.dumps(data))
        model, size, share = rng.choice(sorted(MODELS)), rng.choice((1, 2)), rng.randint(4, 12)
        replicas = rng.randint(2, 2 * gpus if number % 4 < 2 else 3)
        entry = {"name": "job", "model": "./config.json", "sequence": rng.choice((128, 256)), "precision": "fp32"}
        entry["global_batch"] = share * size * replicas
        (folder / "config.json").write_text(json.dumps(MODELS[model]))
        (folder / "jobs.yaml").write_text(json.dumps({"jobs": [entry]}))
        cluster, (job,) = load_cluster(folder / "cluster.yaml"), load_jobs(folder / "jobs.yaml")
        cut = rng.randint(len(job.model.layers) // 3, 2 * len(job.model.layers) // 3)
        pipelines = []
        for p in range(replicas):
            near, far = f"m{p % 2}", f"m{2 + p % 2}"
            pipelines.append(
                Pipeline(
                    (Stage(near, (p // 2,), 0, cut), Stage(far, (p // 2,), cut + 1, len(job.model.layers) - 1)), share
                )
            )
        plan = JobPlan(
            tuple(pipelines),
            Options(
                microbatch_size=size,
                schedule=Schedule.parse(rng.choice(("1f1b", "1f1b+2", "gpipe"))),
                sync=rng.choice(list(Sync)),
            ),
        )
        price = price_job(job, plan, cluster, compute=compute, engine=HULK)
        if isinstance(price, Infeasible) or not SHORTEST <= price.step <= 2 * LONGEST:
            continue
        if price.step >= (1 + LEAST_SHARING) * price.alone:
            return Configuration(number, folder, cluster, job, plan)


def write_cluster(folder: Path, machines: int, regions: int, rng: random.Random) -> list[str]:
    """A cluster file; answers with the machines' names."""
    places = [f"r{i}" for i in range(regions)]
    homes = places + [rng.choice(places) for _ in range(machines - regions)]
    links = [
        {
            "between": [a, b],
            "latency": f"{_between(5, 150, rng):.0f} ms",
            "bandwidth": f"{_between(50, 500, rng):.0f} Mbit/s",
        }
        for i, a in enumerate(places)
        for b in places[:i]
    ]
    data = {
        "name": "drawn",
        "regions": {place: {"at": [10 * i, 10 * i]} for i, place in enumerate(places)},
        "machines": [
            {"name": f"m{i}", "region": home, "gpu": rng.choice(GPUS), "gpus": 1, "network": "2 Gbit/s"}
            for i, home in enumerate(homes)
        ],
        "links": links,
        "assume": {"inside": {"latency": "5 ms", "bandwidth": "500 Mbit/s"}},
    }
    (folder / "cluster.yaml").write_text(json.dumps(data))
    return [f"m{i}" for i in range(machines)]


def _between(least: float, most: float, rng: random.Random) -> float:
    """Drawn evenly on a logarithmic scale."""
    return float(least * (most / least) ** rng.random())


def _lengths(machines: int, replicas: int, number: int, rng: random.Random) -> list[int]:
    """How many stages each replica has."""
    lengths = [machines // replicas + (i < machines % replicas) for i in range(replicas)]
    if number % 2 and replicas > 1 and lengths[-1] > 1:
        lengths[0], lengths[-1] = lengths[0] + 1, lengths[-1] - 1
    rng.shuffle(lengths)
    return lengths


def _cuts(layers: int, lengths: Sequence[int], number: int, rng: random.Random) -> list[list[tuple[int, int]]]:
    """First and last layer of every stage: even, or anywhere where the configuration's number is odd."""
    result = []
    for length in lengths:
        inner = [round(layers * i / length) for i in range(1, length)]
        if number % 2:
            inner = sorted(rng.sample(range(1, layers), length - 1))
        borders = [0, *inner, layers]
        result.append([(a, b - 1) for a, b in pairwise(borders)])
    return result


def run_one(configuration: Configuration, compute: ComputeModel) -> Measured:
    """A configuration in a testbed of its own."""
    with Testbed.up(configuration.cluster, name=f"bench-{configuration.number}") as testbed:
        trial = Trial(configuration.cluster, [configuration.job], configuration.files, testbed, compute, STEPS)
        return measure(Plan({configuration.job.name: configuration.plan}), trial)[configuration.job.name]


def compare_prices(report: Report, folder: Path, compute: ComputeModel, numbers: Sequence[int]) -> None:
    """The drawn configurations: a row each, and how far off the price is."""
    rows: list[list[str]] = []
    errors: dict[bool, list[float]] = {False: [], True: []}  # by whether sharing is what it is about
    for number in numbers:
        shared = number >= CONFIGURATIONS
        configuration = (draw_shared if shared else draw)(number, folder / str(number), compute)
        measured = run_one(configuration, compute)
        errors[shared].append(abs(measured.error) * 100)
        cells = [f"{measured.predicted:.2f} s", f"{measured.seconds:.2f} s", f"{100 * measured.error:+.1f} %"]
        rows.append([*configuration.row, *cells])
        report.figure(f"configuration.{number}.predicted_s", measured.predicted)
        report.figure(f"configuration.{number}.measured_s", measured.seconds)
        print(*rows[-1], "steps", *(f"{s:.2f}" for s in measured.steps), file=sys.stderr, flush=True)
    head = ["", "model", "machines", "regions", "stages", "replicas", "schedule", "sync"]
    report.table("predicted and measured step", [*head, "predicted", "measured", "error"], rows)
    report.figure("configurations", len(rows))
    if errors[False]:
        report.figure("median_error_percent", median(errors[False]), most=8)
        report.figure("worst_error_percent", max(errors[False]), most=20)
    if errors[True]:
        report.figure("shared_median_error_percent", median(errors[True]), most=10)
        report.figure("shared_worst_error_percent", max(errors[True]))


def write_part_of_hulk47(folder: Path) -> tuple[str, str]:
    """Some machines of hulk47 with its latencies and the bandwidths divided by `SCALE`, and jobs of that size; answers
    with the files."""
    whole = load_cluster("hulk47")
    machines = [whole.machine(name) for name in PART]
    links = []
    for a, b in combinations(PART, 2):
        link = whole.link(a, b)
        latency, bandwidth = f"{link.latency * 1e3:.3f} ms", f"{link.bandwidth * 8e-6 / SCALE:.3f} Mbit/s"
        links.append({"between": [a, b], "latency": latency, "bandwidth": bandwidth})
    data = {
        "name": "hulk47-part",
        "regions": {machine.region: {"at": [0, 0]} for machine in machines},
        "machines": [
            {
                "name": m.name,
                "region": m.region,
                "gpu": m.gpu.name,
                "gpus": 1,
                "network": "2 Gbit/s",
                "memory": f"{(HULK.reserved(m.gpu) + m.memory / MEMORY_SCALE) * 1e-6:.0f} MB",
            }
            for m in machines
        ],
        "links": links,
    }
    entries = []
    for name, entry in JOBS.items():
        (folder / f"{name}.json").write_text(json.dumps(MODELS[name]))
        entries.append({"name": name, "model": f"./{name}.json", "precision": "fp32", **entry})
    (folder / "cluster.yaml").write_text(json.dumps(data))
    (folder / "jobs.yaml").write_text(json.dumps({"jobs": entries}))
    return str(folder / "cluster.yaml"), str(folder / "jobs.yaml")


def claim(report: Report, folder: Path, compute: ComputeModel) -> None:
    """The paper's claim: Hulk's total beside that of the best of the other systems, measured."""
    files = write_part_of_hulk47(folder)
    cluster, jobs = load_cluster(files[0]), load_jobs(files[1])
    with Testbed.up(cluster, name="bench-hulk47") as testbed:
        results = validate(
            compared(
                cluster, jobs, paper_systems(), compute=compute, network=bundled_network(), effort=Effort()
            ).results,
            Trial(cluster, jobs, files, testbed, compute, CLAIM_STEPS),
            say=lambda words: print(words, file=sys.stderr, flush=True),
        )
    rows = []
    for result in results:
        cells = [f"{name}: {one.predicted:.2f} / {one.seconds:.2f} s" for name, one in result.measured.items()]
        totals = [_seconds(result.predicted_total), _seconds(result.measured_total)]
        words = dict.fromkeys([*cells, *result.notes.values(), *result.waiting.values()])
        rows.append([result.name, *totals, "; ".join(words)])
        for kind, total in (("predicted", result.predicted_total), ("measured", result.measured_total)):
            if total is not None:
                report.figure(f"hulk47.{result.name}.{kind}_s", total)
    report.table(
        f"{len(PART)} machines of hulk47, {len(jobs)} jobs: until each has done a step",
        ["system", "predicted", "measured", "each job, predicted / measured"],
        rows,
    )
    mine = results[0].measured_total or float("nan")
    best = min(
        (total for r in results[1:] if (total := r.measured_total or r.predicted_total) is not None),
        default=float("nan"),
    )
    report.figure("hulk47.below_best_of_paper_systems_percent", 100 * (1 - mine / best), least=20)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", type=int, nargs="*", help="numbers of configurations; without the paper's claim")
    given = arguments.parse_args()
    if missing():
        sys.exit(f"a testbed needs {', '.join(missing())}")
    report, compute = Report("testbed"), bundled_compute()
    with tempfile.TemporaryDirectory(prefix="hulk-testbed-") as folder:
        compare_prices(report, Path(folder), compute, given.only or range(CONFIGURATIONS + SHARED))
        if not given.only:
            claim(report, Path(folder), compute)
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
