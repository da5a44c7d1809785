"""Tasks of the page: what takes too long is ended, and what is over fills no memory."""

from __future__ import annotations

import asyncio
import json

import pytest

import small
from hulk.io.plan_file import dump_plan
from hulk.serve import tasks
from hulk.serve.limits import Limits
from hulk.serve.messages import PlanOptions, PlanRequest, Recipe, Source
from hulk.serve.pool import BusyError

CLUSTER, JOBS = Source(text=small.CLUSTER), Source(text=small.JOBS)
ENDLESS = (PlanRequest(cluster=CLUSTER, jobs=JOBS, options=PlanOptions(seconds=100, evaluations=10_000_000)), Limits())
ASKED = (Recipe(cluster=CLUSTER, jobs=JOBS), json.loads(dump_plan(small.plan())), Limits())


async def as_it_is(made):
    return dict(made)


async def ended(all_tasks: tasks.Tasks, task: tasks.Task) -> tasks.Event:
    """The last that is told of a task."""
    return [event async for event in all_tasks.events(task.id) if event is not None][-1]


def test_a_task_that_takes_too_long_is_ended_with_a_clear_answer_and_the_next_has_its_turn(monkeypatch):
    monkeypatch.setattr(tasks, "_GRACE", 0.0)

    async def two():
        all_tasks = tasks.Tasks(waiting=3)
        all_tasks.start()
        long, next_one = all_tasks.add("plan", ENDLESS, 0.5, as_it_is), all_tasks.add("plan", (), 300.0, as_it_is)
        quick = all_tasks.add("timeline", ASKED, 300.0, as_it_is)
        told = [await ended(all_tasks, task) for task in (long, next_one, quick)]
        await all_tasks.close()
        return told, [task.arguments for task in (long, next_one, quick)]

    (long, next_one, quick), arguments = asyncio.run(two())
    assert long[0] == "failed"
    assert long[1]["error"]["message"] == "it took more than 0.5 s, and was ended"
    assert "a fault in hulk itself" in next_one[1]["error"]["message"]  # it had its turn: nothing to plan was given
    assert quick[0] == "done"
    assert quick[1]["timeline"].keys() == {"bert", "second"}
    assert arguments == [(), (), ()]  # what is over holds nothing that it was given


def test_results_are_kept_while_there_is_room(monkeypatch):
    async def several():
        all_tasks = tasks.Tasks(waiting=9)
        made = []
        for _ in range(4):
            made.append(all_tasks.add("timeline", ("x" * 100,), 1.0, as_it_is))
            made[-1].tell(state="done", result={"timeline": "y" * 1000})
        all_tasks.add("timeline", (), 1.0, as_it_is)
        kept = []
        for task in made:
            try:
                kept.append(all_tasks.get(task.id).result is not None)
            except tasks.NoSuchTaskError:
                kept.append(False)
        return kept

    monkeypatch.setattr(tasks, "_KEPT_BYTES", 2100)
    assert asyncio.run(several()) == [False, False, True, True]
    monkeypatch.setattr(tasks, "_KEPT_BYTES", 10)
    assert asyncio.run(several()) == [False, False, False, True]


def test_more_than_there_is_room_for_does_not_wait(monkeypatch):
    monkeypatch.setattr(tasks, "_WAITING_BYTES", 1000)

    async def two():
        all_tasks = tasks.Tasks(waiting=9)
        first = all_tasks.add("plan", ("x" * 600,), 1.0, as_it_is)
        with pytest.raises(BusyError, match="memory"):
            all_tasks.add("plan", ("x" * 600,), 1.0, as_it_is)
        all_tasks.cancel(first.id)
        all_tasks.add("plan", ("x" * 600,), 1.0, as_it_is)

    asyncio.run(two())
