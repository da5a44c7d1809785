"""torchrun: a script for each machine, and one that starts all of them over ssh."""

from __future__ import annotations

from hulk.export.files import Files
from hulk.export.scene import Scene
from hulk.export.worker import check_worker, input_files, worker_files


def export(scene: Scene) -> Files:
    """The scripts, with the files that the worker reads."""
    check_worker("torchrun", scene)
    return {**input_files(scene), **worker_files(scene)}
