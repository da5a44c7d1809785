"""Launching a plan: exported, started on every machine, followed in one view, ended without a trace.

Reading order:

    facts      what a machine says of itself, asked before the start
    agent      the program that `hulk launch` starts on every machine: it checks, starts, and ends with its line
    sites      where agents run: on this computer, or over ssh
    station    the line to one agent
    needs, checks    what a plan needs of each machine, and what of it is missing
    follow     a machine's output dealt out to its ranks
    main       the main path: from exported files to the last step
    batch, slurm, ray    the same where a scheduler starts the workers

Works without torch on the computer that launches.
"""

from __future__ import annotations
