"""Who may ask: the page's own origin, with the token where one is needed, and no more than so much at once.

A browser sends requests on behalf of other pages too. What computes or changes anything needs a header that other
origins cannot set, and must come from the page's own origin; names that other people's DNS gives to this machine are
refused where no token protects it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from hulk.serve.limits import Limits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "hulk_token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_SAFE = ("GET", "HEAD")


class TooLargeError(Exception):
    """A body that is larger than allowed, or that takes too long to arrive."""


@dataclass(frozen=True)
class Guard:
    """Stands in front of the app. `token`: what everyone must know; None: only this machine can ask."""

    app: App
    limits: Limits
    token: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await (self.app(scope, receive, send) if scope["type"] == "lifespan" else _closed(receive, send))
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        send = _with_headers(send)
        told = self._token_in_url(scope)
        if told is not None:
            await _welcome(send, told)
            return
        refused = self._stranger(headers) or (None if scope["method"] in _SAFE else _foreign(headers))
        if refused is not None:
            await _refuse(send, *refused)
            return
        try:
            body = await self._body(receive, headers)
        except TooLargeError as error:
            await _refuse(send, 413, str(error))
            return
        await self.app(scope, _replayed(body, receive), send)

    def _token_in_url(self, scope: Scope) -> str | None:
        """The right token in the first address that a person opens: it goes on as a cookie, and out of the address."""
        if self.token is None or scope["path"] != "/" or scope["method"] != "GET":
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return self.token if given and self._is_token(given) else None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self.token or "").encode())

    def _stranger(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Status and words where whoever asks may ask nothing; None where they may."""
        host = headers.get("host", "")
        if self.token is None:
            known = host in _LOOPBACK or host.rsplit(":", 1)[0] in _LOOPBACK
            return None if known else (403, "this page answers to localhost only")
        if self._is_token(_given_token(headers)):
            return None
        return 401, "a token is needed: open the address that hulk serve printed, or send it as a Bearer token"

    async def _body(self, receive: Receive, headers: Mapping[str, str]) -> bytes:
        """The whole body of a request."""
        most = self.limits.body
        words = f"the request is larger than {most // 2**20} MiB"
        if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > most:
            raise TooLargeError(words)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.patience):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        break
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise TooLargeError(words)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise TooLargeError("the request took too long to arrive") from None
        return b"".join(parts)


def _foreign(headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Status and words where what changes or computes something was not sent by the page itself."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    elsewhere = origin is not None and origin.partition("://")[2] != headers.get("host", "")
    if elsewhere or site not in ("same-origin", "none"):
        return 403, "this request comes from another page"
    return None if headers.get("x-hulk") == "1" else (403, "the header X-Hulk: 1 is missing")


def _given_token(headers: Mapping[str, str]) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[COOKIE].value if COOKIE in cookies else ""


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, and then whatever else comes: that the other end has gone away."""
    given = False

    async def next_message() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _with_headers(send: Send) -> Send:
    async def wrapped(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            there = {key.lower() for key, _ in message["headers"]}
            more = [(key, value) for key, value in _HEADERS if key not in there]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return wrapped


async def _refuse(send: Send, status: int, words: str) -> None:
    body = json.dumps({"error": {"message": words, "where": None, "hint": None}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _welcome(send: Send, token: str) -> None:
    cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
    headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _closed(receive: Receive, send: Send) -> None:
    """No websockets here."""
    await receive()
    await send({"type": "websocket.close", "code": 1000})
