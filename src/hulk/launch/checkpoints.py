"""A job's folder of checkpoints made ready before the start: locked, old ones removed or gone on from. It is done
where the folder is: by the first machine's agent, or by Slurm on this computer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from hulk.domain.job import Job
from hulk.export import Scene
from hulk.runtime.checkpoint import read_head
from hulk.runtime.folder import locked, prepare_folder, remove_leftovers
from hulk.runtime.progress import Progress
from hulk.runtime.run import resumed
from hulk.runtime.settings import Settings


@dataclass(frozen=True)
class Found:
    """The checkpoint to go on from, how many steps it has, and what there is to say."""

    resume: Path | None = None
    step: int = 0
    told: tuple[str, ...] = ()


def make_ready(job: Job, settings: Settings, stack: ExitStack, *, resume: bool, overwrite: bool) -> Found:
    """Lock the folder until the stack is closed, and make it ready. InputError where it is in use, has checkpoints that
    nobody said what to do with, or has none to go on from."""
    told: list[str] = []
    assert settings.checkpoints is not None
    stack.enter_context(locked(settings.checkpoints))
    stack.callback(remove_leftovers, settings.checkpoints)
    found = resumed(job, settings, told.append).resume if resume else None
    prepare_folder(settings.checkpoints, resume=resume, overwrite=overwrite, say=told.append)
    return Found(found, 0 if found is None else read_head(found).step, tuple(told))


def still_to_do(scenes: Sequence[Scene], progress: Progress, find: Callable[[Scene], Found]) -> list[Scene]:
    """The jobs that have something left to do, each with the checkpoint it goes on from. `find` makes the folder of
    one ready."""
    todo = []
    for scene in scenes:
        settings, job = scene.settings, scene.job.name
        if settings.checkpoints is None:
            todo.append(scene)
            continue
        found = find(scene)
        for words in found.told:
            progress.show(words)
        if found.resume is not None:
            progress.saved[job] = str(found.resume)
            settings = settings.model_copy(update={"resume": found.resume})
        if found.step >= settings.steps:
            progress.show(f"{job} has nothing left to do: {found.step} steps are done, --steps is {settings.steps}")
        else:
            todo.append(replace(scene, settings=settings))
    return todo
