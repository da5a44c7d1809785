"""The exact optimum of small cases: the oracle for the search, and `--exact` where it is small enough.

The space, for all jobs together:

- every machine serves one job or stays idle;
- a job's slots: any number of GPUs of a machine in slots of any allowed tensor parallel degrees, which may differ
  within a machine (`JobSpace.degrees`); GPUs may stay idle;
- its pipelines: every way to put slots into pipelines, in every order of the stages, at most as many pipelines as
  microbatches; the pipelines in every order that the gradient sync can tell apart;
- every cut of the layers, every share of the microbatches;
- every value of every option (`hulk.domain.options.SPACE`), 1F1B with any number of extra forwards among them, up to
  what amounts to GPipe; the optimizer's state always sharded for engines for which that never costs. All blocks of all
  stages are computed again, or none: numbers for stages (`hulk.search.least`) are for plans that are searched;
- gradients, parameters and experts that holders split, and state split within regions or machines: they need pipelines
  that are all alike. Interleaved stages and split backwards where pipelines are all alike.

The answer is optimal up to a part in 10⁷ of a job's seconds. Per (job, set of machines) a branch and bound starts
from the search's own seed: `listing` lists all pipelines with their cuts that bounds on time and memory do not rule
out, `alone` takes the best of them by itself, `together` the best of them side by side; `alike` walks over pipelines
that are all alike, where the engine has something for these alone. Which sets of machines are
worth solving follows from bounds (`assignment`). A job on more machines is never slower (it may leave them idle), so a
solved pair also bounds the sets inside.

Reading order: `solver`, `assignment`, `job`; `case` and `mode` (what is solved), `bounds` and `sync_bounds` (what every
plan needs at least), `chains` and `listing` (pipelines), `alone`; for several pipelines `timing`, `capacity`, `teams`,
`orders`, `together`; for those that are all alike `alike`; `plans` and `size`; `loading` for the compiled code.
"""

from __future__ import annotations

from hulk.search.exact.loading import is_compiled, load_exact
from hulk.search.exact.size import count_pipelines
from hulk.search.exact.solver import solve_exactly

__all__ = ["count_pipelines", "is_compiled", "load_exact", "solve_exactly"]
