"""What is small enough to be solved exactly."""

from __future__ import annotations

from collections.abc import Sequence

from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.errors import InputError
from hulk.search.job_space import JobSpace

MOST_MACHINES, MOST_GPUS, MOST_LAYERS, MOST_BATCH = 8, 16, 10, 64
MOST_PIPELINES = 1e10
MOST_CHAINS = 1_000_000  # kept for one job on one set of machines


def count_pipelines(gpus: Sequence[int], degrees: Sequence[int], layers: int) -> float:
    """How many pipelines with cuts there are on machines with so many GPUs: the size of the space, from above."""
    options = sum(1 for count in gpus for t in degrees if t <= count)
    total, ways = 0.0, 1.0
    for stages in range(1, min(layers, sum(gpus)) + 1):
        ways *= options
        cuts = 1.0
        for i in range(stages - 1):
            cuts = cuts * (layers - 1 - i) / (i + 1)
        total += ways * cuts
    return total


def refuse_large(cluster: Cluster, spaces: Sequence[JobSpace]) -> None:
    """InputError where the case is too large."""
    sizes = [(len(cluster.machines), MOST_MACHINES, "machines"), (cluster.gpu_count, MOST_GPUS, "GPUs")]
    for space in spaces:
        sizes.append((len(space.job.model.layers), MOST_LAYERS, f"layers in {space.job.name!r}"))
        sizes.append((space.job.global_batch, MOST_BATCH, f"sequences in the global batch of {space.job.name!r}"))
    for size, most, what in sizes:
        if size > most:
            raise _too_large(f"{size} {what}, at most {most}")
    gpus = [machine.gpus for machine in cluster.machines]
    for space in spaces:
        pipelines = count_pipelines(gpus, space.degrees, len(space.job.model.layers))
        if pipelines > MOST_PIPELINES:
            of_job = f"possible pipelines for {space.job.name!r}"
            raise _too_large(f"about {pipelines:.0e} {of_job}, at most {MOST_PIPELINES:.0e}")


def too_many_plans(job: Job) -> InputError:
    """What to raise where bounds rule out too few plans of a job."""
    return _too_large(f"too many plans of job {job.name!r} are nearly as good")


def _too_large(why: str) -> InputError:
    return InputError(f"too large to be solved exactly: {why}", hint="plan without it")
