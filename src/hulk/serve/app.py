"""The page as a whole: its own files, its paths, and errors as answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path as Folder
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from hulk import __version__
from hulk.errors import HulkError
from hulk.io.page_files import page_files
from hulk.serve.guard import App, Guard
from hulk.serve.history import History, NoSuchPlanError
from hulk.serve.limits import Limits
from hulk.serve.live import LiveSource, live_routes
from hulk.serve.messages import Problem
from hulk.serve.pool import BusyError, FaultError, Pool, problem_of
from hulk.serve.routes import Server, catalogue_routes, downloads_routes, plans_routes, refusal, tasks_routes
from hulk.serve.tasks import NoSuchTaskError, Tasks
from hulk.view.report import filled

_THREADS = 32  # that wait for other processes and for the disk


def make_app(
    history: History,
    *,
    limits: Limits = Limits(),  # noqa: B008  frozen
    token: str | None = None,
) -> App:
    """The page of plans as an ASGI app. `token`: what everyone must know; None where only this machine can ask."""
    quick = Pool(2, waiting=limits.waiting, patience=limits.patience)
    server = Server(history, quick, Tasks(waiting=limits.waiting), limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
        starting = asyncio.create_task(server.pool.start())
        server.tasks.start()
        yield
        await starting
        await server.tasks.close()
        server.pool.close()

    app = FastAPI(
        title="Hulk", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        description="Plans, prices and what-ifs, as the command line answers them.",
    )  # fmt: skip
    _answer_errors(app)
    for router in (_page("serve"), catalogue_routes(server), plans_routes(server), downloads_routes(server)):
        app.include_router(router)
    app.include_router(tasks_routes(server))
    return Guard(app, limits, token)


def make_live_app(live: LiveSource, *, token: str | None = None) -> App:
    """The page of a running job as an ASGI app."""
    app = FastAPI(title="Hulk", version=__version__, docs_url=None, redoc_url=None)
    _answer_errors(app)
    app.include_router(_page("live"))
    app.include_router(live_routes(live))
    return Guard(app, Limits(), token)


def history_path() -> str:
    """Where plans are kept where nobody says otherwise."""
    folder = Folder(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "hulk"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder / "history.sqlite")


# ---- Errors ---------------------------------------------------------------------------------------------------------


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(HulkError)
    async def _(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HulkError)
        status = 422
        if isinstance(error, NoSuchPlanError | NoSuchTaskError):
            status = 404
        elif isinstance(error, BusyError):
            status = 429
        elif isinstance(error, FaultError):
            status = 503
        return refusal(status, problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def _(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return refusal(422, Problem(message=str(first["msg"])[:500], where=where[:200] or None))

    @app.exception_handler(HTTPException)
    async def _(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return refusal(error.status_code, Problem(message=str(error.detail)))


# ---- The page itself ------------------------------------------------------------------------------------------------


def _page(mode: str) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    files = page_files()

    @router.get("/")
    async def index() -> HTMLResponse:
        return HTMLResponse(filled(files.index, {"mode": mode}))

    for path, text, kind in (
        ("/page.js", files.script, "text/javascript; charset=utf-8"),
        ("/page.css", files.style, "text/css; charset=utf-8"),
        ("/land.json", files.land, "application/json"),
    ):
        router.add_api_route(path, _fixed(Response(text, media_type=kind)), methods=["GET"])
    return router


def _fixed(response: Response) -> Any:
    async def answer() -> Response:
        return response

    return answer
