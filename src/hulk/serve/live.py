"""Running jobs on the page: what they measure, as they measure it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

_EVERY = 0.5  # seconds between looks at what a run has told

LiveSource = Callable[[], tuple[int, dict[str, Any]]]
"""A number that grows with everything that is told, and what has been told so far (`Live` in web/src/contract.ts)."""


def live_routes(source: LiveSource) -> APIRouter:
    """The paths of a running job."""
    router = APIRouter(prefix="/api/live")

    @router.get("")
    async def now() -> dict[str, Any]:
        """All that is known of the run."""
        return source()[1]

    @router.get("/events")
    async def events() -> StreamingResponse:
        """The same without the plan, whenever there is more, as server-sent events."""

        async def stream() -> AsyncIterator[str]:
            last = -1
            while True:
                number, told = source()
                if number != last:
                    last = number
                    data = {key: value for key, value in told.items() if key != "document"}
                    yield f"event: live\ndata: {json.dumps(data, allow_nan=False)}\n\n"
                    if told["state"] in ("done", "failed"):
                        return
                await asyncio.sleep(_EVERY)

        return StreamingResponse(stream(), media_type="text/event-stream")

    return router
