"""The paths of the page: what comes in is checked, what takes thought goes to other processes, what is made is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, Response, StreamingResponse

from hulk.io.page_files import page_files
from hulk.serve.catalogue import bundled_text, catalogue
from hulk.serve.history import History
from hulk.serve.limits import Limits
from hulk.serve.messages import (
    Case,
    Changes,
    CompareRequest,
    Empty,
    Inputs,
    PlannedCase,
    PlanRequest,
    PlanSaved,
    Problem,
    Recipe,
    Refusal,
    ReplanRequest,
    TaskStarted,
    TaskState,
)
from hulk.serve.pool import Pool
from hulk.serve.tasks import Task, Tasks, Then
from hulk.view.report import report_html

_RETRY = 5  # seconds after which a busy server may be asked again
_PATH: dict[int | str, dict[str, Any]] = {code: {"model": Refusal} for code in (401, 403, 404, 413, 422, 429, 503)}

Key = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="an id of a plan or a task")]


@dataclass(frozen=True)
class Server:
    """What all paths need."""

    history: History
    pool: Pool
    tasks: Tasks
    limits: Limits


def refusal(status: int, problem: Problem) -> JSONResponse:
    """The answer to a request that is refused."""
    headers = {"Retry-After": str(_RETRY)} if status in (429, 503) else None
    return JSONResponse({"error": problem.model_dump()}, status_code=status, headers=headers)


# ---- What there is --------------------------------------------------------------------------------------------------


def catalogue_routes(server: Server) -> APIRouter:
    """Bundled files, and questions about what is not kept."""
    router = APIRouter(prefix="/api", responses=_PATH)

    @router.get("/catalogue")
    async def all_there_is() -> dict[str, Any]:
        """Bundled clusters, jobs, models and GPU types, export targets, and how much may be asked."""
        return await asyncio.to_thread(catalogue, server.limits)

    @router.get("/catalogue/{kind}/{name}")
    async def one_file(
        kind: Annotated[str, Path(pattern="^(clusters|jobs)$")], name: Annotated[str, Path(max_length=100)]
    ) -> dict[str, str]:
        """A bundled file as text, to edit."""
        return {"name": name, "text": bundled_text(kind, name)}

    @router.post("/check")
    async def check(inputs: Inputs) -> dict[str, Any]:
        """A cluster and jobs, read and checked."""
        return dict(await server.pool.ask("check", inputs, server.limits))

    @router.post("/price")
    async def price(case: PlannedCase) -> dict[str, Any]:
        """The price of a plan, as `hulk price --json` prints it."""
        recipe = Recipe(cluster=case.cluster, jobs=case.jobs)
        return dict(await server.pool.ask("price", recipe, case.plan, server.limits))

    return router


# ---- Plans ----------------------------------------------------------------------------------------------------------


async def _inputs(server: Server, key: str) -> tuple[Recipe, dict[str, Any]]:
    recipe, plan = await asyncio.to_thread(server.history.inputs, key)
    return Recipe(**recipe), plan


def _keeping(server: Server, parent: str | None) -> Then:
    """Keeps the plan that a task has made; its id is the task's result."""

    async def keep(made: Any) -> dict[str, Any]:
        return {"plan": await asyncio.to_thread(server.history.add, made, parent)}

    return keep


def _extending(server: Server, key: str) -> Then:
    """Keeps what a task has found out about a plan, and tells it."""

    async def extend(made: Any) -> dict[str, Any]:
        for kind, value in made.items():
            await asyncio.to_thread(server.history.extend, key, kind, value)
        return dict(made)

    return extend


def plans_routes(server: Server) -> APIRouter:
    """Plans that are kept, and what can be asked about them."""
    router = APIRouter(prefix="/api/plans", responses=_PATH)
    limits, tasks = server.limits, server.tasks

    @router.get("")
    async def all_plans() -> dict[str, Any]:
        """What is kept, newest first."""
        return {"plans": await asyncio.to_thread(server.history.plans)}

    @router.post("", status_code=202)
    async def plan(request: PlanRequest) -> TaskStarted:
        """Look for the best plan. The task's result is the id of the plan."""
        seconds = min(request.options.seconds, limits.seconds)
        return TaskStarted(task=tasks.add("plan", (request, limits), seconds, _keeping(server, None)).id)

    @router.post("/load", status_code=201)
    async def load(case: PlannedCase) -> PlanSaved:
        """Keep a plan that was made elsewhere."""
        recipe = Recipe(cluster=case.cluster, jobs=case.jobs)
        made = await server.pool.ask("load", recipe, case.plan, limits)
        return PlanSaved(plan=await asyncio.to_thread(server.history.add, made, None))

    @router.get("/{key}")
    async def document(key: Key) -> dict[str, Any]:
        """All that the page shows of a plan."""
        return await asyncio.to_thread(server.history.document, key)

    @router.get("/{key}/inputs")
    async def sources(key: Key) -> Case:
        """The cluster and the jobs that the plan was made of, to plan with again."""
        recipe, _ = await _inputs(server, key)
        return Case(cluster=recipe.cluster, jobs=recipe.jobs)

    @router.delete("/{key}", status_code=204)
    async def remove(key: Key) -> None:
        """Forget a plan."""
        await asyncio.to_thread(server.history.remove, key)

    @router.get("/{key}/price")
    async def price(key: Key) -> dict[str, Any]:
        """A plan's price."""
        return await asyncio.to_thread(server.history.price, key)

    @router.post("/{key}/whatif")
    async def what_if(key: Key, changes: Changes) -> dict[str, Any]:
        """What the plan takes after these changes, all else as it is."""
        recipe, plan = await _inputs(server, key)
        return dict(await server.pool.ask("whatif", recipe, plan, tuple(changes.changes), limits))

    @router.post("/{key}/keep", status_code=201)
    async def keep(key: Key, changes: Changes) -> PlanSaved:
        """The same, kept as a plan."""
        recipe, plan = await _inputs(server, key)
        made = await server.pool.ask("keep", recipe, plan, tuple(changes.changes), limits)
        return PlanSaved(plan=await asyncio.to_thread(server.history.add, made, key))

    @router.post("/{key}/replan", status_code=202)
    async def replan(key: Key, request: ReplanRequest) -> TaskStarted:
        """Look for the best way to go on after these changes. The task's result is the id of the plan."""
        recipe, plan = await _inputs(server, key)
        task = tasks.add("replan", (recipe, plan, request, limits), request.seconds, _keeping(server, key))
        return TaskStarted(task=task.id)

    @router.post("/{key}/timeline", status_code=202)
    async def timeline(key: Key, _: Empty) -> TaskStarted:
        """Play a step. The task's result is the timeline."""
        return await about(key, "timeline")

    @router.post("/{key}/explain", status_code=202)
    async def explain(key: Key, _: Empty) -> TaskStarted:
        """Look for what would help. The task's result is what `hulk explain --json` prints."""
        return await about(key, "explain")

    @router.post("/{key}/compare", status_code=202)
    async def compare(key: Key, request: CompareRequest) -> TaskStarted:
        """Set Hulk beside other planners. The task's result has what `hulk compare --json` prints."""
        recipe, _ = await _inputs(server, key)
        task = tasks.add("compare", (recipe, request, limits), limits.seconds, _extending(server, key))
        return TaskStarted(task=task.id)

    async def about(key: str, kind: str) -> TaskStarted:
        recipe, plan = await _inputs(server, key)
        task = tasks.add(kind, (recipe, plan, limits), limits.seconds, _extending(server, key))
        return TaskStarted(task=task.id)

    return router


# ---- Files to take away ---------------------------------------------------------------------------------------------


def downloads_routes(server: Server) -> APIRouter:
    """Files to take away."""
    router = APIRouter(prefix="/api/plans/{key}", responses=_PATH)

    @router.get("/plan.json")
    async def plan_file(key: Key) -> Response:
        """The plan file."""
        _, plan = await _inputs(server, key)
        return _attached(json.dumps(plan, indent=1, ensure_ascii=False) + "\n", "plan.json", "application/json")

    @router.get("/report.html")
    async def report(key: Key) -> Response:
        """The plan as a report."""

        def made() -> str:
            found: Any = server.history.document(key) | {"saved": None}  # whoever gets it has no history
            return report_html(found, page_files())

        return _attached(await asyncio.to_thread(made), "report.html", "text/html; charset=utf-8")

    @router.get("/trace.json")
    async def trace(key: Key) -> Response:
        """A step as a trace for Perfetto."""
        recipe, plan = await _inputs(server, key)
        found: list[bytes] = []

        async def take(made: Any) -> None:
            found.append(made)

        task = server.tasks.add("trace", (recipe, plan, server.limits), server.limits.seconds, take)
        async for _ in server.tasks.events(task.id):
            pass
        if not found:
            return refusal(503, Problem(**(task.error or {"message": "it was cancelled"})))
        answer = _attached(found[0], "trace.json", "application/json")
        answer.headers["Content-Encoding"] = "gzip"
        return answer

    @router.get("/export.zip")
    async def export(key: Key, to: Annotated[str, Query(max_length=40)]) -> Response:
        """The launch files for a target of `hulk export`."""
        recipe, plan = await _inputs(server, key)
        return _attached(
            await server.pool.ask("export", recipe, plan, to, server.limits), "hulk.zip", "application/zip"
        )

    return router


def _attached(content: str | bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


# ---- Tasks ----------------------------------------------------------------------------------------------------------


def tasks_routes(server: Server) -> APIRouter:
    """What takes longer than a moment."""
    router = APIRouter(prefix="/api/tasks/{key}", responses=_PATH)

    @router.get("")
    async def state(key: Key) -> TaskState:
        """Where a task stands."""
        return server.tasks.get(key).view()

    @router.delete("", status_code=204)
    async def cancel(key: Key) -> None:
        """End a task."""
        server.tasks.cancel(key)

    @router.get("/events")
    async def events(key: Key) -> StreamingResponse:
        """What happens to a task, as server-sent events."""
        task: Task = server.tasks.get(key)

        async def stream() -> AsyncIterator[str]:
            async for event in server.tasks.events(task.id):
                yield ": still here\n\n" if event is None else sse(*event)

        return StreamingResponse(stream(), media_type="text/event-stream")

    return router


def sse(name: str, data: dict[str, Any]) -> str:
    """A server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=True, allow_nan=False)}\n\n"
