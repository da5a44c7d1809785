"""The checker of promises: from a case as it was drawn and from what `hulk plan` answered, every promise that is not
kept, in words. It takes nothing from Hulk but the seconds of a step and the dollars of egress, as `hulk price` says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import inf

from promises_case import Case, Job, Machine
from promises_models import state_bytes
from promises_plan import Document, chunks_of, form_of, hourly, parts_of, parts_of_stage, stages_of

TOLERANCE = 1e-6
HEADROOM = 0.03
"""The share of a GPU's memory that stays free where nobody says otherwise."""
# A word of each of these says which limit is meant.
_LIMIT_WORDS = ("deadline", "$", "tokens/s", "throughput", "pin", "cost")


@dataclass(frozen=True)
class Seen:
    """What a run of the command line left: `code` is None where a signal or the clock ended it."""

    code: int | None
    how: str
    stdout: str
    stderr: str
    seconds: float
    files: Mapping[str, str]


@dataclass(frozen=True)
class Fault:
    """A promise that was not kept."""

    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


@dataclass(frozen=True)
class Limits:
    """The limits of a case against a plan's price, by kind: all, those broken for certain with how, and whether any is
    too close to call."""

    asked: frozenset[str]
    broken: Mapping[str, str]
    close: bool


def check(case: Case, seen: Seen, priced: Seen | None) -> Iterator[Fault]:
    """Every broken promise. `priced` is what `hulk price --json` said of the plan afterwards, where there was one."""
    if seen.code is None or seen.code not in (0, 2, 3) or "Traceback" in seen.stderr or "Fatal" in seen.stderr:
        last = (seen.stderr.strip().splitlines() or [""])[-1]
        yield Fault("ends well", f"{seen.how}: {last[:200]}")
        return
    yield from _folder(case, seen)
    if case.refuse and seen.code != 2:
        yield Fault("refuses contradictions", f"{case.refuse}: exit code {seen.code}")
        return
    if seen.code == 2:
        if not case.refuse and not case.may_refuse:
            yield Fault("refuses nothing else", seen.stderr.strip()[:300])
        if not seen.stderr.strip():
            yield Fault("says why", "exit code 2 without a word")
        return
    yield from _answer(case, seen, priced)


def plan_of(case: Case, seen: Seen) -> Document | None:
    """The plan that was printed or written; None where it was shown in words alone."""
    if seen.code not in (0, 3):
        return None
    if case.options.json:
        found = json.loads(seen.stdout)["plan"]
        assert isinstance(found, dict)
        return found
    out = case.options.out
    if out is not None and seen.files.get(out) not in (None, case.files.get(out)):
        written = json.loads(seen.files[out])
        assert isinstance(written, dict)
        return written
    return None


def _folder(case: Case, seen: Seen) -> Iterator[Fault]:
    """Nothing but the plan is left behind, and no input is changed."""
    out = case.options.out
    for name in seen.files.keys() - case.files.keys() - {out}:
        yield Fault("leaves nothing behind", name)
    for name, text in case.files.items():
        if name != out and seen.files.get(name) != text:
            yield Fault("leaves files alone", name)
    if seen.code == 2 and out is not None and seen.files.get(out) != case.files.get(out):
        yield Fault("writes no refused plan", out)


def _answer(case: Case, seen: Seen, priced: Seen | None) -> Iterator[Fault]:
    try:
        plan = plan_of(case, seen)
    except ValueError as error:
        yield Fault("answers in JSON", str(error))
        return
    if plan is None:
        yield from _words(case, seen)
        return
    placed = list(_placement(case, plan, complete=seen.code == 0))
    yield from placed
    if any(fault.promise in ("every job is answered", "machines exist") for fault in placed):
        return
    if priced is None or priced.code != 0:
        yield Fault("is priced", "not at all" if priced is None else f"{priced.how}: {priced.stderr.strip()[-200:]}")
        return
    price = json.loads(priced.stdout)["jobs"]
    yield from _prices(case, plan, price)
    limits = limits_of(case, plan, price)
    if seen.code == 0:
        yield from (Fault(f"keeps {kind}", text) for kind, text in limits.broken.items())
    if case.options.json:
        yield from _told(case, seen, limits, price)
        return
    if limits.broken:
        yield Fault("writes kept plans only", "; ".join(limits.broken.values()))
    if seen.code == 3 and not plan["waiting"]:
        yield Fault("says why", "exit code 3, and a plan was written in which every job runs")


def _words(case: Case, seen: Seen) -> Iterator[Fault]:
    """A plan that was only shown."""
    text = seen.stdout + seen.stderr
    for job in case.jobs:
        if job.name not in seen.stdout:
            yield Fault("every job is answered", f"{job.name} is not on the screen")
    if seen.code == 0 and case.options.out is not None:
        yield Fault("writes the plan", "exit code 0, but nothing was written")
    limit = case.limited or case.options.pins
    told = "wait" in text or (limit and any(word in text.lower() for word in _LIMIT_WORDS))
    if seen.code == 3 and not told:
        yield Fault("says why", "exit code 3 without a word of a limit or a job that waits")


def _told(case: Case, seen: Seen, limits: Limits, price: Document) -> Iterator[Fault]:
    """What the JSON says of prices and limits is what they are, and the plan is written where all are kept."""
    document = json.loads(seen.stdout)
    yield from _same_price(document["price"]["jobs"], price)
    if "broken" not in document:
        yield Fault("says what is broken", "no list 'broken' in the JSON")
        return
    broken, waiting = document["broken"], document["plan"]["waiting"]
    # Whether a job that waits breaks its deadline and its pins, or waiting says it all, is left open.
    bound = {job.name for job in case.jobs if job.deadline is not None} | {name for name, _ in case.options.pins}
    unclear = limits.close or bound & waiting.keys()
    if any(not str(sentence).strip() for sentence in broken):
        yield Fault("says why", "an empty sentence in 'broken'")
    if limits.broken and not broken:
        yield Fault("says what is broken", f"nothing, but {'; '.join(limits.broken.values())}")
    if broken and not limits.broken and not unclear:
        yield Fault("breaks what it says", f"every limit is kept, but: {'; '.join(broken)}")
    if seen.code == 0 and broken:
        yield Fault("keeps what it says", f"exit code 0, but: {'; '.join(broken)}")
    if seen.code == 3 and not broken and not waiting:
        yield Fault("says why", "exit code 3, no job waits and no limit is broken")
    out = case.options.out
    if out is None:
        return
    written = seen.files.get(out) != case.files.get(out)
    if written == bool(broken):
        yield Fault("writes kept plans only", f"broken: {broken}, written: {written}")
    elif written and json.loads(seen.files[out]) != document["plan"]:
        yield Fault("writes what it prints", "the plan in the file is another one")


def _placement(case: Case, plan: Document, *, complete: bool) -> Iterator[Fault]:
    """Who is where, whatever the limits say. `complete`: no job may wait."""
    jobs, machines = {job.name: job for job in case.jobs}, {machine.name: machine for machine in case.machines}
    running, waiting = plan["jobs"], plan["waiting"]
    if sorted([*running, *waiting]) != sorted(jobs):
        yield Fault("every job is answered", f"{[*running, *waiting]} of {sorted(jobs)}")
        return
    if complete and waiting:
        yield Fault("no job waits", ", ".join(waiting))
    if any(not str(reason).strip() for reason in waiting.values()):
        yield Fault("says why", "a job waits without a reason")
    users: dict[str, set[str]] = {}
    for name, own in running.items():
        for part in parts_of(own):
            users.setdefault(part["machine"], set()).add(name)
    if users.keys() - machines.keys():
        yield Fault("machines exist", ", ".join(users.keys() - machines.keys()))
        return
    yield from _gpus_once(plan, machines)
    for name, own in running.items():
        yield from _job(jobs[name], own, machines, case)
        if case.options.uniform and len({form_of(pipeline) for pipeline in own["pipelines"]}) > 1:
            yield Fault("uniform pipelines are alike", name)
    yield from _kept_for(case, users)
    unused = sorted(machines.keys() - users.keys())
    if sorted(plan["idle"]) != unused:
        yield Fault("idle is what is unused", f"{plan['idle']} instead of {unused}")


def _gpus_once(plan: Document, machines: Mapping[str, Machine]) -> Iterator[Fault]:
    """Every GPU exists, and serves one stage, or one of each round of a pipeline with several chunks."""
    used: set[tuple[str, int]] = set()
    for own in plan["jobs"].values():
        for pipeline in own["pipelines"]:
            groups = [
                [(part["machine"], part["gpus"]) for part in parts_of_stage(stage)] for stage in pipeline["stages"]
            ]
            if groups != groups[: len(groups) // chunks_of(own)] * chunks_of(own):
                yield Fault("chunks go round the same GPUs", str(groups))
        for part in parts_of(own, lead=True):
            name = part["machine"]
            for gpu in part["gpus"]:
                if not 0 <= gpu < machines[name].gpus:
                    yield Fault("GPUs exist", f"GPU {gpu} of {name}")
                if (name, gpu) in used:
                    yield Fault("a GPU serves once", f"GPU {gpu} of {name}")
                used.add((name, gpu))


def _kept_for(case: Case, users: Mapping[str, set[str]]) -> Iterator[Fault]:
    """Pinned machines serve no other job, avoided ones others at most."""
    for job, machine in case.options.pins:
        others = users.get(machine, set()) - {job}
        if others:
            yield Fault("pins hold", f"{machine} is pinned to {job}, but {sorted(others)} use it")
    for job, machine in case.options.avoids:
        if job in users.get(machine, ()):
            yield Fault("avoided machines stay unused", f"{job} on {machine}")


def _job(job: Job, own: Document, machines: Mapping[str, Machine], case: Case) -> Iterator[Fault]:
    """One job's pipelines."""
    pieces = job.shape.pieces
    for pipeline in own["pipelines"]:
        layers = [layer for stage in pipeline["stages"] for layer in range(stage["layers"][0], stage["layers"][1] + 1)]
        if layers != list(range(len(pieces))):
            yield Fault("every layer once and in order", f"{job.name}: {layers} of {len(pieces)}")
            return
        if pipeline["microbatches"] < 1:
            yield Fault("batches add up", f"{job.name}: a pipeline without microbatches")
    total = own["microbatch_size"] * sum(pipeline["microbatches"] for pipeline in own["pipelines"])
    if total != job.global_batch:
        yield Fault("batches add up", f"{job.name}: {total} of {job.global_batch} sequences")
    split, engine = own["sharding"], case.options.engine
    # Who shares a sequence may split what replicas split.
    shards = len(own["pipelines"]) * own.get("context", 1) if split != "none" else 1
    host = own.get("host_state", False)
    each = state_bytes(job.precision, job.optimizer, shards, split=split, by_host=host, engine=engine)
    for stage in stages_of(own):
        machine, others = machines[stage["machine"]], stage.get("beside", ())
        ranks = len(stage["gpus"]) + sum(len(part["gpus"]) for part in others)
        if any(machines[part["machine"]].region != machine.region for part in others):
            yield Fault("machines of a stage are near", f"{job.name}: {[part['machine'] for part in others]}")
        held = pieces[stage["layers"][0] : stage["layers"][1] + 1]
        if not job.may_run_in(machine.region):
            yield Fault("allow and deny hold", f"{job.name} in {machine.region}")
        yield from _misplaced(job, stage, machine.region)
        if any(piece.heads % (ranks // own.get("context", 1)) for piece in held):
            yield Fault("tensor parallel divides the heads", f"{job.name}: {ranks} GPUs of {machine.name}")
        params = sum(piece.params for piece in held)
        if stage["layers"][0] == 0:
            params -= sum(piece.tied for piece in held)
        need = params / (ranks * own.get("expert", 1)) * each
        if need > machine.memory:
            yield Fault("fits into memory", f"{job.name} on {machine.name}: {need:.4g} of {machine.memory:.4g} bytes")
    for a, b in _talking(job, own):
        if case.network.blocked(machines[a], machines[b]):
            yield Fault("nothing over a blocked link", f"{job.name}: {a} and {b}")


def _misplaced(job: Job, stage: Document, region: str) -> Iterator[Fault]:
    """Layers of a stage that a rule keeps from its region."""
    for layer in range(stage["layers"][0], stage["layers"][1] + 1):
        if not all(rule.permits(layer, region) for rule in job.place):
            yield Fault("layers are where they may be", f"{job.name}: layer {layer} in {region}")


def _talking(job: Job, own: Document) -> set[tuple[str, str]]:
    """Machines that must exchange data: neighbours, holders of tied weights, and replicas of a layer."""
    pairs: set[tuple[str, str]] = set()
    holders: list[set[str]] = [set() for _ in job.shape.pieces]
    for pipeline in own["pipelines"]:
        stages = pipeline["stages"]
        pairs |= {(a["machine"], b["machine"]) for a, b in pairwise(stages)}
        pairs |= {(stage["machine"], part["machine"]) for stage in stages for part in stage.get("beside", ())}
        for stage in stages:
            for layer in range(stage["layers"][0], stage["layers"][1] + 1):
                holders[layer].add(stage["machine"])
                if job.shape.pieces[layer].tied:
                    pairs.add((stages[0]["machine"], stage["machine"]))
    return pairs | {(a, b) for names in holders for a, b in combinations(sorted(names), 2)}


def _prices(case: Case, plan: Document, price: Document) -> Iterator[Fault]:
    """The price knows the same machines: their dollars, their memory, and what fits."""
    machines = {machine.name: machine for machine in case.machines}
    for job in case.jobs:
        if job.name not in plan["jobs"]:
            continue
        own = price[job.name]
        if not own["feasible"]:
            yield Fault("fits into memory", f"{job.name}: {own['reason']}")
            continue
        dollars = hourly(plan["jobs"][job.name], machines) * own["step_s"] / 3600
        if not close(dollars, own["money_per_step"]["gpus"]):
            yield Fault("money is GPU hours", f"{job.name}: {own['money_per_step']['gpus']} instead of {dollars}")
        if not close(own["tokens_per_s"], job.tokens_per_step / own["step_s"]):
            yield Fault("throughput is tokens over seconds", f"{job.name}: {own['tokens_per_s']}")
        for stages in own["pipelines"]:
            for stage in stages:
                if not close(stage["memory"]["capacity"], machines[stage["machine"]].memory):
                    yield Fault("fits into memory", f"{stage['machine']} has {stage['memory']['capacity']:.4g} bytes")
                asked = case.options.headroom
                most = stage["memory"]["capacity"] * (1 - (HEADROOM if asked is None else asked))
                if stage["memory_used"] > most * (1 + TOLERANCE):
                    yield Fault("headroom is left", f"{job.name} on {stage['machine']}: {stage['memory_used']:.4g}")


def _same_price(printed: Document, afterwards: Document) -> Iterator[Fault]:
    """What the plan was said to take is what its file takes."""
    for name, own in afterwards.items():
        said = printed.get(name, {"feasible": None})
        if said["feasible"] != own["feasible"]:
            yield Fault("prices agree", f"{name}: {said['feasible']}, then {own['feasible']}")
        elif own["feasible"] and not close(said["step_s"], own["step_s"]):
            yield Fault("prices agree", f"{name}: {said['step_s']} s a step, then {own['step_s']}")


def limits_of(case: Case, plan: Document, price: Document) -> Limits:
    """Money, throughput, deadlines and pins of a priced plan against what the case asks for. A job that waits adds
    neither tokens nor dollars; its own deadline and pins are not judged."""
    machines = {machine.name: machine for machine in case.machines}
    dollars = tokens = 0.0
    found: list[tuple[str, float, str]] = []  # what, how far beyond the limit as a ratio to it, in words
    for job in case.jobs:
        own = price.get(job.name)
        if own is None or not own["feasible"]:
            continue
        seconds = own["step_s"]
        tokens += job.tokens_per_step / seconds
        dollars += hourly(plan["jobs"][job.name], machines) + own["money_per_step"]["egress"] / seconds * 3600
        if job.deadline is not None and job.tokens is not None:
            finish = job.tokens / job.tokens_per_step * seconds
            found.append(
                ("deadline", finish / job.deadline, f"{job.name} ends after {finish:.6g} s, not {job.deadline:.6g} s")
            )
    most, least = case.options.max_cost, case.options.min_throughput
    if most is not None:
        ratio = dollars / most if most else inf if dollars else 0.0
        found.append(("max-cost", ratio, f"{dollars:.6g} $/h, not {most:.6g} $/h"))
    if least:
        found.append(
            ("min-throughput", least / max(tokens, 1e-300), f"{tokens:.6g} tokens/s, not {least:.6g} tokens/s")
        )
    for name, machine in case.options.pins:
        if name in plan["jobs"]:
            unused = all(part["machine"] != machine for part in parts_of(plan["jobs"][name]))
            found.append(("pin", inf if unused else 0.0, f"{name} does not use {machine}, which is pinned to it"))
    broken = {kind: text for kind, ratio, text in found if ratio > 1 + TOLERANCE}
    near = any(abs(ratio - 1) <= TOLERANCE for _, ratio, _ in found)
    return Limits(frozenset(kind for kind, _, _ in found), broken, near)


def objective(case: Case, plan: Document, price: Document) -> tuple[float, float]:
    """What `hulk plan` makes small where nothing limits it: weight that waits, then weighted seconds to the end."""
    waiting = sum(job.weight for job in case.jobs if job.name in plan["waiting"])
    total = 0.0
    for job in case.jobs:
        if job.name in plan["jobs"]:
            steps = 1.0 if job.tokens is None else job.tokens / job.tokens_per_step
            total += job.weight * steps * price[job.name]["step_s"]
    return waiting, total


def close(a: float, b: float) -> bool:
    """Equal but for rounding."""
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) + 1e-12
