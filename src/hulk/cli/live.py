"""`--page`: a running job in the browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hulk.runtime.progress import StepReport
    from hulk.runtime.run import Workload

    Show = Callable[[StepReport | str], None]

PageOption = Annotated[bool, typer.Option("--page", help="show the run on a page in the browser, live")]
PagePortOption = Annotated[int, typer.Option(min=0, max=65535, help="the page's port; 0: any that is free")]

_LAST_LOOK = 2.0  # seconds that the page stays when all is over, so that it can say so


@contextmanager
def on_page(show: Show, workload: Workload, steps: int, port: int, *, wanted: bool) -> Iterator[Show]:
    """How a run tells how it goes: as `show` does, and, where it is `wanted`, on a page of this machine as well."""
    from hulk.cli.serve import need_page

    if not wanted or not workload.jobs:
        yield show
        return
    need_page()
    from hulk.serve.app import make_live_app
    from hulk.serve.background import Background
    from hulk.serve.watching import LiveRun
    from hulk.view.build import Extras, Shown, document_of

    plan, jobs = workload.plan, tuple(workload.jobs)
    names = {job.name for job in jobs}
    own = type(plan)({name: its for name, its in plan.jobs.items() if name in names}, plan.idle)
    shown = Shown(own, workload.cluster, jobs, workload.compute)
    price = shown.price()
    run = LiveRun([job.name for job in jobs], steps, document_of(shown, price))

    def play() -> None:
        """Draw the timeline, which takes seconds for long pipelines; the run does not wait for it."""
        with suppress(Exception):  # the run is watched without it, too
            run.draw(document_of(shown, price, Extras(simulation=shown.simulation())))

    def both(news: StepReport | str) -> None:
        run.tell(news)
        show(news)

    with Background(make_live_app(run), "127.0.0.1", port, last_look=_LAST_LOOK) as page:
        show(f"the page: {page.address}")
        threading.Thread(target=play, daemon=True).start()
        try:
            yield both
        except BaseException as error:
            run.end("failed", str(error) or type(error).__name__)
            raise
        run.end("done", "all steps are done")
