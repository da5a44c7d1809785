"""A hall of machines near each other, and plans and prices on it."""

from __future__ import annotations

from hulk.cost.engine import MEGATRON, Engine
from hulk.cost.price import price_job
from hulk.cost.report import JobPrice
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster, Link, Machine, Region, pair
from hulk.domain.job import Job
from hulk.domain.plan import JobPlan, Plan
from hulk.domain.regular import parse_regular, regular_plan
from hulk.io.gpus import gpu
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_compute

COMPUTE = bundled_compute()
JOB = Job("j", build_named_model("opt-350m"), global_batch=16)
LONG = Job("j", build_named_model("llama-3-8b", sequence=131_072), global_batch=4)
CARD = 50e9


def hall(machines: int = 2, card: float = CARD, latency: float = 5e-6, memory: float | None = None) -> Cluster:
    """Machines of eight H100 with a network card for each."""
    card_of = {"network": 8 * card, "cards": 8, "price": 16.0 / 3600, "memory": memory or gpu("h100").memory}
    made = tuple(Machine(f"m-{i}", "a", gpu("h100"), 8, **card_of) for i in range(machines))
    return Cluster("hall", (Region("a"), Region("b")), made, dict.fromkeys(_PAIRS, Link(latency, card)))


_PAIRS = (pair("a", "a"), pair("a", "b"), pair("b", "b"))


def planned(layout: str, job: Job = JOB, machines: int = 2) -> JobPlan:
    made = regular_plan(parse_regular(layout), job, hall(machines))
    check_plan(Plan({job.name: made}), hall(machines), [job])
    return made


def priced(plan: JobPlan, cluster: Cluster, job: Job = JOB, engine: Engine = MEGATRON) -> JobPrice:
    found = price_job(job, plan, cluster, compute=COMPUTE, engine=engine)
    assert isinstance(found, JobPrice), found
    return found
