"""How fast the price and the simulator are.

Prices a second on one core for one job on 16 machines (4 pipelines × 4 stages × 32 microbatches), the time of `hulk
price` before and after its one compilation, and the time to simulate 4 × 8 stages × 64 microbatches.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import Report, parser
from hulk.cost import step
from hulk.cost.compute import ComputeModel
from hulk.cost.prepared import Prepared, prepare
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.domain.options import Options
from hulk.domain.plan import JobPlan, Pipeline, Stage
from hulk.io.cluster_file import load_cluster
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_profiles
from hulk.simulate import simulate

ROOT = Path(__file__).parent.parent
REPEATS = 5


def grid(cluster: Cluster, pipelines: int, stages: int, microbatches: int) -> Prepared:
    """BERT-large on a grid of machines, one GPU each."""
    model = build_named_model("bert-large")
    bounds = [round(i * len(model.layers) / stages) for i in range(stages + 1)]
    names = iter(machine.name for machine in cluster.machines)
    plan = JobPlan(
        tuple(
            Pipeline(tuple(Stage(next(names), (0,), bounds[s], bounds[s + 1] - 1) for s in range(stages)), microbatches)
            for _ in range(pipelines)
        ),
        Options(microbatch_size=1),
    )
    job = Job("bert-large", model, global_batch=pipelines * microbatches)
    prepared = prepare(job, plan, cluster, compute=ComputeModel(bundled_profiles()))
    assert isinstance(prepared, Prepared), prepared
    return prepared


def best_of(action: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs: the least disturbed one."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def prices_per_second(prepared: Prepared, count: int = 5000) -> float:
    """How often a compiled price is computed in a second, durations and memory included, called from Python."""
    tables, encoded = prepared.book.tables, prepared.encoded
    assert step.seconds_of(tables, encoded) > 0

    def run() -> None:
        for _ in range(count):
            step.seconds_of(tables, encoded)

    return count / best_of(run)


def command_seconds(cache: str) -> float:
    """`hulk price` on the example, as a new process."""
    command = [sys.executable, "-c", "from hulk.cli import main; main()", "price", "examples/hulk47.plan.json"]
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONDONTWRITEBYTECODE": ""}  # which people do not set
    start = time.perf_counter()
    subprocess.run(
        [*command, "--cluster", "hulk47", "--jobs", "paper4"],
        check=True, capture_output=True, cwd=ROOT, env=environment,
    )  # fmt: skip
    return time.perf_counter() - start


def build_report() -> Report:
    """All figures."""
    report = Report("speed")
    cluster = load_cluster("world8")
    report.figure("prices_per_second", prices_per_second(grid(cluster, 4, 4, 32)), least=45_000)
    with tempfile.TemporaryDirectory() as cache:
        report.figure("first_price_s", command_seconds(cache), most=30)
        report.figure("second_price_s", min(command_seconds(cache) for _ in range(3)), most=1.5)
    large = grid(cluster, 4, 8, 64)
    report.figure("simulation_4x8x64_s", best_of(lambda: simulate([large], cluster)), most=1.0)
    return report


def main() -> int:
    """Command line."""
    given = parser(__doc__).parse_args()
    return build_report().finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
