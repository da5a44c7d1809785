"""`hulk explain`: a plan in words, with what would help most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from hulk.cli.price import ClusterOption, EngineOption, JobsOption, JsonOption, PlanArgument
from hulk.cli.profile import ProfileOption
from hulk.cli.settings import SetOption, set_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hulk.cli.inputs import Inputs
    from hulk.cost.report import PlanPrice
    from hulk.whatif import WhatIf


def explain(
    plan: PlanArgument,
    cluster: ClusterOption,
    jobs: JobsOption,
    engine: EngineOption = "hulk",
    profile: ProfileOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say who trains what where, how each model is cut, what that takes, what holds it back and what would help most.

    Exit code 3 when a job of the plan cannot run.
    """
    from hulk.cli.inputs import announce_compilation, load_inputs
    from hulk.cost.engine import engine_named
    from hulk.cost.price import price_plan
    from hulk.io.gpus import load_gpus
    from hulk.whatif import suggest

    runner = engine_named(engine)
    inputs = load_inputs(plan, cluster, jobs, settings, quiet=as_json, profiles=profile)
    announce_compilation(search=True)
    price = price_plan(inputs.plan, inputs.cluster, inputs.jobs, compute=inputs.compute, engine=runner)
    gpus = load_gpus().values()
    whatifs = suggest(inputs.plan, inputs.cluster, inputs.jobs, compute=inputs.compute, gpus=gpus, engine=runner)
    if as_json:
        from hulk.cli.screen import print_json

        print_json(to_json(inputs, price, whatifs) | set_json(settings))
    else:
        from hulk.cli.answer import render_plan
        from hulk.cli.screen import console

        render_plan(inputs.plan, price, inputs.cluster, inputs.jobs, whatifs, console())
    if not price.feasible:
        raise typer.Exit(code=3)


def to_json(inputs: Inputs, price: PlanPrice, whatifs: Sequence[WhatIf]) -> dict[str, object]:
    """The price for programs, and for each job its group, its cut in words, and what would help it."""
    from hulk.cli.answer import groups, pipeline_lines
    from hulk.cli.price import to_json as price_json
    from hulk.cost.report import JobPrice

    document: dict[str, Any] = price_json(price) | {"hulk": "explanation/1"}
    for name, found in price.jobs.items():
        if isinstance(found, JobPrice):
            own = inputs.plan.jobs[name]
            stages = [stage for pipeline in found.pipelines for stage in pipeline]
            document["jobs"][name] |= {
                "group": groups(own, inputs.cluster),
                "cut": pipeline_lines(own, found),
                "headroom_bytes": min(stage.memory.headroom for stage in stages),
                "what_if": [
                    {"text": w.text, "before_s": w.before_s, "after_s": w.after_s, "gain": w.gain}
                    for w in whatifs
                    if w.job == name
                ],
            }
    return document
