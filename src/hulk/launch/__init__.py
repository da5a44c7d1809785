"""Launching a plan: exported, started on every machine, followed in one view, ended without a trace.

Reading order:

    facts      what a machine says of itself, asked before the start
    agent      the program that `hulk launch` starts on every machine: it checks, starts, and ends with its line
    sites      where agents run: on this computer, or over ssh
    ray, keeper    where they run on the nodes of a Ray cluster
    station    the line to one agent
    needs, checks    what a plan needs of each machine, and what of it is missing
    checkpoints    their folder made ready, before the start
    follow     a machine's output dealt out to its ranks
    main       the main path: from exported files to the last step
    batch, slurm    the same where a scheduler starts the workers

Works without torch on the computer that launches.
"""

from __future__ import annotations
