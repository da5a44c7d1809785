"""Facts as features: logarithms of ratios and shares, so that only relations count, not sizes, names or order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hulk.propose.facts import Facts

Array = NDArray[np.float32]
Floats = NDArray[np.float64]

NEIGHBOURS = 12
"""Classes whose messages a class hears: the nearest by latency."""
PLACE_FEATURES = 15
FROM_LINKS = 3
"""Of a place's features the last so many come from links: latency inside, mean way to all others."""
JOB_FEATURES = 13
PAIR_FEATURES = 9
LINK_FEATURES = 9
MAPS = 4
_FURTHEST = 6.0
# Nearness is latency to the power of −4: a sum of it over a group is ruled by the nearest member, and it is smooth.
NEARNESS_POWER = 4


@dataclass(frozen=True)
class Graph:
    """The network's input, all but what is known of the plan. P places, J jobs, K neighbours.

    place      [P, PLACE_FEATURES]
    job        [J, JOB_FEATURES]
    pair       [P, J, PAIR_FEATURES]; the first column is the share of the class that the job may use
    neighbour  [P, K] which places a place hears
    link       [P, K, LINK_FEATURES]; the first column is 0 where there is no such neighbour
    maps       [MAPS, P, P]: nearness, log latency, log bandwidth, blocked
    worth      [P, J, 2]: a whole class in fair shares of the job's power, and in replicas that fit into its memory
    """

    place: Array
    job: Array
    pair: Array
    neighbour: NDArray[np.int64]
    link: Array
    maps: Array
    worth: Array

    @classmethod
    def of(cls, facts: Facts) -> Graph:
        """Features of facts."""
        scene = _Scene.of(facts)
        neighbour, link = _links(facts, scene)
        return cls(
            place=_clean(_place_features(facts, scene)),
            job=_clean(_job_features(facts, scene)),
            pair=_clean(_pair_features(facts, scene)),
            neighbour=neighbour,
            link=_clean(link),
            maps=_clean(scene.maps, most=1e9),
            worth=_clean(_worth(facts), most=1e3),
        )


@dataclass(frozen=True)
class _Scene:
    """What several features compare with: the cluster's typical link and GPU, and a fair share of its power."""

    latency: float  # seconds, median over pairs of places that reach each other
    bandwidth: float  # bytes/s, likewise
    speed: Floats  # [P] log of a GPU's FLOP/s, mean over the jobs
    power: Floats  # [P] share of the cluster's FLOP/s, mean over the jobs
    sample_seconds: Floats  # [J] of one sample on an average GPU
    step_seconds: Floats  # [J] of a step on a fair share of all GPUs, if that were all
    maps: Floats

    @classmethod
    def of(cls, facts: Facts) -> _Scene:
        off = ~np.eye(facts.places, dtype=bool) & np.isfinite(facts.latency)
        chosen = off if off.any() else np.eye(facts.places, dtype=bool)
        latency = float(np.median(facts.latency[chosen]))
        bandwidth = float(np.median(facts.bandwidth[chosen]))
        total = facts.rate * facts.members
        gpus = float((facts.gpus * facts.members).sum())
        mean = total.sum(axis=1) / gpus
        sample = facts.flops / facts.batch / mean
        blocked = ~np.isfinite(facts.latency)
        far = _log(np.where(blocked, latency, facts.latency), latency)
        wide = _log(facts.bandwidth, bandwidth)
        maps = np.stack(
            [
                np.where(blocked, 0.0, np.exp(-NEARNESS_POWER * far.clip(-5.0, 8.0))),
                np.where(blocked, _FURTHEST, far) / 2,
                np.where(blocked, -_FURTHEST, wide) / 2,
                blocked.astype(float),
            ]
        )
        return cls(
            latency=latency,
            bandwidth=bandwidth,
            speed=np.log(facts.rate / facts.gpus).mean(axis=0),
            power=(total / total.sum(axis=1, keepdims=True)).mean(axis=0),
            sample_seconds=sample,
            step_seconds=facts.flops / (mean * gpus * facts.fair),
            maps=maps,
        )


def _place_features(facts: Facts, scene: _Scene) -> Floats:
    memory = facts.room / facts.gpus
    same = facts.region[:, None] == facts.region
    of_region = same @ scene.power
    mean_way = scene.maps[1:] @ scene.power  # [3, P]
    inside = np.diagonal(facts.latency)
    total = (facts.room * facts.members).sum()
    return np.stack(
        [
            scene.speed - scene.speed @ scene.power,
            np.log2(facts.gpus) / 3,
            np.log(facts.members) / 3,
            _log(facts.members / facts.members.sum(), 1 / facts.places) / 2,
            _log(scene.power, 1 / facts.places) / 2,
            scene.power,
            _log(memory, total / (facts.gpus * facts.members).sum()),
            _log(facts.room * facts.members / total, 1 / facts.places) / 2,
            _log(facts.card, float(np.median(facts.card))) / 2,
            _log(facts.local, float(np.median(facts.local))) / 3,
            of_region,
            scene.power / of_region,
            _log(inside, scene.latency) / 4,
            mean_way[0],
            mean_way[2],
        ],
        axis=1,
    )


def _job_features(facts: Facts, scene: _Scene) -> Floats:
    work = facts.weight * facts.flops
    total = (facts.room * facts.members).sum()
    ones = np.ones(facts.jobs)
    return np.stack(
        [
            _log(work / work.sum(), 1 / facts.jobs) / 3,
            _log(facts.fair, 1 / facts.jobs) / 2,
            facts.fair,
            _log(facts.need, total) / 3,
            _log(facts.need, facts.need.mean()) / 3,
            _log(facts.weight, facts.weight.mean()) / 3,
            # Communication to computation: a cut, a round trip, and the gradients, against the compute beside them.
            _log(facts.cut / scene.bandwidth, scene.sample_seconds) / 3,
            _log(scene.latency * ones, scene.sample_seconds) / 3,
            _log(facts.need / scene.bandwidth, scene.step_seconds) / 3,
            np.log(facts.layers) - 3.5,
            np.log(facts.batch) / 2 - 2.5,
            ones * np.log(facts.jobs) / 2,
            ones * np.log(facts.places) / 3,
        ],
        axis=1,
    )


def _pair_features(facts: Facts, scene: _Scene) -> Floats:
    room = facts.room * facts.members
    sample = (facts.flops / facts.batch)[:, None] / facts.rate  # [J, P] seconds of a sample on one machine
    inside = np.diagonal(facts.latency)
    inside_width = np.diagonal(facts.bandwidth)
    share = facts.power / facts.power.sum(axis=1, keepdims=True).clip(1.0)
    speed = facts.rate / facts.gpus
    mean = (facts.rate * facts.members).sum(axis=1) / (facts.gpus * facts.members).sum()
    total_share = (facts.need.sum() / room.sum()) * np.ones_like(share)
    features = [
        facts.usable,
        _log(facts.need[:, None], room) / 4,
        _log(facts.need[:, None], facts.room) / 4,
        _log(speed, mean[:, None]),
        _log(share.clip(1e-6), facts.fair[:, None]) / 3,
        _log(facts.cut[:, None] / inside_width, sample) / 4,
        _log(np.broadcast_to(inside, sample.shape), sample) / 4,
        _log(facts.need[:, None] / inside_width, scene.step_seconds[:, None]) / 4,
        total_share,
    ]
    return np.stack(features, axis=2).transpose(1, 0, 2)


def _links(facts: Facts, scene: _Scene) -> tuple[NDArray[np.int64], Floats]:
    """The nearest places of every place, and features of the way to them."""
    count = facts.places
    way = facts.latency.copy()
    np.fill_diagonal(way, np.inf)
    # Of equally near ones the stronger, then by other facts: no rule may depend on the order of places. Rounded, since
    # sums in another order differ in their last digits.
    keys = (facts.gpus, facts.room, facts.card, _digits(scene.maps[1] @ scene.power), -_digits(scene.power))
    ties = tuple(np.broadcast_to(key, way.shape) for key in keys)
    order = np.lexsort((*ties, _digits(way)), axis=1)[:, :NEIGHBOURS]
    missing = NEIGHBOURS - order.shape[1]
    own = np.arange(count)[:, None]
    neighbour = np.concatenate([order, np.repeat(own, missing, axis=1)], axis=1)
    exists = (neighbour != own) & np.isfinite(way[own, neighbour])
    features = [
        np.ones(neighbour.shape),
        scene.maps[1][own, neighbour],
        scene.maps[2][own, neighbour],
        (facts.region[own] == facts.region[neighbour]).astype(float),
        facts.measured[own, neighbour],
        _log(np.where(exists, facts.latency[own, neighbour], scene.latency), scene.sample_seconds.mean()) / 4,
        scene.speed[neighbour] - scene.speed[own],
        _log(scene.power[neighbour], scene.power[own]) / 2,
        _log((facts.room / facts.gpus)[neighbour], (facts.room / facts.gpus)[own]),
    ]
    return neighbour.astype(np.int64), np.stack(features, axis=2) * exists[:, :, None]


def _worth(facts: Facts) -> Floats:
    share = facts.power / facts.power.sum(axis=1, keepdims=True).clip(1.0)
    room = facts.room * facts.members * facts.usable
    return np.stack([(share / facts.fair[:, None]).T, (room / facts.need[:, None]).T], axis=2)


def _log(value: Floats, reference: Floats | float) -> Floats:
    """Natural logarithm of a ratio; both above zero."""
    ratio: Floats = np.log(value / reference)
    return ratio


def _digits(values: Floats) -> Floats:
    """Rounded to seven digits."""
    return np.array(values, np.float32).astype(np.float64)


def _clean(values: Floats, most: float = 8.0) -> Array:
    """Single precision, within bounds: far outside of what the network has seen it knows nothing anyway."""
    return np.nan_to_num(values, nan=0.0, posinf=most, neginf=-most).clip(-most, most).astype(np.float32)
