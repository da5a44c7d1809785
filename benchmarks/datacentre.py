"""The planner in one hall of equal machines against every regular plan.

    python benchmarks/datacentre.py            16 machines of 8 H100, 8 x 400 Gbit/s each; five jobs, one at a time
    python benchmarks/datacentre.py --json     one JSON object
    python benchmarks/datacentre.py --engine torchtitan
    python benchmarks/datacentre.py --case 70b-128k-16
    python benchmarks/datacentre.py --words    what each word of a plan brings: the best regular plan without, over with
    python benchmarks/datacentre.py --spans    the best regular plan with stages on one machine, on two, on four, …

The grid is what an expert with time would try: every tensor and pipeline degree that divides heads and blocks, the
replicas there is room for, every microbatch that divides the batch, every option that the engine has, even cuts. The
best few by closed forms are played, as the planner's plan is: both are priced by the same price. `uniform` is what
`hulk plan --uniform` answers. Predicted TFLOP/s a GPU, of the model's own FLOPs, stand beside those of published runs
of the same or nearly the same model on H100.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest

from common import Report, parser
from hulk.cost.engine import HEADROOM, Engine, engine_named
from hulk.cost.price import step_of
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import Recompute, Sharding, Within
from hulk.domain.plan import JobPlan
from hulk.errors import HulkError
from hulk.io.cluster_file import read_cluster
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_compute
from hulk.io.yamlfile import parse_document
from hulk.planner import load_compiled, plan_in_parallel
from hulk.propose import bundled_network
from hulk.search.budget import Effort
from hulk.search.request import Request
from hulk.search.uniform import Uniform, made_uniform, uniform_plans

HALL = """
name: hall
regions: {hall: {at: [48.9, 2.4]}}
machines: [{name: node, count: 16, region: hall, gpu: h100, gpus: 8, network: 8 x 400 Gbit/s}]
links: [{inside: hall, latency: 0.005 ms, bandwidth: 400 Gbit/s}]
"""
MOST_SECONDS = 10.0
TIME_LIMIT = 6.0
"""Seconds the search is given; finishing a plan comes on top."""
WORDS: Mapping[str, Callable[[Uniform], bool]] = {
    "recompute": lambda one: one.skeleton.options.recompute is not Recompute.NONE,
    "sharding": lambda one: one.skeleton.options.sharding is not Sharding.NONE,
    "parameters": lambda one: one.skeleton.options.sharding is Sharding.PARAMETERS,
    "within": lambda one: one.skeleton.options.shard_within is not Within.EVERYWHERE,
    "sequence parallel": lambda one: one.skeleton.options.sequence_parallel,
    "context": lambda one: one.skeleton.options.context > 1,
    "expert": lambda one: one.skeleton.options.expert > 1,
    "chunks": lambda one: one.skeleton.options.chunks > 1,
    "zb": lambda one: one.skeleton.options.schedule.splits_backward,
    "host state": lambda one: one.skeleton.options.host_state,
    "several machines": lambda one: any(machine.span for machine in one.space.cluster.machines),
}
"""What a plan can say, and whether one says it."""
PLAYED = 8
"""Of the grid's plans: the best by closed forms, which are played."""


@dataclass(frozen=True)
class Case:
    """A job, and TFLOP/s a GPU that were published of like runs on H100, as computed from their own steps."""

    name: str
    model: str
    sequence: int
    batch: int
    published: str = ""


# Megatron-Core's table (mcore-70B on 768 H100), torchtitan's (Llama 3 8B on 128): the steps of
# data/published_runs.jsonl, in TFLOP/s of the same FLOP count.
CASES = (
    Case("70b-8k-128", "llama-3-70b", 8192, 128, "mcore-70B"),
    Case("70b-8k-512", "llama-3-70b", 8192, 512, "mcore-70B"),
    Case("8b-8k-512", "llama-3-8b", 8192, 512, "titan-8b-128-compile"),
    Case("mixtral-4k-512", "mixtral-8x7b", 4096, 512),
    Case("70b-128k-16", "llama-3-70b", 131_072, 16),
)
LONGEST = Case("70b-1m-4", "llama-3-70b", 1_048_576, 4)
"""A job that no stage on one machine holds."""


def tflops(job: Job, seconds: float, gpus: int) -> float:
    """Of the model's own FLOPs, a GPU."""
    return job.model.flops_per_sample * job.global_batch / seconds / gpus / 1e12


def published_tflops(name: str) -> str:
    """What a published run reached, a GPU."""
    from published_runs import read_runs

    run = next((run for run in read_runs() if run.name == name), None)
    if run is None:
        return ""
    gpus = sum(stage.ranks for stage in run.plan.stages)
    return f"{tflops(run.job, run.step, gpus):.0f} ({name})"


def _degrees(plan: JobPlan) -> str:
    shape, options = plan.shape, plan.options
    degrees = {"cp": options.context, "ep": options.expert}
    shared = "".join(f" {name}{degree}" for name, degree in degrees.items() if degree > 1)
    return f"tp{shape.ranks // options.context} pp{shape.stages // shape.replicas} dp{shape.replicas}{shared}"


def build_report(engine: Engine, cases: Sequence[Case]) -> Report:
    """Some cases."""
    report = Report("datacentre")
    cluster = read_cluster(parse_document(HALL, name="hall"))
    compute, network, rows = bundled_compute(), bundled_network(), []
    gpus = sum(machine.gpus for machine in cluster.machines)
    for case in cases:
        job = Job(case.name, build_named_model(case.model, sequence=case.sequence), global_batch=case.batch)
        request = Request(cluster, (job,), compute, engine)
        space = request.spaces()[0]
        load_compiled()

        def played(plan: JobPlan, job: Job = job, cluster: Cluster = cluster) -> float:
            seconds = step_of(job, plan, cluster, compute=compute, engine=engine)
            return float("inf") if seconds is None else seconds

        begin = time.perf_counter()
        result = plan_in_parallel(request, Effort(time_limit=TIME_LIMIT, workers=2), network=network)
        took = time.perf_counter() - begin
        print(f"{case.name}: planned in {took:.1f} s", file=sys.stderr)
        found = nsmallest(PLAYED, uniform_plans(space, range(len(cluster.machines))), key=lambda one: one.seconds)
        if not found or result.seconds[job.name] is None:
            raise HulkError(f"{case.name}: nothing fits")
        grid = min(played(one.plan) for one in found)
        uniform = made_uniform(request, result.plan).jobs[job.name]
        free, alike = played(result.plan.jobs[job.name]), played(uniform)
        report.figure(f"{case.name}.planned_s", free)
        report.figure(f"{case.name}.grid_s", grid)
        report.figure(f"{case.name}.over_grid", free / grid, most=1.0 + 1e-9)
        report.figure(f"{case.name}.uniform_over_grid", alike / grid, most=1.01)
        report.figure(f"{case.name}.plan_s", took, most=MOST_SECONDS)
        rows.append(
            [
                case.name,
                f"{free:.3f}",
                f"{grid:.3f}",
                f"{alike:.3f}",
                _degrees(result.plan.jobs[job.name]),
                f"{tflops(job, free, gpus):.0f}",
                published_tflops(case.published),
                f"{took:.1f}",
            ]
        )
    head = ["job", "planned s", "grid s", "uniform s", "plan", "TFLOP/s a GPU", "published", "planned in s"]
    report.table(f"16 machines of 8 H100, {engine.name}", head, rows)
    return report


def words_report(engine: Engine, cases: Sequence[Case]) -> Report:
    """For every word of `WORDS` that the engine knows: the best regular plan's step without it, over that with all of
    them, by closed forms."""
    report, rows = Report("datacentre-words"), []
    cluster = read_cluster(parse_document(HALL, name="hall"))
    load_compiled()
    for case in cases:
        job = Job(case.name, build_named_model(case.model, sequence=case.sequence), global_batch=case.batch)
        space = Request(cluster, (job,), bundled_compute(), engine).spaces()[0]
        best, least, known = float("inf"), dict.fromkeys(WORDS, float("inf")), set[str]()
        for one in uniform_plans(space, range(len(cluster.machines))):
            best = min(best, one.seconds)
            for word, says in WORDS.items():
                if says(one):
                    known.add(word)
                else:
                    least[word] = min(least[word], one.seconds)
        print(f"{case.name}: {best:.3f} s", file=sys.stderr)
        without = {word: least[word] / best for word in WORDS}
        cells = [_percent(without[word]) if word in known else "" for word in WORDS]
        rows.append([case.name, *cells, f"{best:.3f}"])
    report.table(f"steps without a word, {engine.name}", ["job", *WORDS, "with all s"], rows)
    return report


def _percent(ratio: float) -> str:
    return "does not fit" if ratio == float("inf") else f"{100 * (ratio - 1):+.1f} %"


def spans_report(engine: Engine, cases: Sequence[Case]) -> Report:
    """By how many machines hold a stage: the best regular plan's step, played, and its degrees."""
    report = Report("datacentre-spans")
    cluster, compute, rows = read_cluster(parse_document(HALL, name="hall")), bundled_compute(), []
    load_compiled()
    for case in cases:
        job = Job(case.name, build_named_model(case.model, sequence=case.sequence), global_batch=case.batch)
        space = Request(cluster, (job,), compute, engine).spaces()[0]
        found: dict[int, list[Uniform]] = {width: [] for width in (1, 2, 4, 8, 16)}
        for one in uniform_plans(space, range(len(cluster.machines))):
            span = one.space.cluster.machines[0].span
            best = found[span.machines if span else 1]
            best.append(one)
            if len(best) > 100 * PLAYED:
                best[:] = nsmallest(PLAYED, best, key=lambda one: one.seconds)
        row = [case.name]
        for width, best in found.items():
            plans = [one.plan for one in nsmallest(PLAYED, best, key=lambda one: one.seconds)]
            steps = {
                plan: step_of(job, plan, cluster, compute=compute, engine=engine) or float("inf") for plan in plans
            }
            quickest = min(steps, key=steps.__getitem__, default=None)
            row.append("nothing fits" if quickest is None else f"{steps[quickest]:.3f} s, {_degrees(quickest)}")
            if quickest is not None:
                report.figure(f"{case.name}.on_{width}_s", steps[quickest])
        rows.append(row)
    report.table(f"steps by the machines of a stage, {engine.name}", ["job", *map(str, found)], rows)
    return report


def main() -> int:
    """Command line."""
    arguments = parser(__doc__)
    arguments.add_argument("--engine", default="megatron", help="who runs the plans (megatron)")
    arguments.add_argument("--words", action="store_true", help="what each option brings")
    arguments.add_argument("--spans", action="store_true", help="what stages on several machines bring")
    arguments.add_argument("--case", choices=[case.name for case in (*CASES, LONGEST)], help="one job (all)")
    options = arguments.parse_args()
    listed = (*CASES, LONGEST) if options.spans or options.case else CASES
    cases = [case for case in listed if options.case in (None, case.name)]
    try:
        engine = replace(engine_named(options.engine), headroom=HEADROOM)
        made = spans_report if options.spans else words_report if options.words else build_report
        return made(engine, cases).finish(options.json)
    except HulkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
