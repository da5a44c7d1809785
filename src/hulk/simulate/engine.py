"""The simulation of a plan: one step of all its jobs, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hulk.cost.play import MOST_AGAIN, flatten, in_each_others_way
from hulk.cost.prepared import Prepared
from hulk.cost.traffic import Fabric
from hulk.domain.cluster import Cluster
from hulk.errors import InputError
from hulk.simulate.clock import Clock
from hulk.simulate.jitter import Jitter
from hulk.simulate.job import JobRun
from hulk.simulate.network import Network
from hulk.simulate.result import JobTimeline, MachineUse, Simulation


def simulate(
    prepared: Sequence[Prepared],
    cluster: Cluster,
    *,
    seed: int = 0,
    jitter: float = 0.0,
    contention: bool = True,
) -> Simulation:
    """Play one step of every job. All start at 0, and go on with further steps, which are not reported, until every job
    has done one: those with short steps stay in the others' way.

    jitter      coefficient of variation of every pass, message, gradient sum and update (0.05: about ±5 %)
    seed        of the jitter; the same seed gives the same result
    contention  whether messages and gradient sums that share a network card or a trunk slow each other down; without it
                and without jitter the steps are those of `hulk.cost.step` for tables `without_sharing`
    """
    if not (math.isfinite(jitter) and jitter >= 0):
        raise InputError(f"jitter must be 0 or more, not {jitter}", hint="0.05 varies times by about 5 %")
    names = [one.job.name for one in prepared]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"job {twice[0]!r} is there twice")
    clock = Clock()
    fabric = Fabric(cluster)
    network = Network(clock, fabric, contention=contention)
    # A generator for each job: a job's jitter does not depend on which others run beside it.
    rngs = [np.random.default_rng([seed, index]) for index in range(len(prepared))]
    first: dict[str, JobTimeline] = {}
    again = dict.fromkeys(names, 0)
    several = contention and len(prepared) > 1
    most = MOST_AGAIN if several and in_each_others_way(flatten(prepared, fabric)) else 1

    def begin(one: Prepared, rng: np.random.Generator) -> None:
        def done(run: JobRun) -> None:
            again[one.job.name] += 1
            first.setdefault(one.job.name, run.timeline())
            if len(first) == len(names):
                clock.stop()
            elif again[one.job.name] < most:
                begin(one, rng)

        JobRun(one, clock=clock, network=network, fabric=fabric, jitter=Jitter(jitter, rng), done=done).start()

    for one, rng in zip(prepared, rngs, strict=True):
        begin(one, rng)
    clock.run()
    timelines = [first[name] for name in names]
    seconds = max((timeline.step for timeline in timelines), default=0.0)
    return Simulation(
        jobs={timeline.job: timeline for timeline in timelines},
        machines=_machine_use(prepared, cluster, network, seconds),
    )


def _machine_use(
    prepared: Sequence[Prepared], cluster: Cluster, network: Network, seconds: float
) -> tuple[MachineUse, ...]:
    used = {stage.machine for one in prepared for stage in one.stages}
    machines = []
    for machine in cluster.machines:
        if machine.name not in used:
            continue
        fabric = network.fabric
        sent = network.resource(fabric.sending(machine.name)).carried
        received = network.resource(fabric.receiving(machine.name)).carried
        most = machine.network * seconds
        machines.append(
            MachineUse(
                machine=machine.name,
                region=machine.region,
                sent=sent,
                received=received,
                out_share=sent / most if most else 0.0,
                in_share=received / most if most else 0.0,
            )
        )
    return tuple(machines)
