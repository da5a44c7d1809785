"""Why a job found no place, in words a person can act on."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hulk.cost.step import stage_memory
from hulk.domain.options import Recompute
from hulk.search.assignment.ways import placed_on, state_bytes
from hulk.search.job_space import JobSpace
from hulk.units import format_size


class _Tightest(NamedTuple):
    """A layer alone on a GPU of the kind that comes nearest to holding it: bytes in all, of activations, and there."""

    layer: int
    needs: float
    activations: float
    room: float
    gpu: str


def why_waiting(space: JobSpace, *, alone: bool) -> str:
    """The reason, as far as it can be told: where the job may run, its state, its activations, the links, or the other
    jobs (none, if it is `alone`)."""
    job = space.job
    if not space.allowed:
        return _why_nowhere(space)
    machines = [space.cluster.machines[i] for i in space.allowed]
    need, have = state_bytes(space), sum(machine.memory * machine.gpus for machine in machines)
    where = "all machines" if len(machines) == len(space.cluster.machines) else "the machines it may use"
    if need > have:
        return f"its weights and optimizer state take {format_size(need)}, and {where} have {format_size(have)}"
    tight = _too_large_layer(space)
    if tight is not None and tight.room <= 0:
        return (
            f"{tight.gpu} has no room for anything: what its engine takes and the headroom are all of its memory "
            f"({format_size(-tight.room)} more than that), so a smaller headroom or GPUs with more memory would help"
        )
    if tight is not None:
        return (
            f"layer {tight.layer} alone takes {format_size(tight.needs)} of a GPU, {format_size(tight.activations)} of "
            f"it activations of {_samples(space)}, and {tight.gpu} leaves {format_size(tight.room)} of room: a shorter "
            "sequence or GPUs with more memory would help"
        )
    pinned = " with the machines it must use" if space.pins else ""
    if not alone and placed_on(space, space.allowed) is not None:
        return f"it would fit{pinned} if the other jobs left it more machines: they have the ones it needs"
    return (
        f"no group of machines that reach each other was found that holds its {format_size(need)} of weights and "
        f"optimizer state and the activations of {_samples(space)} besides{pinned} ({where} have {format_size(have)})"
        + (f", by the rules of its `place`: {'; '.join(map(str, job.place))}" if job.place else "")
    )


def _why_nowhere(space: JobSpace) -> str:
    """Why there is no machine that the job may use."""
    if space.job.allow == ():
        return "its `allow` is empty: it may run nowhere (leave it out for everywhere)"
    return why_no_place(space) or "no machine is in a region where it may run and is not kept from it"


def why_no_place(space: JobSpace) -> str | None:
    """The first layer that its job's rules leave no place among the machines it may use, and these rules, in words;
    None where every layer has one."""
    job, without = space.job, space.without
    machines = [m for m in space.cluster.machines if job.may_run_in(m.region) and m.name not in without]
    regions = list(dict.fromkeys(machine.region for machine in machines))
    for layer in range(len(job.model.layers)) if job.place and regions else ():
        broken = [job.broken_rule(layer, region) for region in regions]
        if None not in broken:
            said = " and ".join(f"`{rule}`" for rule in job.place if rule in broken)
            return f"layer {layer} may be in no region with a machine it may use, by {said} of its `place`"
    return None


def _samples(space: JobSpace) -> str:
    size = space.microbatches[0]
    return f"{size} sequence{'' if size == 1 else 's'} of {space.job.model.sequence:,} tokens"


def _too_large_layer(space: JobSpace) -> _Tightest | None:
    """The first layer that no GPU the job may use can hold, however its tensors and its optimizer state are split."""
    tables = space.tables(replace(space.plainest, recompute=Recompute.FULL))
    places = sorted({space.places.of_machine[machine] for machine in space.allowed})
    gpus = sum(space.cluster.machines[machine].gpus for machine in space.allowed)
    for layer in range(len(space.job.model.layers)):
        best: _Tightest | None = None
        for place in places:
            host = space.places.representatives[place]
            ranks = max(t for t in space.degrees if t <= host.gpus)
            needs, _, held, peak = stage_memory(tables, layer, layer, ranks, 1, False, max(1, gpus // ranks))
            room = float(tables.capacity[place])
            if needs <= room:
                best = None
                break
            if best is None or needs - room < best.needs - best.room:
                best = _Tightest(layer, float(needs), float(held + peak), room, host.gpu.name)
        if best is not None:
            return best
    return None
