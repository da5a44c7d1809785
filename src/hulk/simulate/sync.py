"""What follows a job's passes: gradients are added up over the replicas, those of shared parameters within each
pipeline too, and weights are updated. The order is that of `hulk.cost.step`:

- Gradient sets from the last layers to the first, each when all its holders have it and are free. With an engine that
  overlaps, a holder has it as soon as its last backward has passed those layers; with one that has buckets too, all but
  the last bucket of it as soon as the first is there.
- Then parameters shared with a pipeline's first stage, one stage after the other.
- A stage updates when all this is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from math import ceil

from hulk.cost.price import Prepared
from hulk.simulate.clock import Action, Clock
from hulk.simulate.jitter import Jitter
from hulk.simulate.network import Network
from hulk.simulate.result import SpanKind
from hulk.simulate.spans import SpanLog
from hulk.simulate.tasks import Task
from hulk.simulate.traffic import Phases, Traffic


class SyncRun:
    """Plays a job's syncs and updates. Stages are rows of the job's arrays."""

    def __init__(
        self, prepared: Prepared, *, clock: Clock, network: Network, traffic: Traffic, jitter: Jitter, log: SpanLog
    ) -> None:
        """Lay out what waits for what and draw the jitter; nothing runs yet."""
        self._prepared = prepared
        self._clock = clock
        self._network = network
        self._log = log
        count = len(prepared.stages)
        # What a stage waits for before it updates, in order; its own passes are the first of it.
        self._passes = [Task() for _ in range(count)]
        self._before_update: list[list[Task]] = [[passes] for passes in self._passes]
        # Moments at which a stage has what it adds to a sum, and the seconds of its last backward after them.
        self._ready: list[list[tuple[Task, float]]] = [[] for _ in range(count)]
        self._plan_gradient_sets(traffic, jitter)
        self._plan_shared_parameters(traffic, jitter)
        for row, stretch in enumerate(jitter.factors(count)):
            Task(partial(self._update, row, stretch)).wait_for(*self._before_update[row])

    def last_pass(self, row: int, seconds: float, stretch: float) -> None:
        """A stage starts its last backward, which takes that many seconds, jitter's `stretch` included."""
        self._clock.after(seconds, self._passes[row].done)
        for ready, to_do in self._ready[row]:
            self._clock.after(max(seconds - to_do * stretch, 0.0), ready.done)

    def _plan_gradient_sets(self, traffic: Traffic, jitter: Jitter) -> None:
        durations, sets = self._prepared.durations, self._prepared.sets
        before: dict[int, Task] = {}  # the set that a stage takes part in before this one
        for i, stretch in zip(reversed(range(sets)), jitter.factors(sets), strict=True):
            layers = int(durations.set_first[i]), int(durations.set_last[i])
            holders = self._prepared.holders(i)
            record = partial(self._record, holders, layers=layers)
            last = self._share_of_last_bucket(layers)
            for share, is_last in ((1.0 - last, False), (last, True)) if last < 1.0 else ((1.0, True),):
                phases = traffic.gradient_set(i, share, is_last=is_last)
                task = Task(partial(self._collect, phases, stretch, record))
                for row in holders:
                    ready = Task()
                    self._ready[row].append((ready, self._still_to_do(row, layers, 0.0 if is_last else share)))
                    task.wait_for(ready, *([before[row]] if row in before else []))
                    before[row] = task
                    self._before_update[row].append(task)

    def _share_of_last_bucket(self, layers: tuple[int, int]) -> float:
        """Of a set's bytes."""
        tables = self._prepared.book.tables
        if not tables.overlap_sync:
            return 1.0
        params = tables.split + tables.whole
        size = float(params[layers[1] + 1] - params[layers[0]]) * tables.wire_bytes
        return 1.0 / max(1.0, ceil(size / tables.bucket))

    def _still_to_do(self, row: int, layers: tuple[int, int], share: float) -> float:
        """Seconds of a stage's last backward after it has been through a set's layers, but for a share of them."""
        tables, encoded = self._prepared.book.tables, self._prepared.encoded
        if not tables.overlap_sync:
            return 0.0
        backward = tables.backward[encoded.kind[row]]
        inside = float(backward[layers[1] + 1] - backward[layers[0]])
        return float(backward[layers[0]] - backward[encoded.first[row]]) + share * inside

    def _plan_shared_parameters(self, traffic: Traffic, jitter: Jitter) -> None:
        durations, starts = self._prepared.durations, self._prepared.encoded.starts
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            sharing = [row for row in range(begin + 1, end) if durations.tie_seconds[row] > 0]
            for row, stretch in zip(sharing, jitter.factors(len(sharing)), strict=True):
                record = partial(self._record, [row, begin], peers=[0, row - begin])
                task = Task(partial(self._collect, traffic.shared_parameters(row, begin), stretch, record))
                task.wait_for(*self._before_update[begin], *self._before_update[row])
                self._before_update[begin].append(task)
                self._before_update[row].append(task)

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

    def _record(
        self,
        rows: Sequence[int],
        start: float,
        *,
        peers: Sequence[int] = (),
        layers: tuple[int, int] | None = None,
    ) -> None:
        for row, peer in zip_longest(rows, peers):
            self._log.add(row, SpanKind.SYNC, start, self._clock.now, peer=peer, layers=layers)

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
