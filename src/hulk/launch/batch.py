"""Launching where a scheduler starts the workers: a job's exported folder handed over, and its output followed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from hulk.errors import InputError
from hulk.export import TARGETS, Scene
from hulk.export.shell import label
from hulk.io.folder import write_folder
from hulk.launch.checkpoints import Found, make_ready, still_to_do
from hulk.launch.follow import Part
from hulk.launch.main import Asked, settings_of
from hulk.runtime.ending import told_early, undisturbed
from hulk.runtime.folder import log_folder
from hulk.runtime.launch import Worker
from hulk.runtime.progress import Progress
from hulk.runtime.watch import watch


class Handed(Protocol):
    """A job that was handed over."""

    def follow(self, part: Part) -> None:
        """Wait until its workers start; from then on the part is given all that they write, and its end."""

    def cancel(self) -> None:
        """End it, and wait until it has."""


Hand = Callable[[Scene, Path], Handed]


def launch_batch(target: str, scenes: Sequence[Scene], hand: Hand, asked: Asked, progress: Progress) -> None:
    """Hand every job over to a scheduler, and follow all of them. RunError where one ends early."""
    handed: list[Handed] = []
    todo = list(scenes)
    with (
        told_early(progress, lambda: settings_of(todo)),
        log_folder() as logs,
        ExitStack() as stack,
    ):
        todo = still_to_do(scenes, progress, lambda scene: _ready_here(scene, stack, asked))
        if not todo:
            return
        folders = stack.enter_context(_folders(target, todo))
        progress.begin()
        try:
            workers: list[Worker] = []
            for scene, folder in zip(todo, folders, strict=True):
                handed.append(hand(scene, folder))
            for scene, each in zip(todo, handed, strict=True):
                part = Part(logs / f"{label(scene.job.name)}.log")
                workers += part.workers(progress.jobs[scene.job.name])
                each.follow(part)
            watch(workers, progress, timeout=scenes[0].settings.timeout)
        finally:
            with undisturbed():
                for each in handed:
                    each.cancel()


def _ready_here(scene: Scene, stack: ExitStack, asked: Asked) -> Found:
    """The folder of checkpoints made ready by this computer, which shares it with the nodes."""
    settings = scene.settings
    for option, path in (("--data", settings.data), ("--tokenizer", settings.tokenizer)):
        if asked.resume and path is not None and not path.exists():
            raise InputError(
                f"--resume compares {option} with what the checkpoint was made of, and this computer has no {path}",
                hint="launch it where the nodes' storage is",
            )
    return make_ready(scene.job, settings, stack, resume=asked.resume, overwrite=asked.overwrite)


@contextmanager
def _folders(target: str, scenes: Sequence[Scene]) -> Iterator[list[Path]]:
    """The exported folder of every job, below the current folder, which schedulers have on all nodes; gone at the
    end."""
    made: list[Path] = []
    try:
        for scene in scenes:
            files = TARGETS.get(target).export(scene)
            outer = Path(tempfile.mkdtemp(prefix=f"hulk-launch-{label(scene.job.name)}-", dir=Path.cwd()))
            made.append(outer)
            write_folder(outer / target, {name: (file.text, file.mode) for name, file in files.items()})
        yield [each / target for each in made]
    finally:
        for each in made:
            shutil.rmtree(each, ignore_errors=True)
