"""The simulation of a plan: one step of all its jobs, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hulk.cost.arrays import Floats
from hulk.cost.flat import flatten, in_each_others_way
from hulk.cost.play import MOST_AGAIN
from hulk.cost.prepared import Prepared
from hulk.cost.rolling import Stretch, steady_seconds
from hulk.cost.traffic import Fabric
from hulk.domain.cluster import Cluster
from hulk.domain.joined import joined
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
    has done one: those with short steps stay in the others' way. A job's seconds are those of a step among others
    (`hulk.cost.rolling`).

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
    cluster = joined(cluster, [one.plan for one in prepared])
    fabric = Fabric(cluster)
    # A generator for each job: a job's jitter does not depend on which others run beside it.
    rngs = [np.random.default_rng([seed, index]) for index in range(len(prepared))]
    several = contention and len(prepared) > 1
    most = MOST_AGAIN if several and in_each_others_way(flatten(prepared, fabric)) else 1

    def step(begin: Floats) -> tuple[list[JobTimeline], Network]:
        network = Network(Clock(), fabric, contention=contention)
        return _one_step(prepared, network, [Jitter(jitter, rng) for rng in rngs], begin, most), network

    first, network = step(np.zeros(sum(len(one.stages) for one in prepared)))
    seconds = steady_seconds(prepared, _stretch(first), lambda begin: _stretch(step(begin)[0]))
    timelines = [timeline.taking(its) for timeline, its in zip(first, seconds, strict=True)]
    return Simulation(
        jobs={timeline.job: timeline for timeline in timelines},
        machines=_machine_use(prepared, cluster, network, max(seconds, default=0.0)),
    )


def _one_step(
    prepared: Sequence[Prepared], network: Network, jitters: Sequence[Jitter], begin: Floats, most: int
) -> list[JobTimeline]:
    """Every job's first step; they go on, up to `most`, until all have done one. `begin`: when each stage can begin
    with the first."""
    clock = network.clock
    first: dict[int, JobTimeline] = {}
    again = [0] * len(prepared)
    starts = np.cumsum([0, *(len(one.stages) for one in prepared)])

    def go(index: int) -> None:
        one = prepared[index]

        def done(run: JobRun) -> None:
            again[index] += 1
            if index not in first:
                first[index] = run.timeline()
            if len(first) == len(prepared):
                clock.stop()
            elif again[index] < most:
                go(index)

        ready = [0.0] * len(one.stages) if again[index] else begin[starts[index] : starts[index + 1]].tolist()
        jitter = jitters[index]
        JobRun(one, network=network, jitter=jitter, ready=ready, done=done).start()

    for index in range(len(prepared)):
        go(index)
    clock.run()
    return [first[index] for index in range(len(prepared))]


def _stretch(timelines: Sequence[JobTimeline]) -> Stretch:
    stages = [stage for timeline in timelines for stage in timeline.stages]
    return Stretch(np.array([stage.begin for stage in stages]), np.array([stage.end for stage in stages]))


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
