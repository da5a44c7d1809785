"""What worker processes do: every question of the page that takes thought, as functions of plain messages.

Quick ones (`QUICK`) are answered by processes that stay; long ones (`LONG`) by a process of their own each, which tells
how far it is and can be ended at any moment. What they return is JSON, so that a server only passes it on.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hulk.contestant import PLANNED, compared, paper_systems
from hulk.cost.engine import HULK
from hulk.cost.report import JobPrice, PlanPrice
from hulk.domain.check import check_plan
from hulk.domain.cluster import Cluster
from hulk.domain.job import Job
from hulk.errors import InputError
from hulk.io.gpus import load_gpus
from hulk.io.plan_file import dump_plan
from hulk.io.profiles import bundled_compute
from hulk.planner import load_compiled, plan_in_parallel, plan_jobs
from hulk.propose import bundled_network
from hulk.replan import Change as Happened
from hulk.replan import replan
from hulk.replan.byhand import Bench, ByHand, Orders, Steps, change_by_hand, steps_of
from hulk.search.baselines import BASELINES
from hulk.search.budget import Effort
from hulk.search.objective import Score
from hulk.search.request import Request
from hulk.search.wishes import broken_promises, objective_of, read_wishes
from hulk.serve.exported import export_zip
from hulk.serve.limits import Limits
from hulk.serve.messages import Change, CompareRequest, Inputs, PlanRequest, Recipe, ReplanRequest
from hulk.serve.scenes import Changed, changed, cluster_of, jobs_of, read_recipe, shown_of, strangers
from hulk.simulate import to_trace
from hulk.units import Dimension, format_time, parse
from hulk.view.build import Extras, Shown, cluster_view, document_of, job_view, owners, plain_json
from hulk.view.compare import beside_plan
from hulk.view.explanation import explanation_json
from hulk.view.price import price_json
from hulk.view.replanned import replan_view
from hulk.view.timeline import timeline_view
from hulk.view.words import idle_words
from hulk.whatif import suggest

_WIDELY = 3.0  # seconds for planning again from which jobs that lost nothing are planned anew too

Say = Callable[[float, str], None]
"""Told with seconds since the start and the best so far in words."""
JsonObject = dict[str, Any]


# ---- Quick questions ------------------------------------------------------------------------------------------------


def check(inputs: Inputs, limits: Limits) -> JsonObject:
    """A cluster, and jobs if they are given, as the page shows them."""
    recipe = Recipe(cluster=inputs.cluster, jobs=inputs.jobs or inputs.cluster)
    jobs = [] if inputs.jobs is None else [job_view(job) for job in jobs_of(inputs.jobs)]
    return {"cluster": cluster_view(cluster_of(recipe, limits)), "jobs": jobs}


def price(recipe: Recipe, plan: JsonObject, limits: Limits) -> JsonObject:
    """The price of a plan, as `hulk price --json` has it."""
    answer: JsonObject = plain_json(price_json(shown_of(recipe, plan, limits).price()))
    return answer


def load(recipe: Recipe, plan: JsonObject, limits: Limits) -> JsonObject:
    """A plan that somebody brings along."""
    shown = shown_of(recipe, plan, limits)
    return saved(recipe, shown, shown.price(), "loaded")


def what_if(recipe: Recipe, plan: JsonObject, changes: tuple[Change, ...], limits: Limits) -> JsonObject:
    """What a plan takes after these changes, all else as it is."""
    shown, found, _ = _by_hand(recipe, plan, changes, limits)
    jobs = {
        job.name: {
            "before": found.before[job.name],
            "after": found.after[job.name],
            "how": found.how.get(job.name, ""),
            "reason": found.reasons.get(job.name, ""),
        }
        for job in shown.jobs
    }
    names = [job.name for job in shown.jobs]
    owner = dict(zip((m.name for m in found.cluster.machines), owners(found.plan, found.cluster, names), strict=True))
    return {
        "jobs": jobs,
        "lines": list(_lines(found)) or ["nothing changes"],
        "owner": [owner.get(machine.name, -1) for machine in shown.cluster.machines],
        "idle": idle_words(found.plan, found.cluster),
        "changed": found.plan != shown.plan or found.before != found.after,
    }


def keep(recipe: Recipe, plan: JsonObject, changes: tuple[Change, ...], limits: Limits) -> JsonObject:
    """The same, as a plan of its own."""
    shown, found, changed_to = _by_hand(recipe, plan, changes, limits)
    check_plan(found.plan, found.cluster, shown.jobs)  # a plan over a blocked link would be refused ever after
    after = replace(shown, plan=found.plan, cluster=found.cluster)
    return saved(changed_to.recipe, after, after.price(), "by hand: " + "; ".join(map(_said, changes)))


def export(recipe: Recipe, plan: JsonObject, to: str, limits: Limits) -> bytes:
    """The launch files of a plan for a target of `hulk export`, zipped."""
    return export_zip(recipe, shown_of(recipe, plan, limits), to)


def _by_hand(
    recipe: Recipe, plan: JsonObject, changes: tuple[Change, ...], limits: Limits
) -> tuple[Shown, ByHand, Changed]:
    if any(change.kind == "join" for change in changes):
        raise InputError("a machine that joins needs a new plan", hint="plan again")
    shown = shown_of(recipe, plan, limits)
    changed_to = changed(recipe, changes, shown.cluster)
    slower = changed_to.recipe.settings != recipe.settings
    known = _steps(recipe, json.dumps(plan, sort_keys=True), limits)
    orders = Orders(changed_to.lost, changed_to.moves)
    # With the room that planning leaves, so that it says what planning again would; where that is too much, without.
    for roomy in (True, False):
        bench = _bench(changed_to.recipe.model_copy(update={"lost": recipe.lost}), roomy, limits)
        found = change_by_hand(shown.plan, bench, orders, shown.cluster if slower else None, known)
        if all(found.after[name] is not None for name, step in found.before.items() if step is not None):
            break
    return shown, found, changed_to


@lru_cache(maxsize=4)
def _bench(recipe: Recipe, roomy: bool, limits: Limits) -> Bench:
    """What changes by hand need: the same for all that are tried on a cluster. `roomy`: GPUs are not filled to the
    brim."""
    cluster, jobs = read_recipe(recipe, limits)
    return Bench(Request(cluster, jobs, bundled_compute(), PLANNED if roomy else HULK))


@lru_cache(maxsize=64)
def _steps(recipe: Recipe, plan: str, limits: Limits) -> Steps:
    """What a plan takes as it is: asked for with every what-if."""
    shown = shown_of(recipe, json.loads(plan), limits)
    return steps_of(shown.plan, Request(shown.cluster, shown.jobs, shown.compute, HULK), shown.cluster)


def _lines(found: ByHand) -> list[str]:
    lines = []
    for name, before in found.before.items():
        after = found.after[name]
        how = f" ({found.how[name]})" if found.how.get(name) else ""
        if after is None and (before is not None or name in found.reasons):
            lines.append(f"{name}: cannot run: {found.reasons.get(name, 'no reason is known')}")
        elif after is not None and (before is None or after != before or how):
            was = "it waited" if before is None else f"{format_time(before)} a step"
            more = "" if not before or after == before else f", {after / before - 1:+.1%}"
            lines.append(f"{name}: {format_time(after)} a step, before {was}{more}{how}")
    return lines


def _said(change: Change) -> str:
    """A change in words."""
    if change.kind == "lose":
        return f"{change.machine} lost"
    if change.kind == "move":
        return f"{change.machine} to {change.job or 'nobody'}"
    if change.kind == "join":
        return "machines join"
    what = change.setting if change.setting is not None else f"bandwidth × {change.factor:g}"
    return f"link {change.a}–{change.b}: {what}"


# ---- Long ones ------------------------------------------------------------------------------------------------------


def make_plan(request: PlanRequest, limits: Limits, say: Say) -> JsonObject:
    """The best plan that a search finds, as `hulk plan` does."""
    options = request.options
    recipe = Recipe(cluster=request.cluster, jobs=request.jobs)
    cluster, jobs = read_recipe(recipe, limits)
    wishes = read_wishes(options.pin, options.avoid, jobs, cluster)
    objective = objective_of(options.max_cost, None, cheapest=options.cheapest)
    wanted = Request(
        cluster, jobs, bundled_compute(), PLANNED, objective=objective, keep_from=wishes.avoid, pins=wishes.pins
    )
    effort = Effort(min(options.seconds, limits.seconds), options.evaluations, options.seed, workers=1)

    def told(seconds: float, score: Score) -> None:
        say(seconds, f"best so far: {objective.describe(score)}")

    found = plan_in_parallel(wanted, effort, network=bundled_network(), progress=told)
    notes = [f"not kept: {words}" for words in broken_promises(found.plan, found.price, jobs, objective, wishes)]
    if found.hurried:
        notes.append("The time limit ended the search before all its tries were made: a longer one may find more.")
    shown = Shown(found.plan, cluster, jobs, bundled_compute())
    return saved(recipe, shown, found.price, "planned", Extras(notes=notes))


def plan_again(recipe: Recipe, plan: JsonObject, request: ReplanRequest, limits: Limits, say: Say) -> JsonObject:
    """The best way to go on after changes, as `hulk replan` finds it."""
    horizon = parse(request.horizon, Dimension.TIME)
    if horizon <= 0:
        raise InputError("the horizon must be more than nothing", hint='write it like "24 h"')
    if any(change.kind == "move" for change in request.changes):
        raise InputError("planning again deals the machines out itself", hint="pin a machine to a job and plan anew")
    before = shown_of(recipe, plan, limits)
    changed_to = changed(recipe, request.changes, before.cluster)
    say(0.0, "looking for ways to go on")
    whole = read_recipe(changed_to.recipe.model_copy(update={"lost": recipe.lost}), limits)[0]
    new = strangers(before.plan, whole)
    here = replace(whole, machines=tuple(machine for machine in whole.machines if machine.name not in new))
    happened = Happened(
        changed_to.lost,
        tuple(machine for machine in whole.machines if machine.name in new),
        None if changed_to.recipe.settings == recipe.settings else before.cluster,
    )
    asked = Request(here, before.jobs, before.compute, PLANNED)
    effort = Effort(min(request.seconds, limits.seconds), seed=request.seed, workers=1)
    # Where only links are different no job is to be mended: whoever gains by another plan is planned anew.
    widely = request.seconds >= _WIDELY or not (changed_to.lost or new)
    # What a job takes that others are not in the way of is the same before and after, as long as links are.
    here_before = replace(before, cluster=here)
    old, same = here_before.price(), here_before.alone()
    known = {(name, own): its.step for name, own in same if isinstance(its := old.jobs[name], JobPrice)}
    found = replan(
        before.plan, asked, happened, horizon=horizon, effort=effort, widely=widely, known=known,
        network=bundled_network() if widely else None,  # to load it takes a tenth of a second
    )  # fmt: skip
    shown = Shown(found.plan, found.cluster, before.jobs, before.compute)
    how = "planned again: " + "; ".join(map(_said, request.changes))
    price = shown.price_after(old, known)
    return saved(changed_to.recipe, shown, price, how, Extras(replan=replan_view(found, horizon)))


def timeline(recipe: Recipe, plan: JsonObject, limits: Limits, say: Say) -> JsonObject:
    """A step played event by event, as rows to draw."""
    say(0.0, "playing a step")
    shown = shown_of(recipe, plan, limits)
    return {"timeline": timeline_view(shown.simulation(), dict(shown.plan.jobs))}


def trace(recipe: Recipe, plan: JsonObject, limits: Limits, say: Say) -> bytes:
    """The same as a trace for Perfetto: JSON, compressed with gzip."""
    say(0.0, "playing a step")
    shown = shown_of(recipe, plan, limits)
    return gzip.compress(json.dumps(to_trace(shown.simulation())).encode(), compresslevel=3)


def explain(recipe: Recipe, plan: JsonObject, limits: Limits, say: Say) -> JsonObject:
    """The plan in words and what would help each job most, as `hulk explain --json` prints it."""
    say(0.0, "trying what would help")
    shown = shown_of(recipe, plan, limits)
    gpus = load_gpus().values()
    found = suggest(shown.plan, shown.cluster, shown.jobs, compute=shown.compute, gpus=gpus)
    return {"explanation": plain_json(explanation_json(shown.plan, shown.cluster, shown.price(), found))}


def compare(recipe: Recipe, request: CompareRequest, limits: Limits, say: Say) -> JsonObject:
    """Hulk beside the systems of the paper, or all baselines, as `hulk compare` sets them."""
    cluster, jobs = read_recipe(recipe, limits)
    entries = BASELINES.entries() if request.baselines == "all" else paper_systems()
    effort = Effort(min(20.0, limits.seconds / (len(entries) + 1)), workers=1)
    found = compared(
        cluster, jobs, entries, compute=bundled_compute(), network=bundled_network(), effort=effort,
        say=lambda name: say(0.0, f"{name} plans"),
    )  # fmt: skip
    return {"comparison": plain_json(beside_plan(found, jobs))}


def saved(
    recipe: Recipe,
    shown: Shown,
    its_price: PlanPrice,
    how: str,
    extras: Extras = Extras(),  # noqa: B008  frozen
) -> JsonObject:
    """A plan as the history keeps it."""
    document = document_of(shown, its_price, extras)
    steps = {
        job.name: found.step if isinstance(found := its_price.jobs.get(job.name), JobPrice) else None
        for job in shown.jobs
    }
    return {
        "recipe": recipe.model_dump(mode="json"),
        "plan": json.loads(dump_plan(shown.plan, cluster=shown.cluster)),
        "document": plain_json(document),
        "how": how,
        "title": document["title"],
        "cluster": shown.cluster.name,
        "steps": steps,
    }


QUICK: Mapping[str, Callable[..., Any]] = {
    "check": check, "price": price, "load": load, "whatif": what_if, "keep": keep, "export": export,
}  # fmt: skip
LONG: Mapping[str, Callable[..., Any]] = {
    "plan": make_plan, "replan": plan_again, "timeline": timeline, "trace": trace, "explain": explain,
    "compare": compare,
}  # fmt: skip


def warm_up(cluster: Cluster, jobs: tuple[Job, ...]) -> None:
    """Load the compiled code, so that whoever asks first need not wait for it: that of searches, and of what follows
    when a machine is lost, by doing it once."""
    request = Request(cluster, jobs, bundled_compute(), PLANNED)
    load_compiled()
    plan = plan_jobs(request, Effort(0.2, evaluations=100, workers=1)).plan
    lost = next(iter(plan.jobs[jobs[0].name].machines))
    change_by_hand(plan, Bench(request), Orders((lost,)))
    replan(plan, request, Happened((lost,)), horizon=1e5, effort=Effort(0.1, evaluations=100, workers=1), widely=False)
