"""What follows a job's passes: gradients are added up, weights are updated and, where each stage updates only its own
part of them, sent to the others. `hulk.cost.traffic.sums_of` says what waits for what; a stage updates when all its
sums are over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hulk.cost.prepared import Prepared
from hulk.cost.traffic import Phases, Traffic, sums_of
from hulk.simulate.clock import Action
from hulk.simulate.jitter import Jitter
from hulk.simulate.network import Network
from hulk.simulate.result import SpanKind
from hulk.simulate.spans import SpanLog
from hulk.simulate.tasks import Task


class SyncRun:
    """Plays a job's syncs and updates. Stages are rows of the job's arrays."""

    def __init__(
        self,
        prepared: Prepared,
        *,
        network: Network,
        traffic: Traffic,
        jitter: Jitter,
        log: SpanLog,
        done: Action,
    ) -> None:
        """Lay out what waits for what and draw the jitter; nothing runs yet. `done` is called when the step is over."""
        self._prepared = prepared
        self._clock = network.clock
        self._network = network
        self._log = log
        count = len(prepared.stages)
        # What a stage waits for before it updates, in order; its own passes are the first of it.
        self._passes = [Task() for _ in range(count)]
        self._lead = prepared.leads  # the stage that updates for all on its GPUs
        self._before_update: list[list[Task]] = [[] for _ in range(count)]
        for lead, passes in zip(self._lead, self._passes, strict=True):
            self._before_update[lead].append(passes)
        # Moments at which a stage has what it adds to a sum, and the seconds of its last backward after them.
        self._ready: list[list[tuple[Task, float]]] = [[] for _ in range(count)]
        self._updates = [Task(partial(self._update, row, stretch)) for row, stretch in enumerate(jitter.factors(count))]
        weights = self._plan_sums(traffic, jitter)
        leading = [self._updates[lead] for lead in dict.fromkeys(self._lead)]
        for lead in dict.fromkeys(self._lead):
            self._updates[lead].wait_for(*self._before_update[lead])
        Task(lambda _: done()).wait_for(*leading, *weights)

    def last_pass(self, row: int, seconds: float, stretch: float) -> None:
        """A stage starts its last backward, which takes that many seconds, jitter's `stretch` included."""
        self._clock.after(seconds, self._passes[row].done)
        for ready, to_do in self._ready[row]:
            self._clock.after(max(seconds - to_do * stretch, 0.0), ready.done)

    def _plan_sums(self, traffic: Traffic, jitter: Jitter) -> list[Task]:
        """What waits for what. Returns the tasks that come after updates."""
        sums = sums_of(self._prepared, traffic)
        tasks: list[Task] = []
        for one, stretch in zip(sums, jitter.factors(len(sums)), strict=True):
            record = partial(self._record, one.holders, layers=one.layers)
            task = Task(partial(self._collect, one.phases, stretch, record))
            for row, to_do in one.moments:
                ready = Task()
                self._ready[row].append((ready, to_do))
                task.wait_for(ready)
            task.wait_for(*(tasks[number] for number in one.after))
            task.wait_for(*(self._updates[self._lead[row]] for row in one.updates))
            for row in () if one.updates else one.holders:
                self._before_update[self._lead[row]].append(task)
            tasks.append(task)
        return [task for task, one in zip(tasks, sums, strict=True) if one.updates]

    def _collect(self, phases: Phases, stretch: float, record: Callable[[float], None], done: Action) -> None:
        """Run a collective operation's phases one after the other, write it down, and go on."""
        start = self._clock.now

        def run_phase(index: int) -> None:
            if index == len(phases):
                record(start)
                done()
                return
            branches = [branch for branch in phases[index] if branch.hops]
            over = _countdown(len(branches), partial(run_phase, index + 1))
            for branch in branches:
                arrived = partial(self._clock.after, branch.latency * stretch, over)
                hop_over = _countdown(len(branch.hops), arrived)
                for hop in branch.hops:
                    self._network.send(hop.route, hop.size, stretch, hop_over)

        run_phase(0)

    def _record(self, rows: Sequence[int], start: float, *, layers: tuple[int, int] | None) -> None:
        for row in rows:
            self._log.add(row, SpanKind.SYNC, start, self._clock.now, layers=layers)

    def _update(self, row: int, stretch: float, done: Action) -> None:
        start = self._clock.now
        seconds = float(self._prepared.durations.update[row]) * stretch

        def updated() -> None:
            self._log.add(row, SpanKind.UPDATE, start, self._clock.now)
            done()

        self._clock.after(seconds, updated)


def _countdown(count: int, last: Action) -> Action:
    """An action that does `last` the `count`-th time it is called; at once where there is nothing to count."""
    left = count

    def one_more() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            last()

    if count == 0:
        last()
    return one_more
