"""Plans whose pipelines are all alike, which is what most engines take: found in a plan, or refused with the part that
is not so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from hulk.domain.gpu import Precision
from hulk.domain.model import LayerKind
from hulk.domain.options import SPACE, Options, Sharding, Within, normal
from hulk.domain.plan import Stage
from hulk.export.scene import Scene, refuse
from hulk.export.start import Node

T = TypeVar("T")


@dataclass(frozen=True)
class Grid:
    """A regular plan: `rows` are the pipelines, each with its stages, round after round where there are several chunks;
    `stages` counts those of a round; `options` the normal ones."""

    tensor: int
    context: int
    stages: int
    replicas: int
    microbatches: int
    rows: tuple[tuple[Stage, ...], ...]
    options: Options

    @property
    def size(self) -> int:
        """All ranks."""
        return self.tensor * self.context * self.stages * self.replicas

    def blocks(self, scene: Scene) -> list[tuple[range, bool, bool]]:
        """For each stage its blocks, counted from 0 without the embedding, and whether it has embedding and head."""
        kinds = scene.job.model.kinds
        before = next((i for i, kind in enumerate(kinds) if kind is LayerKind.BLOCK), 0)
        made = []
        for stage in self.rows[0]:
            blocks = [i - before for i in stage.layers if kinds[i] is LayerKind.BLOCK]
            of_stage = {kinds[i] for i in stage.layers}
            found = range(blocks[0], blocks[-1] + 1) if blocks else range(0)
            made.append((found, LayerKind.EMBEDDING in of_stage, LayerKind.HEAD in of_stage))
        return made

    def nodes(self, *, stages_near: bool = False) -> list[Node]:
        """The machines with their ranks and GPUs, by their first rank. Ranks go stage by stage, in each replica by
        replica, in each GPU by GPU; with `stages_near` replica by replica, in each stage by stage."""
        places = [(r, s) for s in range(self.stages) for r in range(self.replicas)]
        if stages_near:
            places.sort()
        found: dict[str, list[tuple[int, int]]] = {}
        rank = 0
        for r, s in places:
            stage = self.rows[r][s]
            for part in stage.parts:
                for gpu in part.gpus:
                    found.setdefault(part.machine, []).append((rank, gpu))
                    rank += 1
        return [Node(name, *map(tuple, zip(*its, strict=True))) for name, its in found.items()]


def grid_of(target: str, scene: Scene) -> Grid:
    """The plan as a grid; refused, with the first part that is not alike, where it is none."""
    pipelines = scene.plan.pipelines
    _alike(target, "pipelines", [len(p.stages) for p in pipelines], "have {} and {} stages", "one number for all")
    for number, pipeline in enumerate(pipelines, start=1):
        where = f"of pipeline {number} " if len(pipelines) > 1 else ""
        degrees = [scene.plan.tensor(stage) for stage in pipeline.stages]
        _alike(target, "stages", degrees, where + "use tensor parallel {} and {}", "one for all")
    degrees = [scene.plan.tensor(pipeline.stages[0]) for pipeline in pipelines]
    _alike(target, "pipelines", degrees, "use tensor parallel {} and {}", "one for all")
    for index in range(len(pipelines[0].stages)):
        cuts = [f"{p.stages[index].first}–{p.stages[index].last}" for p in pipelines]
        _alike(target, "pipelines", cuts, f"have layers {{}} and {{}} on stage {index + 1}", "one cut for all")
    shares = [pipeline.microbatches for pipeline in pipelines]
    _alike(target, "pipelines", shares, "take {} and {} microbatches a step", "one share for all")
    return Grid(
        tensor=degrees[0],
        context=scene.plan.options.context,
        stages=len(pipelines[0].slots(scene.plan.options.chunks)),
        replicas=len(pipelines),
        microbatches=shares[0],
        rows=tuple(pipeline.stages for pipeline in pipelines),
        options=normal(scene.plan.options, scene.plan.shape),
    )


def check_context(target: str, grid: Grid) -> None:
    """Refuse whole parameters where GPUs share sequences: FSDP splits over these as well."""
    if grid.context > 1 and grid.options.sharding is Sharding.NONE:
        raise refuse(target, f"{grid.context} GPUs share a sequence with `sharding: none`; it splits over them too")


def check_experts(target: str, scene: Scene, grid: Grid) -> None:
    """Refuse experts that are split over GPUs of a machine which do not follow one another stage by stage, in each
    replica by replica, as engines give out ranks."""
    degree = grid.options.expert
    for index in range(grid.stages):
        machines = [row[index].machine for row in grid.rows for _ in range(grid.context)]
        groups = [machines[i : i + degree] for i in range(0, len(machines), degree)]
        apart = next((group for group in groups if len(set(group)) > 1), None)
        if apart is not None:
            why = f"experts of stage {index + 1} are split over {degree} GPUs"
            raise refuse(target, f"{why}, but replicas that follow one another are on {apart[0]} and {apart[-1]}")


def _alike(target: str, what: str, values: Sequence[T], words: str, takes: str) -> None:
    """Refuse values that are not all the same."""
    other = next((i for i, value in enumerate(values) if value != values[0]), None)
    if other is not None:
        said = words.format(values[0], values[other])
        raise refuse(target, f"{what} 1 and {other + 1} {said}; it takes {takes}")


def check_options(target: str, scene: Scene, allowed: Mapping[str, Collection[Any]], *, counts: bool = False) -> None:
    """Refuse a plan with an option that the target has no word for; options that are not named may be anything.
    `counts`: whether it may compute some blocks of a stage again and not others."""
    options = normal(scene.plan.options, scene.plan.shape)
    for choice in SPACE:
        value = getattr(options, choice.name)
        if value not in allowed.get(choice.name, (value,)):
            can = ", ".join(str(each) for each in allowed[choice.name])
            raise refuse(target, f"the plan has `{choice.name}: {value}`; it takes {can}")
    if not counts:
        _check_uncounted(target, scene)


def _check_uncounted(target: str, scene: Scene) -> None:
    """Refuse a plan that computes some blocks of a stage again and not others."""
    for p, pipeline in enumerate(scene.plan.pipelines, start=1):
        for s, stage in enumerate(pipeline.stages, start=1):
            if stage.recomputed is not None:
                where = f"stage {s} of pipeline {p}" if len(scene.plan.pipelines) > 1 else f"stage {s}"
                blocks = scene.job.model.blocks(stage.first, stage.last)
                why = f"{where} computes {stage.recomputed} of its {blocks} blocks again"
                raise refuse(target, f"{why}; it takes all blocks or none")


def shard_sizes(target: str, scene: Scene, grid: Grid) -> tuple[int, int]:
    """How many copies of the sharded state there are, and among how many replicas each is split, as a mesh has them:
    replicas that follow one another share a copy. Refused where the plan's machines or regions do not give that."""
    options = grid.options
    if options.sharding is Sharding.NONE:
        return grid.replicas, 1
    if options.shard_within is Within.EVERYWHERE:
        return 1, grid.replicas
    sizes = set()
    for index in range(grid.stages):
        machines = [row[index].machine for row in grid.rows]
        near = options.shard_within is Within.MACHINE
        places = machines if near else [scene.cluster.machine(name).region for name in machines]
        sizes |= {len(list(run)) for _, run in groupby(places)}
    if len(sizes) > 1:
        why = f"state is sharded within each {options.shard_within}, which have {min(sizes)} and {max(sizes)} replicas"
        raise refuse(target, f"{why} one after the other; it takes one number for all")
    size = sizes.pop()
    return grid.replicas // size, size


def steps_of(scene: Scene) -> int:
    """Optimizer steps: those asked for, else those that use up the job's tokens."""
    settings, steps = scene.settings, scene.job.steps
    return settings.steps if "steps" in settings.model_fields_set or steps is None else max(1, round(steps))


def precision_of(scene: Scene) -> Precision:
    """The precision asked for, else the job's."""
    asked = scene.settings.precision
    return scene.job.precision if asked is None else Precision(asked)
