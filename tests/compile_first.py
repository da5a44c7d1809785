"""Compile what most tests need, so that test processes side by side do not all do it."""

from functools import partial

from hulk.forked import side_by_side
from hulk.planner import load_compiled
from hulk.search.exact import load_exact

load_compiled()
side_by_side(partial(load_compiled, with_money=True), [load_exact])
