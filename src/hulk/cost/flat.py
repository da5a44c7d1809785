"""Jobs as arrays, for `hulk.cost.play`: all stages one after the other.

connections  from a stage to the next (its number) and to the one before (its number + S)
orders       where stages go by an order of `hulk.cost.orders`: the first stage on some GPUs leads, and has the passes
             of all of them; what it sends goes over channels, to the next GPUs and to those before, each one message
             after the other. A channel has the number of the leading stage's connection
tasks        sums: steps one after the other, each of branches side by side, each of flows side by side and a
             latency after the last of them. A task waits for moments (so many seconds before the end of a stage's
             last backward), for other tasks and, if it sends weights, for updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hulk.cost.arrays import Bools, Floats, Ints
from hulk.cost.compiled import plain
from hulk.cost.orders import BACKWARD, FORWARD, is_ordered, is_split, order_of
from hulk.cost.prepared import Prepared
from hulk.cost.traffic import Fabric, Sum, Traffic, sums_of


class Flat(NamedTuple):
    """Jobs as arrays: S stages, T tasks, B branches, F flows of tasks, M moments."""

    job: Ints  # [S]
    begin: Ints  # [S] first stage of its pipeline
    end: Ints  # [S] the stage after the last of its pipeline
    forward: Floats  # [S] seconds
    backward: Floats  # [S]
    weights_pass: Floats  # [S] gradients of weights, where they are passes of their own
    update: Floats  # [S]
    lead: Ints  # [S] the first stage on the same GPUs: it is the one that updates, and sums wait for that
    order: Ints  # [passes, 3] kind, stage, microbatch of the passes of stages that go by an order
    first_order: Ints  # [S + 1] a leading stage's first pass there; other stages have none
    channel: Ints  # [2 S] of a connection
    message: Ints  # connections of the messages of a channel, in their order
    first_message: Ints  # [2 S + 1]
    warmup: Ints  # [S]
    microbatches: Ints  # [S]
    blocking: Bools  # [S] whether messages to and from the next stage block
    before_wire: Floats  # [2 S] seconds that a message costs besides the wire
    size: Floats  # [2 S] bytes
    latency: Floats  # [2 S]
    limit: Floats  # [2 S + F] bytes/s: connections, then flows of tasks
    way: Ints  # [2 S + F, 3]
    capacity: Floats  # [R] bytes/s
    flow_size: Floats  # [F]
    flow_branch: Ints  # [F]
    branch_flows: Ints  # [B + 1] first flow of each branch
    branch_latency: Floats  # [B]
    branch_task: Ints  # [B]
    branch_step: Ints  # [B] which step of its task it belongs to
    task_branches: Ints  # [T + 1] first branch of each task
    task_job: Ints  # [T]
    waits: Ints  # [T] moments and tasks that it waits for
    followers: Ints  # tasks that wait for a task
    first_follower: Ints  # [T + 1]
    holders: Ints  # stages that go on only when a task is over
    first_holder: Ints  # [T + 1]
    weights: Bools  # [T] whether holders wait for it after their update, not before
    waiters: Ints  # tasks that wait for a stage's update
    first_waiter: Ints  # [S + 1]
    moment_stage: Ints  # [M], ascending
    moment_before: Floats  # [M] seconds before the stage's last backward ends
    moment_task: Ints  # [M]
    first_moment: Ints  # [S + 1]


class _Lists:
    """What grows while jobs are written down."""

    def __init__(self) -> None:
        self.flow_limit: list[float] = []
        self.flow_way: list[tuple[int, ...]] = []
        self.flow_size: list[float] = []
        self.flow_branch: list[int] = []
        self.branch_latency: list[float] = []
        self.branch_task: list[int] = []
        self.branch_step: list[int] = []
        self.task_job: list[int] = []
        self.waits: list[int] = []
        self.follows: list[tuple[int, int]] = []  # (task, the task that waits for it)
        self.holders: list[list[int]] = []
        self.weights: list[bool] = []
        self.waiters: list[tuple[int, int]] = []  # (stage, the task that waits for its update)
        self.moments: list[tuple[int, float, int]] = []
        self.orders: list[Ints] = []
        self.first_order = [0]
        self.messages: dict[int, list[int]] = {}  # by channel

    def add_orders(self, one: Prepared, at: int, count: int, channel: Ints) -> None:
        """A job's orders and messages; its stages are counted from `at` on, of `count` in all."""
        encoded, leads = one.encoded, one.leads
        ordered, split = bool(plain(is_ordered)(encoded)), bool(plain(is_split)(encoded))
        for p, pipeline in enumerate(one.plan.pipelines):
            begin, stages = int(encoded.starts[p]), len(pipeline.stages)
            slots = len(pipeline.slots(one.plan.options.chunks))
            group = one.plan.options.schedule.group(slots, pipeline.microbatches)
            for s in range(stages):
                passes = 0
                if ordered and leads[begin + s] == begin + s:
                    warmup = int(encoded.warmup[begin + s])
                    order = order_of(s, slots, stages // slots, pipeline.microbatches, warmup, group, split)
                    passes = len(order)
                    order[:, 1] += at + begin
                    self.orders.append(order)
                    self._add_messages(order, at + begin, stages, count, channel)
                self.first_order.append(self.first_order[-1] + passes)

    def _add_messages(self, order: Ints, begin: int, stages: int, count: int, channel: Ints) -> None:
        for kind, stage, _ in order.tolist():
            if kind == FORWARD and stage + 1 < begin + stages:
                connection = stage
            elif kind == BACKWARD and stage > begin:
                connection = count + stage
            else:
                continue
            self.messages.setdefault(int(channel[connection]), []).append(connection)

    def add_task(self, job: int, wanted: Sum, at: int, lead: Sequence[int]) -> None:
        """A sum with its steps; the job's stages are counted from `at` on, and `lead` says who leads each."""
        task = len(self.task_job)
        self.task_job.append(job)
        self.holders.append([lead[n] for n in wanted.holders])
        self.weights.append(bool(wanted.updates))
        self.moments += [(at + n, seconds, task) for n, seconds in wanted.moments]
        self.follows += [(task - wanted.number + other, task) for other in wanted.after]
        self.waiters += [(lead[n], task) for n in wanted.updates]
        self.waits.append(len(wanted.moments) + len(wanted.after) + len(wanted.updates))
        for step, branches in enumerate(wanted.phases):
            for branch in branches:
                if not branch.hops:
                    continue
                self.branch_latency.append(branch.latency)
                self.branch_task.append(task)
                self.branch_step.append(step)
                for hop in branch.hops:
                    self.flow_branch.append(len(self.branch_latency) - 1)
                    self.flow_limit.append(hop.route.limit)
                    self.flow_way.append(hop.route.resources)
                    self.flow_size.append(hop.size)


def flatten(prepared: Sequence[Prepared], fabric: Fabric) -> Flat:
    """The jobs as arrays."""
    lists = _Lists()
    count = sum(len(one.stages) for one in prepared)
    before_wire, size, latency = np.zeros(2 * count), np.zeros(2 * count), np.zeros(2 * count)
    limit, way = np.ones(2 * count), np.full((2 * count, 3), -1)
    job, begin, end = (np.zeros(count, np.int64) for _ in range(3))
    microbatches, blocking = np.zeros(count, np.int64), np.zeros(count, bool)
    lead, channel = np.arange(count), np.arange(2 * count)
    at = 0
    for index, one in enumerate(prepared):
        traffic = Traffic(one, fabric)
        stages = len(one.stages)
        job[at : at + stages] = index
        lead[at : at + stages] = [at + n for n in one.leads]
        ordered = bool(plain(is_ordered)(one.encoded))
        for p, pipeline in enumerate(one.plan.pipelines):
            slots = len(pipeline.slots(one.plan.options.chunks))
            a, b = int(one.encoded.starts[p]), int(one.encoded.starts[p + 1])
            begin[at + a : at + b], end[at + a : at + b] = at + a, at + b
            microbatches[at + a : at + b] = one.encoded.microbatches[p]
            for n in range(a, b - 1):
                blocking[at + n] = one.durations.blocking[n]
                for sender, receiver, c in ((n, n + 1, at + n), (n + 1, n, count + at + n + 1)):
                    wire = traffic.message(sender, receiver)
                    before_wire[c], size[c], latency[c] = wire.fixed, wire.size, wire.latency
                    # Of two groups of GPUs, the next is the one before.
                    channel[c] = lead[at + sender] + (count if c >= count and slots != 2 else 0) if ordered else c
                    for f in {c, int(channel[c])}:  # what flows is a channel's
                        limit[f] = wire.route.limit
                        way[f, : len(wire.route.resources)] = wire.route.resources
        lists.add_orders(one, at, count, channel)
        for wanted in sums_of(one, traffic):
            lists.add_task(index, wanted, at, lead[at : at + stages].tolist())
        at += stages
    flows = len(lists.flow_size)
    flow_way = np.full((flows, 3), -1)
    for f, resources in enumerate(lists.flow_way):
        flow_way[f, : len(resources)] = resources
    tasks = len(lists.task_job)
    moments = sorted(lists.moments)
    follows, waiters = sorted(lists.follows), sorted(lists.waiters)
    ends = [one.durations for one in prepared]

    def starts(keys: Sequence[int], groups: int) -> Ints:
        return np.searchsorted(np.array(keys, np.int64), np.arange(groups + 1)).astype(np.int64)

    return Flat(
        job=job,
        begin=begin,
        end=end,
        forward=np.concatenate([d.forward for d in ends]),
        backward=np.concatenate([d.backward for d in ends]),
        weights_pass=np.concatenate([d.weights for d in ends]),
        lead=lead,
        order=np.concatenate([np.zeros((0, 3), np.int64), *lists.orders]),
        first_order=np.array(lists.first_order),
        channel=channel,
        message=np.array([c for ch in sorted(lists.messages) for c in lists.messages[ch]], np.int64),
        first_message=np.cumsum([0, *(len(lists.messages.get(ch, ())) for ch in range(2 * count))]).astype(np.int64),
        update=np.concatenate([d.update for d in ends]),
        warmup=np.concatenate([one.encoded.warmup for one in prepared]),
        microbatches=microbatches,
        blocking=blocking,
        before_wire=before_wire,
        size=size,
        latency=latency,
        limit=np.concatenate([limit, np.array(lists.flow_limit, float)]),
        way=np.concatenate([way, flow_way]),
        capacity=np.array(fabric.capacity, float),
        flow_size=np.array(lists.flow_size, float),
        flow_branch=np.array(lists.flow_branch, np.int64),
        branch_flows=starts(lists.flow_branch, len(lists.branch_latency)),
        branch_latency=np.array(lists.branch_latency, float),
        branch_task=np.array(lists.branch_task, np.int64),
        branch_step=np.array(lists.branch_step, np.int64),
        task_branches=starts(lists.branch_task, tasks),
        task_job=np.array(lists.task_job, np.int64),
        waits=np.array(lists.waits, np.int64),
        followers=np.array([b for _, b in follows], np.int64),
        first_follower=starts([a for a, _ in follows], tasks),
        holders=np.array([n for group in lists.holders for n in group], np.int64),
        first_holder=np.cumsum([0, *(len(group) for group in lists.holders)]).astype(np.int64),
        weights=np.array(lists.weights, bool),
        waiters=np.array([task for _, task in waiters], np.int64),
        first_waiter=starts([stage for stage, _ in waiters], count),
        moment_stage=np.array([m[0] for m in moments], np.int64),
        moment_before=np.array([m[1] for m in moments], float),
        moment_task=np.array([m[2] for m in moments], np.int64),
        first_moment=starts([m[0] for m in moments], count),
    )


def in_each_others_way(flat: Flat) -> bool:
    """Whether any two jobs share a card or a trunk."""
    stages = len(flat.job)
    of_flow = np.concatenate([flat.job, flat.job, flat.task_job[flat.branch_task[flat.flow_branch]]])
    users = {(int(r), int(of_flow[f])) for f in range(2 * stages + len(flat.flow_size)) for r in flat.way[f] if r >= 0}
    return len({r for r, _ in users}) < len(users)


def apart(prepared: Sequence[Prepared]) -> list[list[int]]:
    """Jobs by their places in the list, in groups that have no card and no trunk in common: each can be played by
    itself, in less time than all of them together."""
    if len(prepared) < 2:
        return [[index] for index in range(len(prepared))]
    fabric = Fabric.of(prepared)
    groups: list[tuple[set[int], list[int]]] = []
    for index, one in enumerate(prepared):
        ways, members = fabric.among(one.plan.leaders), [index]
        for group in [group for group in groups if not group[0].isdisjoint(ways)]:
            groups.remove(group)
            ways |= group[0]
            members = group[1] + members
        groups.append((ways, sorted(members)))
    return [members for _, members in groups]
