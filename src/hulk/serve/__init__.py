"""The page, live: what the command line answers, over HTTP on this machine (docs/page.md).

Reading order: limits (what is allowed), messages (what requests and answers hold), scenes (requests become values),
work (what worker processes do), pool (who does it), tasks (what takes longer than a moment), history (plans that are
kept), routes (the paths), guard (who may ask), app (the whole).
"""
