"""The table of a plan's options, and the tables that the compiled search has by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories import job as toy_job
from hulk.cost.arrays import Tables
from hulk.cost.engine import ENGINES, HULK
from hulk.domain.job import Job
from hulk.domain.options import (
    COLUMN,
    GPIPE,
    SPACE,
    Choice,
    Needs,
    Options,
    Schedule,
    Scope,
    Shape,
    codes_of,
    drawn_evenly,
    neighbours,
    normal,
    options_of,
    places_of,
    plain_value,
    words_of,
)
from hulk.gnn.generator import Scale, scattered
from hulk.io.models import build_named_model
from hulk.io.profiles import bundled_compute
from hulk.search.job_space import JobSpace
from hulk.search.skeleton import Skeleton, Slot
from hulk.search.spaces import spaces_of
from hulk.search.tables import SearchTables, pack, tables_of

by_choice = pytest.mark.parametrize("choice", SPACE, ids=lambda choice: choice.name)
scopes = st.integers(1, 4096).map(lambda batch: Scope(toy_job(global_batch=batch)))
ANY = replace(HULK, offers={}, searched={})
"""An engine that can do all there is."""


@st.composite
def cases(draw: st.DrawFn) -> tuple[Scope, Options]:
    """A job, and options that are possible for it, fine values among them."""
    scope = draw(scopes)
    return scope, Options(**{c.name: draw(st.sampled_from(c.possible(scope, fine=True))) for c in SPACE})


shapes = st.integers(1, 8).flatmap(
    lambda replicas: st.builds(Shape, st.just(replicas), st.integers(replicas, 40), st.integers(1, 8))
)


def different(a: Options, b: Options) -> set[str]:
    """The fields that are not the same."""
    return {choice.name for choice in SPACE if getattr(a, choice.name) != getattr(b, choice.name)}


def test_every_field_has_a_row() -> None:
    assert [choice.name for choice in SPACE] == [field.name for field in fields(Options)]
    assert [SPACE[column].name for column in COLUMN.values()] == list(COLUMN)


@by_choice
def test_a_row_is_consistent(choice: Choice) -> None:
    listed = choice.values + choice.regular
    assert len(set(listed)) == len(listed) > 1
    assert not choice.fine or set(choice.values) <= set(choice.fine)
    for weights in (choice.chances, choice.short):
        assert not weights or (len(weights) == len(choice.values) and min(weights) >= 0 and max(weights) > 0)
    assert choice.weight > 0 and choice.step >= 0
    assert choice.beside is None or (choice.beside in COLUMN and choice.beside != choice.name)
    assert choice.about.endswith(".")


@by_choice
def test_codes_and_texts_are_unique(choice: Choice) -> None:
    values = {*choice.values, *choice.fine, *choice.regular}
    assert len({choice.code_of(value) for value in values}) == len(values)
    assert len({plain_value(value) for value in values}) == len(values)


def test_numbers_and_truth_values_stand_in_files_as_they_are() -> None:
    assert [plain_value(value) for value in (True, 3, 0.5, GPIPE, Schedule.ahead(4))] == [
        True, 3, 0.5, "gpipe", "1f1b+4",
    ]  # fmt: skip


@by_choice
def test_a_job_always_has_a_value(choice: Choice) -> None:
    """The first one, which is the normal one, among them; also for a batch that no other microbatch divides."""
    for batch, engine in product((1, 7, 4096), ENGINES.values()):
        scope = Scope(toy_job(global_batch=batch), engine.tried)
        assert choice.possible(scope)[0] == choice.values[0]
        assert choice.possible(scope, fine=True)


@given(scopes)
@settings(deadline=None, max_examples=10)
def test_places_lead_back_to_their_options(scope: Scope) -> None:
    possible = [choice.possible(scope) for choice in SPACE]
    seen = set()
    for places in product(*(range(len(values)) for values in possible)):
        options = options_of(scope, places)
        assert places_of(options, scope) == list(places)
        seen.add(tuple(codes_of(options)))
    assert len(seen) == np.prod([len(values) for values in possible])


@given(cases())
def test_the_place_of_a_value_that_is_not_tried_is_that_of_the_next_smaller_one(case: tuple[Scope, Options]) -> None:
    scope, options = case
    near = options_of(scope, places_of(options, scope))
    for choice in SPACE:
        value, found = getattr(options, choice.name), getattr(near, choice.name)
        assert found == value if value in choice.possible(scope) else choice.code_of(found) < choice.code_of(value)


@given(cases(), st.booleans())
@settings(deadline=None)
def test_neighbours_differ_in_one_option_or_in_a_pair(case: tuple[Scope, Options], fine: bool) -> None:
    scope, options = case
    pairs = [{choice.name, choice.beside} for choice in SPACE if choice.beside]
    found = list(neighbours(options, scope, fine=fine))
    assert len(set(found)) == len(found)
    for other in found:
        names = different(options, other)
        assert len(names) == 1 or names in pairs
        for name in names:
            assert getattr(other, name) in SPACE[COLUMN[name]].possible(scope, fine=True)


@given(cases())
@settings(deadline=None)
def test_every_option_with_another_value_has_neighbours(case: tuple[Scope, Options]) -> None:
    scope, options = case
    changed = [different(options, other) for other in neighbours(options, scope)]
    for choice in SPACE:
        if len(choice.possible(scope)) > 1:
            assert {choice.name} in changed


@by_choice
@given(case=cases())
@settings(deadline=None)
def test_near_values_lie_within_a_step(choice: Choice, case: tuple[Scope, Options]) -> None:
    scope, options = case
    value, values = getattr(options, choice.name), choice.possible(scope, fine=choice.step > 0)
    near = list(choice.near(value, scope))
    assert value not in near and set(near) <= set(values)
    if choice.step == 0:
        assert set(near) == set(values) - {value}
    else:
        at = values.index(value)
        assert near == [*values[max(0, at - choice.step) : at], *values[at + 1 : at + choice.step + 1]]


@given(cases(), shapes)
def test_normal_options_are_those_that_have_an_effect(case: tuple[Scope, Options], shape: Shape) -> None:
    _, options = case
    found = normal(options, shape)
    assert normal(found, shape) == found
    for choice in SPACE:
        counts = choice.needs.met(shape, found.context) and not (choice.moot and choice.moot(found))
        assert getattr(found, choice.name) == (getattr(options, choice.name) if counts else choice.values[0])


@given(shapes)
def test_needs_are_met_by_any_of_them(shape: Shape) -> None:
    replicas, stages, ranks = shape
    assert Needs.NOTHING.met(shape)
    assert Needs.REPLICAS.met(shape) == (replicas > 1)
    assert Needs.STAGES.met(shape) == (stages > replicas)
    assert Needs.RANKS.met(shape) == (ranks > 1)
    assert (Needs.REPLICAS | Needs.STAGES).met(shape) == (stages > 1)
    assert not Needs.CONTEXT.met(shape)
    assert Needs.CONTEXT.met(shape, 2) == (ranks > 1)


@given(cases(), shapes)
def test_words_are_of_what_has_an_effect(case: tuple[Scope, Options], shape: Shape) -> None:
    _, options = case
    words = words_of(options, shape)
    assert all(words) and len(set(words)) == len(words)
    assert words == words_of(normal(options, shape), shape)
    plain = normal(options, shape)
    told = [choice.words(getattr(plain, choice.name)) for choice in SPACE if choice.needs.met(shape, plain.context)]
    assert words == [each for each in told if each]


@by_choice
def test_values_are_told_apart_in_words(choice: Choice) -> None:
    values = set(choice.values) | set(choice.fine)
    assert len({choice.words(value) for value in values}) == len(values)


@given(scopes, st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_what_is_drawn_is_possible(scope: Scope, seed: int) -> None:
    options = drawn_evenly(scope, np.random.default_rng(seed))
    for choice in SPACE:
        assert getattr(options, choice.name) in choice.possible(scope, fine=True)


def test_every_value_is_drawn() -> None:
    scope, rng = Scope(toy_job(global_batch=192)), np.random.default_rng(0)
    drawn = [drawn_evenly(scope, rng) for _ in range(1000)]
    for choice in SPACE:
        wanted = set(choice.possible(scope, fine=choice.step > 0))
        assert {getattr(options, choice.name) for options in drawn} == wanted


# --- the tables of a job by its options ---


@cache
def scene(seed: int) -> tuple[list[JobSpace], SearchTables]:
    """Jobs on a drawn cluster, and all that the compiled search has of them."""
    cluster, its_jobs = scattered(seed, Scale(4, 16, 4))
    spaces = spaces_of(cluster, its_jobs, bundled_compute(), engine=ANY)
    return spaces, pack(spaces)


def all_options(scope: Scope) -> Iterator[tuple[np.ndarray, Options]]:
    """Every combination of values that are tried for a job, and where each value stands. Of an option that tables do
    not depend on, the first and the last."""
    possible = [choice.possible(scope) for choice in SPACE]
    places = [
        range(len(values)) if choice.in_tables else (0, len(values) - 1)
        for choice, values in zip(SPACE, possible, strict=True)
    ]
    for row in product(*places):
        yield np.array(row), options_of(scope, row)


@pytest.mark.parametrize("seed", range(3))
def test_packed_tables_are_those_of_the_options(seed: int) -> None:
    spaces, packed = scene(seed)
    for number, space in enumerate(spaces):
        for row, options in all_options(space.scope):
            found, wanted = tables_of(packed, number, row), space.tables(options)
            for name in Tables._fields:
                ours, theirs = getattr(found, name), getattr(wanted, name)
                if not np.array_equal(ours, theirs):  # a hundred thousand comparisons: words only where they differ
                    np.testing.assert_array_equal(ours, theirs, err_msg=f"{name}, {options}")


def test_tables_depend_on_what_is_said_to_be_in_them() -> None:
    """On every such option for some job, and on no other."""
    spaces = scene(0)[0]
    others = [Job(name, build_named_model(name, 8192), 8) for name in ("llama-3-8b", "mixtral-8x7b")]
    spaces = [*spaces, *spaces_of(spaces[0].cluster, others, bundled_compute(), engine=ANY)]
    for choice in SPACE:
        differs = False
        for space in spaces:
            made = [space.tables(replace(space.plainest, **{choice.name: v})) for v in choice.possible(space.scope)]
            differs |= any(not np.array_equal(a, b) for a, b in zip(made[0], made[-1], strict=True))
        assert differs == choice.in_tables, choice.name


@by_choice
@pytest.mark.parametrize("seed", range(3))
def test_an_option_that_has_no_effect_does_not_change_the_price(choice: Choice, seed: int) -> None:
    """For one pipeline of one stage, and for two pipelines, or stages, where that is not what it needs."""
    checked = 0
    for space in scene(seed)[0]:
        slots = [Slot(machine, space.degrees[0]) for machine in sorted(space.allowed)[:2]]
        for chains in ((slots[0],),), ((slots[0],), (slots[-1],)), ((slots[0], slots[-1]),):
            shape = Shape(len(chains), sum(map(len, chains)), 1)
            if choice.needs.met(shape) or len(slots) < shape.stages:
                continue
            prices = {
                space.result(Skeleton(chains, replace(space.plainest, **{choice.name: value})))
                for value in choice.possible(space.scope)
            }
            assert len(prices) == 1
            checked += 1
    assert checked or not choice.needs
