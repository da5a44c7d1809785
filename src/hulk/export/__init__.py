"""Launch files for the tools that people have: a plan, a cluster and a job in, files out.

A target is one file of this package with a function `export`, and its line here.
"""

from dataclasses import replace

from hulk.cost.engine import MEGATRON, MEGATRON_DEEPSPEED, TORCHTITAN
from hulk.export import (
    accelerate,
    automodel,
    deepspeed,
    jobset,
    megatron,
    ray,
    skypilot,
    slurm,
    torchrun,
    torchtitan,
    wireguard,
)
from hulk.export.files import File, Files
from hulk.export.forms import experts_follow, machines_alike, machines_follow, parts_split
from hulk.export.registry import Registry, Target
from hulk.export.scene import Scene
from hulk.search.form import Form

__all__ = ["TARGETS", "File", "Files", "Registry", "Scene", "Target"]

TARGETS = Registry()
"""All targets by name."""
# Ranks are numbered stage by stage; an uneven cut is the same for all pipelines.
_ALIKE = Form(uneven=True, takes=experts_follow)
_SHARDED = Form(uneven=True, takes=parts_split)
_IN_ORDER = Form(uneven=True, fits=machines_follow)
_PLAIN = Form(stages=1, tensor=1, fits=machines_alike)
_MEGATRON = replace(MEGATRON, offers=megatron.OFFERS)
_TITAN = replace(TORCHTITAN, offers=torchtitan.OFFERS)
_AUTOMODEL = replace(TORCHTITAN, offers=automodel.OFFERS)
_DEEPSPEED = replace(MEGATRON_DEEPSPEED, offers={**MEGATRON_DEEPSPEED.offers, **deepspeed.OFFERS})
_FSDP = replace(TORCHTITAN, offers=accelerate.OFFERS)
for _target in (
    Target("torchrun", "a script for each machine, and one with ssh for all", torchrun.export),
    Target("slurm", "a heterogeneous job of Slurm", slurm.export),
    Target("jobset", "a JobSet of Kubernetes", jobset.export),
    Target("skypilot", "a job group of SkyPilot", skypilot.export),
    Target("ray", "a program that starts workers on a Ray cluster", ray.export),
    Target("megatron", "arguments of Megatron-LM with the pipeline's layout", megatron.export, _MEGATRON, _ALIKE),
    Target("torchtitan", "a config module of torchtitan", torchtitan.export, _TITAN, _SHARDED),
    Target("automodel", "a recipe of NeMo Automodel", automodel.export, _AUTOMODEL, _SHARDED),
    Target("deepspeed", "hostfile, config and partition of DeepSpeed", deepspeed.export, _DEEPSPEED, _IN_ORDER),
    Target("accelerate", "configs of accelerate with FSDP", accelerate.export, _FSDP, _PLAIN),
    Target("wireguard", "an encrypted mesh of the pairs that the plan uses", wireguard.export, starts=False),
):
    TARGETS.add(_target)
