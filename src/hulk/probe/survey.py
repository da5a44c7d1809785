"""All machines of a cluster, measured: what each is, who reaches whom, and the links between them, within a time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any

from hulk.domain.cluster import pair
from hulk.errors import InputError
from hulk.probe.control import Station, hasty_pool
from hulk.probe.schedule import Pair, Task, Waiting, plan_tasks
from hulk.probe.wire import WireError

_FACTS_SECONDS = 30.0
_TOGETHER_SKIP = 0.7  # seconds more than a link needs: agents do not begin at the same moment
_TOGETHER_TAIL = 0.7
_OVERHEAD = 30.0  # seconds that a measurement may take beyond its loads
_ALL_AT_ONCE = 64  # agents that are asked at the same time for what costs nothing


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: seconds that a flow is counted, bytes that it may send at most, how many flows are several,
    pairs between two regions or inside one (all with `full`), measurements at once, seconds in all, small messages a
    pair, seconds after which an address counts as silent, and pairs that are measured in any case."""

    seconds: float = 1.5
    most: int = 2 * 10**9
    flows: int = 4
    samples: int = 3
    full: bool = False
    at_once: int = 8
    limit: float = 900.0
    pings: int = 20
    wait: float = 3.0
    also: frozenset[Pair] = frozenset()


@dataclass(frozen=True, slots=True)
class Carried:
    """What flows carried: bytes/s, the same in parts of the time, bytes in all."""

    rate: float
    bins: tuple[float, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One pair, measured from `source` to `target`: round trips in seconds; one flow; several (None: not tried)."""

    source: str
    target: str
    trips: tuple[float, ...]
    one: Carried
    several: Carried | None = None

    @property
    def latency(self) -> float:
        """Seconds one way."""
        return statistics.median(self.trips) / 2


@dataclass(frozen=True, slots=True)
class Together:
    """Several pairs between two regions at once, several flows each."""

    pairs: tuple[Pair, ...]
    carried: Carried


@dataclass
class Survey:
    """What was found. `regions` has each machine's region, `trips` the round trip in seconds of every pair that reaches
    each other, `blocked` why a pair does not; `together` is by regions; `missed` says why something was not measured;
    `flows` is how many several were."""

    regions: dict[str, str]
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    trips: dict[Pair, float] = field(default_factory=dict)
    blocked: dict[Pair, str] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    together: dict[Pair, Together] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    flows: int = 0
    seconds: float = 0.0

    @property
    def size(self) -> int:
        """Bytes that were sent to measure."""
        loads = [load for each in self.readings for load in (each.one, each.several) if load is not None]
        return sum(load.size for load in (*loads, *(each.carried for each in self.together.values())))


News = Callable[[int, int, str], None]
"""How far it is: measurements done, in all, and what has just ended."""


def ask_facts(stations: Sequence[Station]) -> dict[str, dict[str, Any]]:
    """What each machine is; InputError that names all whose agent does not answer."""
    answers = _everybody(stations, lambda station: station.ask({"do": "facts"}, _FACTS_SECONDS))
    lost = [f"{name}: {answer}" for name, answer in answers.items() if isinstance(answer, WireError)]
    if lost:
        raise InputError(f"{len(lost)} of {len(stations)} agents do not answer: {'; '.join(lost)}")
    return {name: answer["facts"] for name, answer in answers.items() if not isinstance(answer, WireError)}


def survey(stations: Sequence[Station], effort: Effort, news: News = lambda done, total, words: None) -> Survey:
    """Measure them all, or as many as there is time for. InputError where an agent does not answer at first; one that
    goes away later is noted in `missed`."""
    began = time.monotonic()
    found = Survey({station.name: station.region for station in stations}, ask_facts(stations), flows=effort.flows)
    _reach(stations, effort, found)
    tasks = plan_tasks(found.regions, found.trips, samples=effort.samples, full=effort.full, also=effort.also)
    _measure({station.name: station for station in stations}, tasks, effort, found, news, began + effort.limit)
    found.seconds = time.monotonic() - began
    return found


def _everybody(
    stations: Sequence[Station], ask: Callable[[Station], dict[str, Any]]
) -> dict[str, dict[str, Any] | WireError]:
    """Ask all of them at once; what each answers."""

    def one(station: Station) -> dict[str, Any] | WireError:
        try:
            return ask(station)
        except WireError as error:
            return error

    with hasty_pool(_ALL_AT_ONCE) as pool:
        return dict(zip((station.name for station in stations), pool.map(one, stations), strict=True))


def _reach(stations: Sequence[Station], effort: Effort, found: Survey) -> None:
    """Every agent calls every other. Pairs that cannot call each other, both ways, count as blocked."""
    others = {
        # Each begins with the next one, so that no agent is called by all at once.
        station.name: [*stations[number + 1 :], *stations[:number]]
        for number, station in enumerate(stations)
    }

    def ask(station: Station) -> dict[str, Any]:
        targets = [list(other.address) for other in others[station.name]]
        seconds = _OVERHEAD + effort.wait * len(targets)
        return station.ask({"do": "reach", "targets": targets, "wait": effort.wait}, seconds)

    calls: dict[Pair, dict[str, Any]] = {}
    for name, answer in _everybody(stations, ask).items():
        if isinstance(answer, WireError):
            raise InputError(f"the agent of {name} has gone: {answer}")
        for other, result in zip(others[name], answer["found"], strict=True):
            calls[name, other.name] = result
    for a, b in {pair(*ends) for ends in calls}:
        ways = {(a, b): calls[a, b], (b, a): calls[b, a]}
        trips = [float(result["trip"]) for result in ways.values() if "trip" in result]
        if len(trips) == 2:
            found.trips[a, b] = min(trips)
        else:
            found.blocked[a, b] = _why(ways)


def _why(ways: dict[Pair, dict[str, Any]]) -> str:
    words = {"refused": "refused", "token": "another token", "version": "no agent", "lost": "cut off"}
    reasons = {
        ends: words.get(str(result.get("reason")), "silent") for ends, result in ways.items() if "trip" not in result
    }
    if len(reasons) == 2 and len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return ", ".join(f"{source} to {target} {why}" for (source, target), why in reasons.items())


def _measure(
    stations: dict[str, Station], tasks: list[Task], effort: Effort, found: Survey, news: News, deadline: float
) -> None:
    """Run the tasks, several at once where they do not disturb each other."""
    waiting, total = Waiting(list(tasks)), len(tasks)
    running: dict[Future[None], Task] = {}
    with hasty_pool(effort.at_once) as pool:
        while waiting.tasks or running:
            if time.monotonic() > deadline and waiting.tasks:
                found.missed.append(f"{len(waiting.tasks)} of {total} measurements: the time was over")
                waiting.tasks.clear()
            while len(running) < effort.at_once and (task := waiting.take()) is not None:
                running[pool.submit(_run, task, stations, effort, found)] = task
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task = running.pop(future)
                waiting.done(task)
                words = " and ".join(f"{a} to {b}" for a, b in task.pairs)
                try:
                    future.result()
                except WireError as error:
                    found.missed.append(f"{words}: {error}")
                    for name in sorted(each for each in task.machines if stations[each].lost.is_set()):
                        given_up = waiting.without(name)
                        found.missed += [f"{len(given_up)} more with {name}: its agent has gone"] * bool(given_up)
                news(total - len(waiting.tasks) - len(running), total, words)


def _run(task: Task, stations: dict[str, Station], effort: Effort, found: Survey) -> None:
    if task.together:
        _run_together(task, stations, effort, found)
        return
    ((source, target),) = task.pairs
    loads = [_load(1, effort)] + [_load(effort.flows, effort)] * task.several
    reply = _ask(stations[source], stations[target], loads, effort)
    carried = [_carried(load) for load in reply["loads"]]
    several = carried[1] if task.several else None
    found.readings.append(Reading(source, target, tuple(map(float, reply["trips"])), carried[0], several))


def _run_together(task: Task, stations: dict[str, Station], effort: Effort, found: Survey) -> None:
    """All pairs of a task at once, as long after their beginning as the slowest of them needs."""
    slowest = max(found.trips[pair(*ends)] for ends in task.pairs)
    load = _load(effort.flows, effort) | {
        "skip": min(_TOGETHER_SKIP + 6 * slowest, 8.0),
        "tail": _TOGETHER_TAIL + slowest,
    }

    def one(ends: Pair) -> Carried:
        reply = _ask(stations[ends[0]], stations[ends[1]], [load], effort)
        return _carried(reply["loads"][0])

    with hasty_pool(len(task.pairs)) as pool:
        parts = list(pool.map(one, task.pairs))
    bins = tuple(sum(values) for values in zip(*(part.bins for part in parts), strict=True))
    total = Carried(sum(part.rate for part in parts), bins, sum(part.size for part in parts))
    found.together[task.regions] = Together(task.pairs, total)


def _ask(source: Station, target: Station, loads: list[dict[str, Any]], effort: Effort) -> dict[str, Any]:
    order = {"do": "measure", "target": list(target.address), "pings": effort.pings, "loads": loads}
    return source.ask(order, _OVERHEAD + len(loads) * (effort.seconds + 20.0))


def _load(flows: int, effort: Effort) -> dict[str, Any]:
    return {"flows": flows, "seconds": effort.seconds, "most": max(effort.most // flows, 1)}


def _carried(load: dict[str, Any]) -> Carried:
    return Carried(float(load["rate"]), tuple(map(float, load["bins"])), int(load["bytes"]))
