"""System C: Megatron's tensor parallel over all GPUs of all machines.

On machines of one kind in one region that is a plan, one stage on all of them, wherever N GPUs divide the heads: then
it is the best such plan with all options that the engine has, priced as every plan is. Elsewhere no plan can say it,
and it has a formula of its own, on the same tables as every price.
N GPUs on n machines, m microbatches of b sequences, layer l with r_l all-reduces a pass (Shoeybi et al., 2019, section
3: two a pass for a block, one after attention and one after the feed-forward):

    step       = compute + all-reduces + update
    compute    = m · 1 / Σ_i 1 / (f_i + b_i)           f_i, b_i: GPU i alone doing a whole microbatch forward, backward
    all-reduces = m · Σ_l p · r_l · (inside + between)  p: 2 passes, 3 with recomputation; of b · output_l elements
    inside     = slowest machine's own all-reduce       (hulk.cost.collectives)
    between    = the better of a ring over the n machines and region by region, over the best of several tours:
                 2 (n − 1) rounds of size / n bytes each   (hulk.cost.step)
    update     = parameters of one GPU (split / N + whole) on the slowest type

That is the strongest reading: every GPU's slice is in proportion to its speed, small slices cost no efficiency, heads
need not divide evenly. Memory is divided evenly and must fit on the smallest GPU: where it does not, the machines with
the smallest GPUs are dropped. Layers wait for their all-reduces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

# The one home of these two formulas; private there because nothing else needed an all-reduce without a plan.
from hulk.cost.arrays import Encoded, Ints, Tables
from hulk.cost.collectives import Operation, collective_time
from hulk.cost.compute import ComputeModel
from hulk.cost.engine import Engine
from hulk.cost.kinds import kind_of
from hulk.cost.price import price_job
from hulk.cost.report import Breakdown, JobPrice
from hulk.cost.step import stage_memory
from hulk.cost.sync_times import by_region_seconds, ring_seconds
from hulk.domain.cluster import Cluster, restrict
from hulk.domain.job import Job
from hulk.domain.joined import with_joined
from hulk.domain.options import Options, Recompute
from hulk.domain.regular import teams_of
from hulk.search.baselines.result import BaselineResult, Placement
from hulk.search.baselines.scene import Scene, one_after_the_other, recomputes, tours
from hulk.search.form import Form
from hulk.search.job_space import JobSpace, Places
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.uniform import best_uniform


def tensor_parallel(
    cluster: Cluster, jobs: Iterable[Job], *, compute: ComputeModel, engine: Engine, seed: int, time_limit: float
) -> BaselineResult:
    """Every layer on every GPU, with the best options. Jobs one after the other."""
    del seed  # nothing is drawn
    scene = Scene.of(cluster, jobs, compute=compute, engine=engine, time_limit=time_limit)
    return one_after_the_other("C", scene, lambda space, notes: _place(scene, space, notes))


def _place(scene: Scene, space: JobSpace, notes: dict[str, str]) -> Placement | str:
    for machines in scene.by_memory(scene.holding_all(space)):
        planned = _planned(scene, space, machines)
        if planned is not None:
            return planned
        fitting = [options for options in _options(space) if _fits(scene, space, options, machines)]
        if not fitting:
            continue
        orders = tours(space, machines)
        best = min((_parts(scene, space, options, orders) for options in fitting), key=lambda parts: parts.step)
        if not np.isfinite(best.step):
            return "blocked links leave no ring over all machines"
        if len(machines) < len(space.allowed):
            dropped = len(space.allowed) - len(machines)
            rules = ", or that may not hold every layer," if space.job.place else ""
            notes[space.job.name] = f"{dropped} machines whose GPUs are too small for their part{rules} are dropped"
        return Placement(None, best.step, best)
    rules = " where the rules of its `place` let all layers be" if space.job.place else ""
    return f"an even part of every layer does not fit on any choice of GPUs{rules}"


def _planned(scene: Scene, space: JobSpace, machines: list[int]) -> Placement | None:
    """The best plan with one stage on all GPUs; None where no plan can say that, or none fits."""
    hosts = [scene.cluster.machines[machine] for machine in machines]
    teams = teams_of(hosts, len(hosts), scene.cluster)
    gpus = sum(host.gpus for host in hosts)
    if not teams or any(layer.head_width % gpus for layer in space.job.model.layers):
        return None
    own = with_joined(restrict(scene.cluster, [host.name for host in hosts]), [[host.name for host in teams[0]]])
    near = JobSpace(space.job, own, Places.of(own), compute=scene.compute, engine=scene.engine)
    form = Form(
        stages=1, fits=lambda one: one.chains == ((Slot(0, gpus),),), takes=lambda one: one.options.context == 1
    )
    best = best_uniform(near, (0,), form)
    price = None if best is None else price_job(space.job, best.plan, own, compute=scene.compute, engine=scene.engine)
    return Placement(best.plan, price.step, price.breakdown) if best and isinstance(price, JobPrice) else None


def _options(space: JobSpace) -> Iterator[Options]:
    """Microbatches of powers of two that divide the batch: large ones, since every all-reduce pays the latency."""
    size = 1
    while space.job.global_batch % size == 0:
        for recompute in recomputes(space):
            yield Options(size, recompute=recompute)
        size *= 2


def _fits(scene: Scene, space: JobSpace, options: Options, machines: list[int]) -> bool:
    """Whether the smallest GPU holds 1 / N of everything."""
    tables = space.tables(options)
    gpus = sum(scene.cluster.machines[machine].gpus for machine in machines)
    needs = stage_memory(tables, 0, len(space.job.model.layers) - 1, gpus, 1, False, 1)[0]
    return bool(needs <= min(tables.capacity[space.places.of_machine[machine]] for machine in machines))


def _parts(scene: Scene, space: JobSpace, options: Options, orders: list[list[int]]) -> Breakdown:
    """The formula above."""
    job, tables = space.job, space.tables(options)
    microbatches = job.global_batch // options.microbatch_size
    kinds = space.book(options).kinds
    layers = len(job.model.layers)
    hosts = [scene.cluster.machines[machine] for machine in orders[0]]
    rows = {host.gpu.name: kinds[kind_of(host, 1)] for host in hosts}
    speed = sum(
        host.gpus / (tables.forward[rows[host.gpu.name], layers] + tables.backward[rows[host.gpu.name], layers])
        for host in hosts
    )
    gpus = sum(host.gpus for host in hosts)
    params = stage_memory(tables, 0, layers - 1, gpus, 1, False, 1)[1]
    passes = 3 if options.recompute is Recompute.FULL else 2
    rings = [space.encode(Skeleton((tuple(Slot(m, 1) for m in order),), options)) for order in orders]
    flows = min(host.gpus for host in hosts)
    known: dict[float, float] = {}
    exchange = 0.0
    for layer in job.model.layers:
        size = layer.output * options.microbatch_size * job.precision.bytes
        if layer.reductions and size not in known:
            inside = max(collective_time(Operation.ALL_REDUCE, size, host.gpu, host.gpus) for host in hosts)
            known[size] = inside + min(_between(tables, ring, size, flows) for ring in rings)
        if layer.reductions:
            exchange += passes * layer.reductions * known[size]
    return Breakdown(
        compute=float(microbatches / speed),
        bubble=0.0,
        transfer=microbatches * exchange,
        sync=0.0,
        update=float(params * max(tables.update[row] for row in rows.values())),
    )


def _between(tables: Tables, ring: Encoded, size: float, flows: int) -> float:
    """Seconds of an all-reduce among one member of every machine."""
    members: Ints = np.arange(len(ring.machine))
    ways = (ring_seconds(tables, ring, members, size, flows), by_region_seconds(tables, ring, members, size, flows))
    return float(min(wire + wait for wire, wait in ways))
