"""The targets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hulk.cost.engine import HULK, Engine
from hulk.errors import InputError, nearest
from hulk.export.files import Files
from hulk.export.scene import Scene
from hulk.search.form import Form

Exporter = Callable[[Scene], Files]
"""Makes the files of one job, or raises InfeasibleError that names the part of the plan it cannot express. Pure: the
same scene gives the same files (but for keys), and nothing is read or written."""


@dataclass(frozen=True)
class Target:
    """Something that people start training with.

    engine   what then runs the plan: plans for this target are priced by it
    form     None: it takes every plan that its engine can run; otherwise pipelines all alike, of this form
    starts   whether it starts training: plans can be made for it
    """

    name: str
    title: str
    export: Exporter
    engine: Engine = HULK
    form: Form | None = None
    starts: bool = True


class Registry:
    """Targets in the order they were added; refuses a name that is taken."""

    def __init__(self) -> None:
        self._targets: dict[str, Target] = {}

    def add(self, target: Target) -> None:
        """Make a target known."""
        if target.name in self._targets:
            raise ValueError(f"there is a target {target.name!r} already")
        self._targets[target.name] = target

    def get(self, name: str) -> Target:
        """The target of that name; InputError with the nearest known one otherwise."""
        if name not in self._targets:
            raise InputError(f"no target {name!r}", hint=nearest(name, self._targets))
        return self._targets[name]

    def targets(self) -> tuple[Target, ...]:
        """All of them."""
        return tuple(self._targets.values())
