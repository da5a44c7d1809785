"""A plan in words: who trains what where, how it is cut, what it takes. The terminal and the page say the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from hulk.cost.report import Infeasible, JobPrice, StagePrice
from hulk.domain.options import COLUMN, SPACE, words_of
from hulk.text import one_line
from hulk.units import format_count, format_money, format_size, format_time
from hulk.view.document import BreakdownPart, JobWords, Words

if TYPE_CHECKING:
    from hulk.cost.report import PlanPrice
    from hulk.domain.cluster import Cluster
    from hulk.domain.job import Job
    from hulk.domain.plan import JobPlan, Plan
    from hulk.whatif import WhatIf

_MOST_NAMES = 12
_MOST_LINES = 16  # of one pipeline by machine; longer ones are told by region
_MOST_SHAPES = 6
_HOUR = 3600.0
_SHARING = 1.05  # times the step alone, above which what messages wait for each other is said
_LEAST_SHARE = 0.0005  # of a step that a part takes before it is told

Stages = Sequence[StagePrice]


def plan_words(
    plan: Plan,
    price: PlanPrice,
    cluster: Cluster,
    jobs: Iterable[Job],
    whatifs: Iterable[WhatIf] | None,
    notes: Sequence[str] = (),
) -> Words:
    """All that is said of a plan with its price. `whatifs`: what would help; None where nobody looked."""
    hints = None if whatifs is None else list(whatifs)
    told: dict[str, JobWords] = {}
    stopped: dict[str, str] = {}
    for job in jobs:
        found = price.jobs.get(job.name)
        if isinstance(found, Infeasible):
            stopped[job.name] = f"{found.obstacle}: {one_line(found.reason)}"
        elif found is not None:
            own = None if hints is None else [hint for hint in hints if hint.job == job.name]
            told[job.name] = job_words(job, plan.jobs[job.name], found, cluster, own)
    return Words(
        jobs=told,
        cannot_run=stopped,
        waiting={name: one_line(reason) for name, reason in plan.waiting.items()},
        idle=idle_words(plan, cluster),
        notes=list(notes),
    )


def job_words(
    job: Job, plan: JobPlan, price: JobPrice, cluster: Cluster, hints: Sequence[WhatIf] | None = None
) -> JobWords:
    """What is said of one job that runs."""
    late = job.deadline is not None and price.finish is not None
    return JobWords(
        headline=f"{format_time(price.step)} a step, {format_count(price.tokens_per_second)} tokens/s",
        group=groups(plan, cluster),
        plan=options_words(plan),
        cut=pipeline_lines(plan, price),
        step=breakdown(price),
        sharing=_sharing(price) if price.step > _SHARING * price.alone else None,
        memory=tightest(price),
        cost=_money(price),
        deadline=_deadline(job.deadline or 0.0, price.finish or 0.0) if late else None,
        bottleneck=price.bottleneck,
        would_help=None if hints is None else [hint.text for hint in hints],
    )


def idle_words(plan: Plan, cluster: Cluster) -> str | None:
    """The machines that nothing runs on, by region; None where there are none."""
    if not plan.idle:
        return None
    gpus = sum(cluster.machine(name).gpus for name in plan.idle)
    return f"{by_region(plan.idle, cluster)} ({count(gpus, 'GPU')})"


def breakdown(price: JobPrice) -> list[BreakdownPart]:
    """Where a step's seconds go, the parts that are worth a line."""
    parts = asdict(price.breakdown).items()
    return [
        BreakdownPart(part=part, seconds=seconds, share=seconds / price.step, text=format_time(seconds))
        for part, seconds in parts
        if seconds / price.step >= _LEAST_SHARE
    ]


def groups(plan: JobPlan, cluster: Cluster) -> list[str]:
    """The group by region: "rome: rome-2, rome-4 (20 GPUs)"."""
    used: dict[str, dict[str, int]] = {}
    for part in (part for stage in plan.slots for part in stage.parts):
        machines = used.setdefault(cluster.machine(part.machine).region, {})
        machines[part.machine] = machines.get(part.machine, 0) + len(part.gpus)
    return [
        f"{region}: {some(sorted(machines, key=_natural))} ({count(sum(machines.values()), 'GPU')})"
        for region, machines in used.items()
    ]


def options_words(plan: JobPlan) -> str:
    """Its shape and its options: "4 pipelines of 3 stages, 1f1b, …"."""
    lengths = sorted({len(pipeline.slots(plan.options.chunks)) for pipeline in plan.pipelines})
    long = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    shape = f"{count(len(plan.pipelines), 'pipeline')} of {long} stage{'' if lengths == [1] else 's'}"
    said, again = words_of(plan.options, plan.shape), SPACE[COLUMN["recompute"]].words(plan.options.recompute)
    if plan.counts_blocks:
        said = [f"{words} in some blocks" if words == again else words for words in said]
    return ", ".join([shape, *said])


def alike(price: JobPrice) -> list[list[int]]:
    """The pipelines in groups of one shape: the same layers on the same GPUs of the same regions, as many of their
    blocks computed again."""
    shapes: dict[tuple[object, ...], list[int]] = {}
    for row, stages in enumerate(price.pipelines):
        key = tuple((s.region, s.gpu, s.ranks, s.first, s.last, s.recomputed) for s in stages)
        shapes.setdefault(key, []).append(row)
    return list(shapes.values())


def pipeline_lines(plan: JobPlan, price: JobPrice) -> list[str]:
    """Every shape of pipeline once, in words, with how many more are like it."""
    shapes = alike(price)
    lines: list[str] = []
    for rows in shapes[:_MOST_SHAPES]:
        first = price.pipelines[rows[0]]
        shares = sorted(plan.pipelines[row].microbatches for row in rows)
        share = f"{shares[0]}" if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]}"
        if len(price.pipelines) > 1:
            head = (
                f"pipeline {rows[0] + 1}"
                if len(rows) == 1
                else f"pipeline {rows[0] + 1} and {len(rows) - 1} more like it"
            )
            noun = "microbatch" if share == "1" else "microbatches"
            lines.append(f"{head}, {share} {noun}{' each' if len(rows) > 1 else ''}")
        indent = "  " if len(price.pipelines) > 1 else ""
        slots = len(plan.pipelines[rows[0]].slots(plan.options.chunks))
        lines += [indent + line for line in stage_lines(first, slots)]
        own = {stage.where for stage in first}
        others = dict.fromkeys(s.where for row in rows[1:] for s in price.pipelines[row] if s.where not in own)
        if others:
            lines.append(f"{indent}the others also on {some(others)}")
    left = sum(len(rows) for rows in shapes[_MOST_SHAPES:])
    if left:
        lines.append(f"and {count(left, 'pipeline')} of {len(shapes) - _MOST_SHAPES} other shapes")
    return lines


def stage_lines(stages: Stages, slots: int) -> list[str]:
    """A pipeline's cut: "layers 0–11 on beijing-1, 8×a100-40". Neighbours on one machine share a line; where there are
    too many lines still, neighbours in one region do. Where stages go round so many slots, a slot has a line."""
    if slots < len(stages):
        rounds = [stages[s::slots] for s in range(slots)]
        lines = [
            f"{some([_layers([each]) for each in own])} on {own[0].where}, {_ranks(own[:1])}{_again(own)}"
            for own in rounds
        ]
        left = len(lines) - _MOST_LINES
        return lines if left <= 0 else [*lines[:_MOST_LINES], f"and {count(left, 'stage')} more like these"]
    folded = [list(part) for _, part in groupby(stages, key=lambda stage: stage.machine)]
    if len(folded) > _MOST_LINES:
        folded = [list(part) for _, part in groupby(stages, key=lambda stage: stage.region)]
    return [_part(part) for part in folded]


def _part(stages: Stages) -> str:
    machines = dict.fromkeys(stage.where for stage in stages)
    if len(machines) == 1:
        return f"{_layers(stages)} on {stages[0].where}, {_ranks(stages)}{_again(stages)}"
    gpus = count(sum(stage.ranks for stage in stages), "GPU")
    return f"{_layers(stages)} in {stages[0].region}, {len(stages)} stages on {some(machines)} ({gpus}){_again(stages)}"


def _again(stages: Stages) -> str:
    """How many blocks of these stages are computed again, where the plan has such numbers."""
    counts = [stage.recomputed for stage in stages if stage.recomputed is not None]
    if not counts:
        return ""
    return f", {count(sum(counts), 'block')} recomputed" if sum(counts) else ", nothing recomputed"


def _layers(stages: Stages) -> str:
    first, last = stages[0].first, stages[-1].last
    return f"layer {first}" if first == last else f"layers {first}–{last}"


def _ranks(stages: Stages) -> str:
    ranks, gpu = [stage.ranks for stage in stages], stages[0].gpu
    if len(ranks) == 1:
        return f"{ranks[0]}×{gpu}"
    each = str(ranks[0]) if len(set(ranks)) == 1 else "+".join(map(str, ranks))
    return f"{len(ranks)} stages of {each}×{gpu}"


def _sharing(price: JobPrice) -> str:
    more = price.step / price.alone - 1
    alone = f"{format_time(price.alone)} if each had its way to itself"
    return f"messages wait for each other on network cards and trunks: {more:+.0%}, {alone}"


def tightest(price: JobPrice) -> str:
    """The stage with the least memory left, in words."""
    stage = min((s for stages in price.pipelines for s in stages), key=lambda s: s.memory.headroom / s.memory.capacity)
    memory = stage.memory
    return (
        f"tightest on {stage.where} ({_layers([stage])}): {format_size(memory.used)} of "
        f"{format_size(memory.capacity)} a GPU, {format_size(memory.headroom)} free"
    )


def _money(price: JobPrice) -> str:
    money = price.money
    parts = [f"{format_money(money.total)} a step", f"{format_money(money.total / price.step * _HOUR)} an hour"]
    if money.egress:
        parts[0] += f" ({format_money(money.egress)} of it egress)"
    if price.finish is not None and price.finish_money is not None:
        parts.append(f"{format_money(price.finish_money)} to finish in {format_time(price.finish)}")
    return ", ".join(parts)


def _deadline(deadline: float, finish: float) -> str:
    """Whether a deadline is met, both in seconds: "5.00 d, met with 1.58 d to spare"."""
    left = deadline - finish
    words = f"met with {format_time(left)} to spare" if left >= 0 else f"missed by {format_time(-left)}"
    return f"{format_time(deadline)}, {words}"


def by_region(names: Sequence[str], cluster: Cluster) -> str:
    """Machines by region: "rome: rome-2, rome-4; paris: paris-1"."""
    regions: dict[str, list[str]] = {}
    for name in names:
        regions.setdefault(cluster.machine(name).region, []).append(name)
    return "; ".join(f"{region}: {some(machines)}" for region, machines in regions.items())


def some(names: Iterable[str], most: int = _MOST_NAMES) -> str:
    """The names, or the first of them and how many more there are."""
    given = list(names)
    return (
        ", ".join(given) if len(given) <= most else f"{', '.join(given[: most - 1])} and {len(given) - most + 1} more"
    )


def count(number: int, what: str) -> str:
    """ "1 machine", "2 machines"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _natural(name: str) -> tuple[str, int, str]:
    """Orders rome-10 after rome-9."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail), name) if tail.isdigit() else (name, 0, name)
