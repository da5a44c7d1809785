"""Which machines of a plan talk to each other when Hulk's own worker runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise, product

from hulk.domain.architecture import Family
from hulk.domain.cluster import pair
from hulk.domain.options import Sync, normal
from hulk.domain.plan import Stage, layer_holders
from hulk.export.scene import Scene

Pair = tuple[str, str]


def pairs_of(scene: Scene) -> list[Pair]:
    """The pairs of machines that exchange anything, each once, sorted: neighbours in a pipeline, those that add up
    gradients with each other, and all with the first, where they meet. Ranks that save a checkpoint agree in a ring."""
    names = [machine.name for machine in scene.machines]
    found = {pair(names[0], name) for name in names[1:]} | set(_ring(names))
    for pipeline in scene.plan.pipelines:
        for a, b in pairwise(pipeline.stages):
            found |= {pair(*ends) for ends in product(a.machines, b.machines)}
        for stage in pipeline.stages:
            found |= {pair(*ends) for ends in combinations(stage.machines, 2)}
    for stages in (*(stages for _, stages in layer_holders(scene.plan.pipelines)), _sharers(scene)):
        for holders in _in_step(stages):
            found |= set(_sums(scene, holders))
    return sorted(ends for ends in found if ends[0] != ends[1])


def _in_step(stages: Sequence[Stage]) -> list[list[str]]:
    """The machines of stages that add something up; of those on several, each with the others' at its place."""
    wide = max((len(stage.machines) for stage in stages), default=0)
    return [[stage.machines[place % len(stage.machines)] for stage in stages] for place in range(wide)]


def _sharers(scene: Scene) -> list[Stage]:
    """The stages that hold parameters which several layers share, in the plan's order."""
    layers = scene.job.model.layers
    stacks = scene.job.model.family == Family.ENCODER_DECODER  # all blocks of a stack share their position biases
    tied = {0, *(i for i, layer in enumerate(layers) if layer.tied or stacks)}
    return [stage for stage in scene.plan.stages if len(tied) > 1 and tied.intersection(stage.layers)]


def _sums(scene: Scene, holders: Sequence[str]) -> Iterable[Pair]:
    """The pairs that talk when these machines add something up. Where the optimizer is sharded, owners send weights to
    all other holders."""
    options = normal(scene.plan.options, scene.plan.shape)
    if options.shard_optimizer:
        return [pair(a, b) for a, b in combinations(dict.fromkeys(holders), 2)]
    if options.sync is Sync.RING:
        return _ring(holders)
    chains: dict[str, list[str]] = {}
    for name in holders:
        chains.setdefault(scene.cluster.machine(name).region, []).append(name)
    inside = [pair(a, b) for chain in chains.values() for a, b in pairwise(chain)]
    return [*inside, *_ring([chain[0] for chain in chains.values()])]


def _ring(names: Sequence[str]) -> list[Pair]:
    return [pair(a, b) for a, b in pairwise((*names, *names[:1]))]
