"""What becomes of every job after a change, for programs and in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from hulk.domain.cluster import Cluster
from hulk.replan import JobChange, Replan
from hulk.units import format_bandwidth, format_size, format_time
from hulk.view.document import ReplanView
from hulk.view.words import by_region, some

_MOST_MOVES = 12

Line = tuple[tuple[str, str], ...]
"""A line: parts of it, each with the style that a terminal gives it ("" for none)."""


def replan_view(result: Replan, horizon: float) -> ReplanView:
    """The answer as the page shows it; `horizon` in seconds."""
    lines = ["".join(text for text, _ in line) for line in replan_lines(result, horizon)]
    return ReplanView(replan=replan_json(result), lines=lines)


def replan_json(result: Replan) -> dict[str, object]:
    """The answer for programs: seconds, bytes."""
    return {
        "hulk": "replan/1",
        "changed": result.changed,
        "note": result.note,
        "move_s": result.move_s,
        "stopped": list(result.stopped),
        "refused": asdict(result.refused) if result.refused else None,
        "machines": [machine.name for machine in result.cluster.machines],
        "jobs": {
            change.job: asdict(change) | {"changed": change.changed, "from_checkpoint": change.from_checkpoint}
            for change in result.jobs
        },
    }


def replan_lines(result: Replan, horizon: float) -> Iterator[Line]:
    """What becomes of every job, line by line; `horizon` in seconds."""
    for change in result.jobs:
        yield from _job(change, result.cluster)
    if result.note:
        yield _plain(result.note)
    if result.refused is not None:
        refused = result.refused
        yield _plain(
            f"not made: a plan that would save {refused.saves:.0%} takes {format_time(refused.move_s)} to move to and "
            f"pays back after {format_time(refused.payback_s)}, later than the horizon of {format_time(horizon)}"
        )
    if result.move_s:
        yield _plain(f"all has moved after {format_time(result.move_s)}")
    if result.plan.idle:
        yield ((f"idle: {by_region(result.plan.idle, result.cluster)}", "dim"),)


def _plain(text: str) -> Line:
    return ((text, ""),)


def _job(change: JobChange, cluster: Cluster) -> Iterator[Line]:
    name = (change.job, "bold")
    before = "it waited" if change.before_s is None else f"{format_time(change.before_s)} a step"
    if change.after_s is None:
        state = ("cannot run any more", "red") if change.before_s is not None else ("still waits", "yellow")
        yield (name, (": ", ""), state, (f": {change.reason}", ""))
        return
    if not change.changed:
        same = change.after_s == change.before_s
        takes = before if same else f"{format_time(change.after_s)} a step, before {before}"
        yield (name, (f": stays as it is, {takes}", ""))
        return
    yield (name, (f": {change.how}; {format_time(change.after_s)} a step, before {before}", ""))
    if change.stays:
        yield _plain(f"  stays   {some(change.stays)}")
    for move in sorted(change.moves, key=lambda move: -move.bytes)[:_MOST_MOVES]:
        source = "a checkpoint" if move.source is None else move.source
        yield _plain(f"  moves   {_layers(move.layers)} from {source} to {move.target}, {format_size(move.bytes)}")
    if len(change.moves) > _MOST_MOVES:
        yield _plain(f"          and {len(change.moves) - _MOST_MOVES} more")
    if change.moves:
        total = sum(move.bytes for move in change.moves)
        yield _plain(f"  in all  {format_size(total)} in {format_time(change.move_s)}")
    else:
        yield _plain("  nothing has to move")
    if change.from_checkpoint:
        back = ("goes back to its last checkpoint", "yellow")
        yield (("  ", ""), back, (": some of its layers survive on no machine", ""))
        yield _plain(f"  {_storage(change, cluster)}")
    if change.payback_s is not None:
        yield _plain(f"  pays back after {format_time(change.payback_s)}")


def _storage(change: JobChange, cluster: Cluster) -> str:
    """How fast the checkpoint is taken to come."""
    regions = list(dict.fromkeys(cluster.machine(move.target).region for move in change.moves if move.source is None))
    known = [name for name in regions if name in cluster.storage]
    words = [f"at {format_bandwidth(cluster.storage[name])} for all of {name}" for name in known]
    rest = [name for name in regions if name not in cluster.storage]
    if rest:
        words.append(f"as fast as each machine's network card in {', '.join(rest)}, since no `storage` is given")
    return f"the checkpoint is taken to come {'; '.join(words)}"


def _layers(layers: tuple[int, ...]) -> str:
    """Runs of layers: "layers 0–11, 14"."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1][1:] = [layer]
        else:
            runs.append([layer])
    text = ", ".join("–".join(map(str, run)) for run in runs)
    return f"layer{'s' if len(layers) > 1 else ''} {text}"
