"""Launch files for the tools that people have: a plan, a cluster and a job in, files out.

A target is one file of this package with a function `export`, and its line here.
"""

from hulk.export import slurm, torchrun
from hulk.export.files import File, Files
from hulk.export.registry import Limits, Registry, Target
from hulk.export.scene import Scene

__all__ = ["TARGETS", "File", "Files", "Limits", "Registry", "Scene", "Target"]

TARGETS = Registry()
"""All targets by name."""
TARGETS.add(Target("torchrun", "a script for each machine, and one with ssh for all", torchrun.export))
TARGETS.add(Target("slurm", "a heterogeneous job of Slurm", slurm.export))
