"""The invariants of a plan: what must hold of every plan, whoever made it.

Whether it fits into memory is for the price to say (`hulk.cost`); everything else that can be wrong is here. Messages
name the job, the pipeline and the stage (counted from 1, as people count) and say what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations_with_replacement, pairwise, product

from hulk.domain.cluster import Cluster, pair
from hulk.domain.job import Job
from hulk.domain.options import Recompute
from hulk.domain.plan import JobPlan, Part, Pipeline, Plan, Stage, layer_holders, rounds_problem
from hulk.errors import PlanError, nearest

Place = str  # "job 'opt', pipeline 2, stage 3"
_Used = dict[tuple[str, int], Place]  # by machine and GPU


def check_plan(plan: Plan, cluster: Cluster, jobs: Iterable[Job]) -> None:
    """Raises PlanError for the first invariant that the plan breaks; returns where all hold."""
    known = {job.name: job for job in jobs}
    used, teams = _Used(), dict[str, tuple[str, ...]]()
    reach = _Reach(cluster)
    for name in (*plan.jobs, *plan.waiting):
        if name not in known:
            raise PlanError(f"the plan has a job {name!r} that is not among the jobs", hint=nearest(name, known))
    for name, job_plan in plan.jobs.items():
        if name in plan.waiting:
            raise PlanError(f"job {name!r} both trains and waits", hint="leave it out of one of the two")
        _check_job(job_plan, known[name], cluster, used, reach)
        _check_teams(job_plan, teams, f"job {name!r}")
    _check_idle(plan, cluster, used)


def _check_job(plan: JobPlan, job: Job, cluster: Cluster, used: _Used, reach: _Reach) -> None:
    if not plan.pipelines:
        raise PlanError(f"job {job.name!r} has no pipeline", hint="give it one, or let it wait")
    _check_options(plan, job)
    for number, pipeline in enumerate(plan.pipelines, start=1):
        place = f"job {job.name!r}, pipeline {number}"
        _check_layers(pipeline, len(job.model.layers), place)
        _check_rounds(pipeline, plan.options.chunks, place)
        slots = len(pipeline.slots(plan.options.chunks))
        for index, stage in enumerate(pipeline.stages):
            its = f"{place}, stage {index + 1}"
            _check_stage(stage, job, cluster, used if index < slots else {}, its)
            _check_beside(stage, plan, cluster, reach, its)
            _check_degrees(stage, plan, job, sum(cluster.machine(name).gpus for name in stage.machines), its)
            _check_recomputed(stage, plan, job, its)
        _check_neighbours(pipeline, job, reach, place)
    _check_batch(plan, job)
    for layers, stages in layer_holders(plan.pipelines):
        blocked = reach.blocked_among({name for stage in stages for name in stage.machines})
        if blocked is not None:
            a, b = blocked
            raise PlanError(
                f"job {job.name!r}: layers {layers.start} to {layers.stop - 1} are on {a!r} and on {b!r}, which must "
                "add up their gradients, but the link between them is blocked",
                hint="keep the replicas of a layer on machines that reach each other",
            )


def _check_layers(pipeline: Pipeline, count: int, place: Place) -> None:
    """Every layer exactly once and in order."""
    if not pipeline.stages:
        raise PlanError("no stages", where=place)
    expected = 0
    for number, stage in enumerate(pipeline.stages, start=1):
        if stage.last < stage.first:
            raise PlanError(f"layers {stage.first} to {stage.last} are none", where=f"{place}, stage {number}")
        if stage.first != expected:
            problem = "are left out" if stage.first > expected else "are there twice or out of order"
            between = sorted((stage.first, expected))
            raise PlanError(
                f"layers {between[0]} to {between[1] - 1} {problem}",
                where=f"{place}, stage {number}",
                hint=f"this stage must begin with layer {expected}",
            )
        expected = stage.last + 1
    if expected != count:
        raise PlanError(
            f"the stages end with layer {expected - 1}, but the model has {count} layers (0 to {count - 1})",
            where=place,
            hint=f"the last stage must end with layer {count - 1}",
        )


def _check_rounds(pipeline: Pipeline, chunks: int, place: Place) -> None:
    """With several chunks a stage, the stages go round the same GPUs that many times."""
    if chunks < 1:
        raise PlanError(f"{chunks} chunks a stage", where=place, hint="at least 1")
    count = len(pipeline.stages)
    if count % chunks:
        raise PlanError(
            f"{count} stages cannot go round {chunks} times",
            where=place,
            hint=f"with chunks {chunks}, list {chunks} stages for each group of GPUs, round after round",
        )
    slots = count // chunks
    problem = rounds_problem(slots, chunks, pipeline.microbatches)
    if problem:
        raise PlanError(problem, where=place, hint="other chunks, stages or microbatches")
    for k in range(slots, count):
        stage, before = pipeline.stages[k], pipeline.stages[k - slots]
        if stage.parts != before.parts:
            raise PlanError(
                f"with chunks {chunks}, it must be on the GPUs of stage {k - slots + 1}, {_gpus(before)}, "
                f"not on {_gpus(stage)}",
                where=f"{place}, stage {k + 1}",
                hint=f"stages go round {slots} groups of GPUs",
            )


def _gpus(stage: Stage) -> str:
    return " and ".join(f"{', '.join(map(str, part.gpus))} of {part.machine!r}" for part in stage.parts)


def _check_stage(stage: Stage, job: Job, cluster: Cluster, used: _Used, place: Place) -> None:
    """Known machines in a region where the job and these layers may be, with GPUs that exist and are free."""
    for part in stage.parts:
        if not cluster.has_machine(part.machine):
            known = (machine.name for machine in cluster.machines)
            raise PlanError(
                f"no machine {part.machine!r} in cluster {cluster.name!r}",
                where=place,
                hint=nearest(part.machine, known),
            )
        machine = cluster.machine(part.machine)
        if not job.may_run_in(machine.region):
            raise PlanError(
                f"the job may not run in region {machine.region!r}, where {machine.name!r} is",
                where=place,
                hint="see allow and deny of the job",
            )
        for layer in stage.layers if job.place else ():
            broken = job.broken_rule(layer, machine.region)
            if broken is not None:
                raise PlanError(
                    f"layer {layer} may not be in region {machine.region!r}, where {machine.name!r} is: "
                    f"{str(broken)!r}",
                    where=place,
                    hint="see `place` of the job",
                )
        _check_gpus(part, machine.gpus, used, place)


def _check_gpus(part: Part, count: int, used: _Used, place: Place) -> None:
    """GPUs that a machine with so many has, each used once."""
    if not part.gpus:
        raise PlanError("no GPUs", where=place)
    for gpu in part.gpus:
        if not 0 <= gpu < count:
            raise PlanError(f"no GPU {gpu} on {part.machine!r}", where=place, hint=f"it has GPUs 0 to {count - 1}")
        other = used.setdefault((part.machine, gpu), place)
        if other != place or part.gpus.count(gpu) > 1:
            raise PlanError(
                f"GPU {gpu} of {part.machine!r} is used twice" + (f", first by {other}" if other != place else ""),
                where=place,
                hint="a GPU holds one stage of one job",
            )


def _check_beside(stage: Stage, plan: JobPlan, cluster: Cluster, reach: _Reach, place: Place) -> None:
    """Machines that hold a stage together are near each other and give it as many GPUs of one type each; what GPUs do
    together, those of a machine do side by side."""
    if not stage.beside:
        return
    names, first, own = stage.machines, cluster.machine(stage.machine), len(stage.gpus)
    together = "machines that hold a stage together"
    for part in stage.beside:
        host = cluster.machine(part.machine)
        if names.count(host.name) > 1:
            raise PlanError(f"{host.name!r} is there twice", where=place, hint="list all its GPUs once")
        if len(part.gpus) != own:
            said = f"{own} GPUs of {first.name!r} and {len(part.gpus)} of {host.name!r}"
            raise PlanError(f"{said} hold it together", where=place, hint="as many of each machine")
        if host.gpu.name != first.gpu.name:
            said = f"{first.name!r} has {first.gpu.name} and {host.name!r} has {host.gpu.name}"
            raise PlanError(said, where=place, hint=f"{together} have GPUs of one type")
        if host.region != first.region:
            said = f"{first.name!r} is in {first.region!r} and {host.name!r} in {host.region!r}"
            raise PlanError(said, where=place, hint=f"{together} are in one region")
    blocked = reach.blocked_among(set(names))
    if blocked is not None:
        said = f"{blocked[0]!r} and {blocked[1]!r} hold it together, but the link between them is blocked"
        raise PlanError(said, where=place, hint="put it on machines that reach each other")
    tensor = plan.tensor(stage)
    if not stage.ranks % plan.options.context and own % tensor and tensor % own:
        raise PlanError(
            f"{tensor} GPUs share a layer, and {own} of each machine hold it: that goes over the machines unevenly",
            where=place,
            hint=f"another `context`, or a number of GPUs of each machine that {tensor} divides or that divides it",
        )
    if plan.options.expert > 1:
        raise PlanError(
            "experts are split inside of a machine, and it is on several",
            where=place,
            hint="`expert: 1`, or stages on one machine",
        )


def _check_teams(plan: JobPlan, teams: dict[str, tuple[str, ...]], place: Place) -> None:
    """Machines that hold a stage together hold all their stages together: `teams` has those of all stages so far."""
    for stage in plan.stages:
        for name in stage.machines:
            team = teams.setdefault(name, stage.machines)
            if team != stage.machines:
                ways = (" with ".join(map(repr, way)) for way in (team, stage.machines))
                raise PlanError(
                    f"{name!r} holds stages in two ways: {' and '.join(ways)}",
                    where=place,
                    hint="machines that hold a stage together hold all their stages together, in one order",
                )


def _check_degrees(stage: Stage, plan: JobPlan, job: Job, gpus: int, place: Place) -> None:
    """Its GPUs divide what they must: themselves into parts of a sequence, and heads into slices."""
    context = plan.options.context
    if stage.ranks % context:
        raise PlanError(
            f"{stage.ranks} GPUs cannot share sequences {context} by {context}",
            where=place,
            hint=f"a number of GPUs that {context} divides, or another `context`",
        )
    tensor = plan.tensor(stage)
    for index in stage.layers:
        heads = job.model.layers[index].head_width
        if heads and heads % tensor:
            divisors = [str(n * context) for n in range(1, min(heads, gpus // context) + 1) if heads % n == 0]
            shared = f", {context} to a sequence," if context > 1 else ""
            raise PlanError(
                f"{stage.ranks} GPUs{shared} cannot share the {heads} attention heads of layer {index} evenly",
                where=place,
                hint=f"use {', '.join(divisors)} GPUs",
            )


def _check_recomputed(stage: Stage, plan: JobPlan, job: Job, place: Place) -> None:
    """A number of blocks that are computed again is one that the stage has, where anything is computed again."""
    if stage.recomputed is None:
        return
    if plan.options.recompute is Recompute.NONE:
        raise PlanError(
            f"`recomputed: {stage.recomputed}`, but with `recompute: none` nothing is computed again",
            where=place,
            hint="leave it out, or say what of these blocks is: `recompute: full`",
        )
    blocks = job.model.blocks(stage.first, stage.last)
    if not 0 <= stage.recomputed <= blocks:
        raise PlanError(
            f"`recomputed: {stage.recomputed}`, but layers {stage.first} to {stage.last} have {blocks} blocks",
            where=place,
            hint=f"0 to {blocks}; left out, all blocks are computed again" if blocks else "leave it out",
        )


def _check_options(plan: JobPlan, job: Job) -> None:
    """Sequences and experts can be divided as the options say."""
    place, options, model = f"job {job.name!r}", plan.options, job.model
    if options.context < 1 or model.context_parts % options.context:
        reason = (
            f"{model.sequence} tokens cannot be shared by {options.context} GPUs, of which each takes two equal parts"
            if model.context_parts > 1
            else f"GPUs cannot share a sequence of {model.name}: its length must be even, and attention must read one "
            "sequence without biases for pairs of positions (no encoder-decoder, T5, XLNet or ALiBi)"
        )
        raise PlanError(reason, where=place, hint="another `context`; 1 leaves sequences whole")
    if options.expert < 1 or max(1, model.experts) % options.expert:
        count = f"the {model.experts} experts of {model.name} cannot be split"
        reason = count if model.experts else f"{model.name} has no experts that could be split"
        raise PlanError(f"{reason} over {options.expert} GPUs", where=place, hint="another `expert`; 1 splits none")


def _check_neighbours(pipeline: Pipeline, job: Job, reach: _Reach, place: Place) -> None:
    """No two stages that exchange data across a blocked link: neighbours, and those that share tied weights."""
    for number, (a, b) in enumerate(pairwise(pipeline.stages), start=1):
        ends = reach.blocked_between(a, b)
        if ends is not None:
            raise PlanError(
                f"stages {number} and {number + 1} exchange activations, but the link between {ends[0]!r} and "
                f"{ends[1]!r} is blocked",
                where=place,
                hint="put them on machines that reach each other",
            )
    first = pipeline.stages[0]
    for number, stage in enumerate(pipeline.stages[1:], start=2):
        tied = any(job.model.layers[index].tied for index in stage.layers)
        ends = reach.blocked_between(first, stage) if tied else None
        if ends is not None:
            raise PlanError(
                f"stages 1 and {number} share tied weights, but the link between {ends[0]!r} and {ends[1]!r} is "
                "blocked",
                where=place,
                hint="put them on machines that reach each other",
            )


def _check_batch(plan: JobPlan, job: Job) -> None:
    """Microbatches × size over all pipelines is the global batch."""
    place = f"job {job.name!r}"
    if plan.options.microbatch_size < 1:
        raise PlanError(f"a microbatch of {plan.options.microbatch_size} sequences", where=place, hint="at least 1")
    for number, pipeline in enumerate(plan.pipelines, start=1):
        if pipeline.microbatches < 1:
            raise PlanError(
                f"{pipeline.microbatches} microbatches",
                where=f"{place}, pipeline {number}",
                hint="leave the pipeline out, or give it some",
            )
    microbatches = sum(pipeline.microbatches for pipeline in plan.pipelines)
    total = microbatches * plan.options.microbatch_size
    if total != job.global_batch:
        raise PlanError(
            f"{microbatches} microbatches of {plan.options.microbatch_size} are {total} sequences a step, but the "
            f"job's global batch is {job.global_batch}",
            where=place,
            hint="change the microbatches of the pipelines until they add up",
        )


def _check_idle(plan: Plan, cluster: Cluster, used: _Used) -> None:
    busy = {machine: place for (machine, _), place in used.items()}
    seen: set[str] = set()
    for name in plan.idle:
        if not cluster.has_machine(name):
            known = (machine.name for machine in cluster.machines)
            raise PlanError(f"no idle machine {name!r} in cluster {cluster.name!r}", hint=nearest(name, known))
        if name in busy:
            raise PlanError(f"machine {name!r} is listed as idle, but {busy[name]} runs on it")
        if name in seen:
            raise PlanError(f"machine {name!r} is listed as idle twice")
        seen.add(name)


class _Reach:
    """Which machines cannot talk. Asks region by region, so that thousands of replicas need no look at every pair."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.blocked_regions = {key for key, link in cluster.region_links.items() if link.blocked}
        self.blocked_machines = [key for key, link in cluster.machine_links.items() if link.blocked]

    def blocked(self, a: str, b: str) -> bool:
        """Whether two machines, or one and itself, cannot talk."""
        return a != b and self.cluster.link(a, b).blocked

    def blocked_between(self, a: Stage, b: Stage) -> tuple[str, str] | None:
        """A machine of each of two stages that cannot talk, or None."""
        return next((ends for ends in product(a.machines, b.machines) if self.blocked(*ends)), None)

    def blocked_among(self, machines: set[str]) -> tuple[str, str] | None:
        """Two of these machines that cannot talk, or None."""
        for a, b in self.blocked_machines:
            if a in machines and b in machines:
                return a, b
        if not self.blocked_regions:
            return None
        by_region: dict[str, list[str]] = {}
        for machine in sorted(machines):
            by_region.setdefault(self.cluster.machine(machine).region, []).append(machine)
        for r, s in combinations_with_replacement(by_region, 2):
            if pair(r, s) in self.blocked_regions:
                for a, b in product(by_region[r], by_region[s]):
                    if self.blocked(a, b):
                        return a, b
        return None
