"""`hulk explain`: a plan in words, with what would help most."""

from __future__ import annotations

import typer

from hulk.cli.price import ClusterOption, EngineOption, JobsOption, JsonOption, PlanArgument
from hulk.cli.profile import ProfileOption
from hulk.cli.settings import SetOption, set_json


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
    from hulk.view.explanation import explanation_json
    from hulk.view.words import plan_words
    from hulk.whatif import suggest

    runner = engine_named(engine)
    inputs = load_inputs(plan, cluster, jobs, settings, quiet=as_json, profiles=profile)
    announce_compilation(search=True)
    price = price_plan(inputs.plan, inputs.cluster, inputs.jobs, compute=inputs.compute, engine=runner)
    gpus = load_gpus().values()
    whatifs = suggest(inputs.plan, inputs.cluster, inputs.jobs, compute=inputs.compute, gpus=gpus, engine=runner)
    if as_json:
        from hulk.cli.screen import print_json

        print_json(explanation_json(inputs.plan, inputs.cluster, price, whatifs) | set_json(settings))
    else:
        from hulk.cli.answer import render_plan
        from hulk.cli.screen import console

        render_plan(plan_words(inputs.plan, price, inputs.cluster, inputs.jobs, whatifs), console())
    if not price.feasible:
        raise typer.Exit(code=3)
