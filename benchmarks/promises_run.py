"""Runs drawn cases through the command line: one warm process, and a fork of it for every run, so that a crash is
seen, a hang ends, and nothing leaks from one draw into the next."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from promises_case import Case
from promises_check import TOLERANCE, Fault, Seen, check, limits_of, objective, plan_of
from promises_draw import draw

MARGIN = 20.0  # seconds beyond the time limit until a run counts as hung
_WARM_CLUSTER = """
regions: {rome: {at: [41.9, 12.5], egress: 0.1 $/GB}, paris: {at: [48.9, 2.4]}}
machines: [{name: a, count: 2, region: rome, gpu: a100-40, gpus: 2}, {name: b, region: paris, gpu: t4, gpus: 1}]
"""
_WARM_JOBS = """
jobs: [{name: a, model: ./tiny.json, sequence: 64, global_batch: 4, tokens: 1B}]
"""
_WARM_MODEL = '{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 1000}'


@dataclass(frozen=True)
class Verdict:
    """One draw: how it ended, the promises it broke, and what it was about."""

    number: int
    case: Case
    seen: Seen
    faults: tuple[Fault, ...]
    tags: frozenset[str]


def warm_up() -> None:
    """Import and compile in this process what every draw needs, so that each fork starts with it."""
    import onnxruntime  # noqa: F401  a session would start threads, which no fork inherits; the import does not

    from hulk.search.exact import load_exact

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in (("c.yaml", _WARM_CLUSTER), ("j.yaml", _WARM_JOBS), ("tiny.json", _WARM_MODEL)):
            (folder / file).write_text(text)
        shared = ("c.yaml", "j.yaml", "--no-gnn", "--workers=1", "--evaluations=20")
        for more in ((), ("--max-cost", "9 $/h", "--json", "-o", "p.json"), ("--exact",)):
            _in_process(["plan", *shared, *more], folder)
        load_exact()  # that case does not need all of the solver
        _in_process(["price", "p.json", "-c", "c.yaml", "-j", "j.yaml", "--json"], folder)


def _in_process(arguments: Sequence[str], folder: Path) -> None:
    from hulk.cli import main

    before = Path.cwd()
    argv, sys.argv = sys.argv, ["hulk", *arguments]
    os.chdir(folder)
    try:
        with (
            Path(os.devnull).open("w") as nothing,
            contextlib.redirect_stdout(nothing),
            contextlib.suppress(SystemExit),
        ):
            main()
    finally:
        sys.argv = argv
        os.chdir(before)


def run_hulk(arguments: Sequence[str], folder: Path, limit: float) -> Seen:
    """`hulk` with these arguments in that folder, in a fork of this process, ended after `limit` seconds."""
    begin = time.monotonic()
    code, how, out, err = run_forked(arguments, folder, limit)
    return Seen(code, how, out, err, time.monotonic() - begin, _listing(folder))


def run_forked(arguments: Sequence[str], folder: Path, limit: float) -> tuple[int | None, str, str, str]:
    """The same: its exit code (None: it had none), how it ended in words, what it wrote to stdout and stderr."""
    with tempfile.TemporaryDirectory() as name:
        outputs = Path(name) / "out", Path(name) / "err"
        alive, held = os.pipe()  # ends when the fork and all it started are gone
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(alive)
            _become_hulk(arguments, folder, *outputs)
        os.close(held)
        ended = bool(select.select([alive], [], [], limit)[0])
        os.close(alive)
        left = not ended and os.waitpid(child, os.WNOHANG)[0] == child
        if not ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        code: int | None = None
        how = "left a process running" if left else f"still running after {limit:.0f} s"
        if ended:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            code = status if status >= 0 else None
            how = f"exit code {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"
        elif not left:
            os.waitpid(child, 0)
        texts = [path.read_text(encoding="utf-8", errors="replace") if path.exists() else "" for path in outputs]
    return code, how, texts[0], texts[1]


def _listing(folder: Path) -> dict[str, str]:
    """Everything in the folder and below with its text; a folder has none."""
    return {
        str(path.relative_to(folder)): "" if path.is_dir() else path.read_text(encoding="utf-8", errors="replace")
        for path in folder.rglob("*")
    }


def _become_hulk(arguments: Sequence[str], folder: Path, out: Path, err: Path) -> None:
    """In the fork: run the command line, and end without the cleaning up that is the first process's."""
    code = 70
    try:
        os.setsid()  # a process group of its own, so that what it starts can be ended with it
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        faulthandler.enable()  # a worker that crashes says so too
        os.chdir(folder)
        sys.argv = ["hulk", *arguments]
        from hulk.cli import main

        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run_draw(seed: int, number: int, keep: Path | None = None) -> Verdict:
    """Draw, run and check one case. With `keep`, the files of a draw that breaks a promise stay in a folder there."""
    case = draw(seed, number)
    with tempfile.TemporaryDirectory() as name:
        verdict = judge(number, case, Path(name))
    if keep is not None and verdict.faults:
        folder = keep / f"{seed}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        case.write(folder)
        lines = ["hulk " + " ".join(f"'{word}'" for word in case.arguments()), *map(str, verdict.faults)]
        texts = {
            "what.txt": "\n".join(lines) + "\n",
            "stdout.txt": verdict.seen.stdout,
            "stderr.txt": verdict.seen.stderr,
        }
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    return verdict


def judge(number: int, case: Case, scratch: Path) -> Verdict:
    """Run a case and check it, with the second looks that its answer calls for."""
    seen, priced = _planned(case, scratch / "first")
    faults = list(check(case, seen, priced))
    tags = {case.mode, f"exit {seen.code}"} | _exercised(case, seen, priced)
    if not faults and seen.code == 2:
        tags.add("refused as it must" if case.refuse else "refused as it may")
    if not faults and case.options.exact and priced is not None and not case.limited:
        worse = _worse_than_search(case, seen, priced, scratch / "again")
        faults += worse or []
        tags |= set() if worse is None else {"exact compared"}
    elif not faults and seen.code == 3 and case.limited and not case.options.paper:  # which is one shot, no search
        tags |= {"gave up"} if _gave_up(case, scratch / "again") else set()
    return Verdict(number, case, seen, tuple(faults), frozenset(tags))


def _planned(case: Case, folder: Path) -> tuple[Seen, Seen | None]:
    """The answer, and the price of the plan in it by `hulk price`."""
    folder.mkdir()
    case.write(folder)
    seen = run_hulk(case.arguments(), folder, case.options.time_limit + MARGIN)
    try:
        plan = plan_of(case, seen)
    except ValueError:
        plan = None
    if plan is None:
        return seen, None
    return seen, _priced(plan, folder, case.options.runner)


def _priced(plan: object, folder: Path, runner: Sequence[str]) -> Seen:
    (folder / "to-price.json").write_text(json.dumps(plan), encoding="utf-8")
    words = ["price", "to-price.json", "-c", "cluster.yaml", "-j", "jobs.yaml", "--json", *runner]
    return run_hulk(words, folder, MARGIN)


def _exercised(case: Case, seen: Seen, priced: Seen | None) -> set[str]:
    """Which promises the draw was about, and whether each could be kept."""
    plan = plan_of(case, seen) if priced is not None and priced.code == 0 else None
    if plan is None:
        return set()
    assert priced is not None
    limits = limits_of(case, plan, json.loads(priced.stdout)["jobs"])
    kept = {kind: kind not in limits.broken for kind in limits.asked}
    options, waiting = case.options, plan["waiting"]
    for kind, jobs in (
        ("pin", {name for name, _ in options.pins}),
        ("avoid", {name for name, _ in options.avoids}),
        ("allow or deny", {job.name for job in case.jobs if job.allow is not None or job.deny}),
        ("place", {job.name for job in case.jobs if job.place}),
    ):
        if jobs:
            kept[kind] = kept.get(kind, True) and not jobs & waiting.keys()
    for kind in ("cheapest", "exact", "paper", "uniform", "engine", "headroom"):
        if getattr(options, kind) not in (None, False):
            kept[kind] = seen.code == 0
    if any(job.allow == () for job in case.jobs):
        kept["allow nowhere"] = False  # such a job waits
    if any(case.network.blocked(a, b) for a, b in combinations(case.machines, 2)):
        kept["blocked link"] = not waiting
    return {f"{kind} {'kept' if so else 'not kept'}" for kind, so in kept.items()}


def _worse_than_search(case: Case, seen: Seen, priced: Seen, folder: Path) -> list[Fault] | None:
    """The proven optimum against what the search finds; None where there is nothing to compare."""
    again = case.without_limits()
    again = replace(again, options=replace(again.options, evaluations=400, time_limit=2.0))
    other, other_priced = _planned(again, folder)
    plan, other_plan = plan_of(case, seen), plan_of(again, other)
    if plan is None or other_plan is None or other_priced is None:
        return None
    exact = objective(case, plan, json.loads(priced.stdout)["jobs"])
    found = objective(case, other_plan, json.loads(other_priced.stdout)["jobs"])
    if exact[0] > found[0] or (exact[0] == found[0] and exact[1] > found[1] * (1 + TOLERANCE)):
        return [Fault("the exact answer is the best", f"{exact[1]!r} s, but the search finds {found[1]!r} s")]
    return []


def _gave_up(case: Case, folder: Path) -> bool:
    """Whether a search with as much effort, but without limits, finds a plan that keeps them after all."""
    again = case.without_limits()
    seen, priced = _planned(again, folder)
    if seen.code != 0 or priced is None or priced.code != 0:
        return False
    plan = plan_of(again, seen)
    assert plan is not None
    if any(check(again, seen, priced)):
        return False
    return not limits_of(case, plan, json.loads(priced.stdout)["jobs"]).broken
