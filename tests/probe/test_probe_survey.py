"""A survey goes on without an agent that goes away, and keeps to its time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from agents import TOKEN, running

from hulk.errors import InputError
from hulk.probe.agent import Agent
from hulk.probe.control import Caller, Station
from hulk.probe.links import found_links
from hulk.probe.survey import Effort, survey

EFFORT = Effort(seconds=0.05, most=200_000, pings=3, full=True, at_once=1)


@contextlib.contextmanager
def stations(count: int) -> Iterator[tuple[list[Agent], list[Station]]]:
    """So many agents, all in one region."""
    with running(count) as agents:
        made = [Station(f"m{n}", "x", agent.address, Caller(agent.address, TOKEN)) for n, agent in enumerate(agents)]
        try:
            yield agents, made
        finally:
            for station in made:
                station.line.close()


def test_all_pairs_are_measured():
    with stations(4) as (_, made):
        told = []
        found = survey(made, EFFORT, lambda done, total, words: told.append((done, total)))
    assert len(found.readings) == 6
    assert told == [(n, 6) for n in range(1, 7)]
    assert found.missed == []
    assert found.size > 0
    (link,) = [link for link in found_links(found) if not link.machines]
    assert link.ends == ("x", "x")


def test_it_goes_on_without_an_agent_that_goes_away():
    with stations(4) as (agents, made):

        def leave(done: int, total: int, words: str) -> None:
            if done == 1:
                agents[3].stop()

        found = survey(made, EFFORT, leave)
    left = {each for reading in found.readings for each in (reading.source, reading.target)}
    assert {"m0", "m1", "m2"} <= left
    assert len(found.readings) >= 3
    assert any("m3" in words for words in found.missed)


def test_one_that_does_not_answer_at_first_is_named():
    with stations(2) as (agents, made):
        agents[1].stop()
        with pytest.raises(InputError, match="m1"):
            while True:  # until it has stopped
                survey(made, EFFORT)


def test_what_there_is_no_time_for_is_estimated_from_the_calls():
    with stations(3) as (_, made):
        found = survey(made, replace(EFFORT, limit=0.0))
    assert found.readings == []
    assert "3 of 3 measurements: the time was over" in found.missed
    (link,) = found_links(found)
    assert link.guessed and link.latency is not None and link.latency > 0
