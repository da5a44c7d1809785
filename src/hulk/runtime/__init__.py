"""Running a plan: one ordinary torch.distributed process a GPU, started by `hulk run` or by any cluster manager.

Reading order:

    seats        which rank is which GPU, stage and slice
    settings, options    what a run is asked to do, and how the command line says it
    runnable     what cannot be run, said before anything starts
    models/      a model as layers that a stage can hold, made of transformers' own modules
    weights      weights that are the same whatever the cut
    again        what backward computes again
    slices, sequence    how tensor parallel divides a stage's parameters, and its activations
    shards, sharded    who splits parameters with whom, and torch's FSDP that does it
    data         batches that are the same whatever the plan
    timetable    the plan's schedule as actions
    stage        a stage for torch.distributed.pipelining
    messages     what is under way between ranks, held until it is done
    warmup       connections brought up to speed before the first step
    emulated     a stage that waits instead of computing
    entries, buckets, exchange, sync    gradients added up among the holders of each parameter
    checkpoint, state    what can be gone on from, by another plan too
    work, real, waiting    what one rank does in a step: computing, or waiting
    train        the steps of one rank
    report, meeting    a worker's words and signs of life; where all ranks meet
    worker       the program of one rank
    hosts, launch, watch, progress, run    starting workers, watching them, and telling people
    measure, validate    emulated runs of plans that others have made, measured beside predicted

The command line works without torch: `run` and what it needs do not import it, and `runnable` says when it is missing.
"""

from __future__ import annotations
