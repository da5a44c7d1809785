"""One job's skeleton after machines were lost, or with more to use: small changes, so that little has to move."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hulk.replan.changes import Changes
from hulk.search.job_space import JobSpace
from hulk.search.shape.arrange import tune
from hulk.search.skeleton import Skeleton, Slot

_BEAM = 6
_MOST_SPARES = 12
_MOST_GROWTH = 8
_DRAWS = 3

Way = tuple[str, Skeleton]
"""What was done, in words, machines as {number} (`told` has the names), and what came out."""


def repairs(changes: Changes, skeleton: Skeleton, lost: Sequence[int], spare: Iterable[int]) -> list[Way]:
    """Ways to go on without the machines `lost`, one machine after the other: the replicas they were in are dropped,
    their neighbours take their layers, or a spare machine takes their place. The quickest few; all of them fit. Where
    none does, with fewer pipelines, which have more GPUs of each machine."""
    space = changes.space
    free = set(spare) & space.allowed
    beam: list[Way] = [("", skeleton)]
    for machine in lost:
        options: list[tuple[str, Skeleton | None]] = []
        for words, before in beam:
            if machine not in before.machines:
                options.append((words, before))
                continue
            others = (words, "its other replicas go on") if "replicas" not in words else (words,)
            options.append((_join(*others), changes.without(before, machine, whole=True)))
            taken_over = _join(words, f"its neighbours take over from {{{machine}}}")
            options.append((taken_over, changes.without(before, machine)))
            for other in _near(space, machine, free - before.machines):
                replaced = _join(words, f"{{{other}}} takes the place of {{{machine}}}")
                options.append((replaced, changes.substitute(before, machine, other)))
        beam = _best(space, [(words, made) for words, made in options if made is not None], _BEAM)
    return _tuned(space, beam) or _tuned(space, _best(space, _fewer(changes, skeleton, lost), _BEAM))


def _fewer(changes: Changes, skeleton: Skeleton, lost: Sequence[int]) -> list[Way]:
    """What is left of each chain, in fewer pipelines than there were: their slots share out the machines' GPUs."""
    space, made = changes.space, dict[Skeleton, str]()
    for chain in dict.fromkeys(skeleton.chains):
        places = [slot.machine for slot in chain if slot.machine not in lost]
        for count in range(1, len(skeleton.chains)):
            room = {m: space.cluster.machines[m].gpus // (count * places.count(m)) for m in places}
            ranks = {m: max((d for d in space.degrees if d <= room[m]), default=0) for m in places}
            slots = tuple(Slot(m, ranks[m]) for m in places if ranks[m])
            if slots:
                words = f"in {count} pipeline{'s' if count > 1 else ''} instead of {len(skeleton.chains)}"
                made[Skeleton((slots,) * count, skeleton.options)] = words
    return [(words, each) for each, words in made.items()]


def growths(changes: Changes, skeleton: Skeleton, spare: Iterable[int], rng: np.random.Generator) -> list[Way]:
    """Ways to take spare machines in, one more each time, as long as the step gets shorter."""
    space = changes.space
    free = set(spare) & space.allowed
    found: list[Way] = []
    words, seconds = "", space.result(skeleton).value
    while free and len(found) < _MOST_GROWTH:
        options: list[Way] = []
        for machine in _near(space, next(iter(sorted(skeleton.machines))), free):
            joined = _join(words, f"{{{machine}}} joins")
            for _ in range(_DRAWS):
                options += [(joined, made) for made in changes.insertions(skeleton, machine, rng)]
        best = _tuned(space, _best(space, options, 1))
        if not best or space.result(best[0][1]).value >= seconds * (1 - 1e-3):
            break
        words, skeleton = best[0]
        seconds = space.result(skeleton).value
        free -= skeleton.machines
        found.append((words, skeleton))
    return found


def told(words: str, names: Sequence[str]) -> str:
    """The words with the machines' names."""
    return words.format(*names)


def with_others(words: str, others: Mapping[int, int]) -> str:
    """The words where other machines have taken these machines' parts, all by number."""
    return re.sub(r"\{(\d+)\}", lambda found: f"{{{others.get(int(found[1]), int(found[1]))}}}", words)


def _near(space: JobSpace, machine: int, free: set[int]) -> list[int]:
    """Free machines, the nearest first, one of each place: those of a place are alike."""
    rows = space.places.of_machine
    latency = space.latency
    first: dict[int, int] = {}
    for other in sorted(free):
        first.setdefault(rows[other], other)
    reachable = [other for row, other in first.items() if np.isfinite(latency[rows[machine], row])]
    return sorted(reachable, key=lambda other: float(latency[rows[machine], rows[other]]))[:_MOST_SPARES]


def _best(space: JobSpace, options: Sequence[Way], most: int) -> list[Way]:
    """The quickest options, each skeleton once."""
    each = {skeleton: words for words, skeleton in reversed(options)}
    ranked = sorted(each, key=space.result)
    return [(each[skeleton], skeleton) for skeleton in ranked[:most]]


def _tuned(space: JobSpace, ways: Iterable[Way]) -> list[Way]:
    """With the options that suit them now; those that do not fit even so are left out."""
    made: list[Way] = []
    for words, skeleton in ways:
        known = skeleton.options.microbatch_size in space.microbatches
        tuned, result = tune(space, skeleton) if known else (skeleton, space.result(skeleton))
        if result.runs:
            made.append((words, tuned))
    return made


def _join(*words: str) -> str:
    return ", ".join(word for word in words if word)
