"""How agents talk: a handshake in which both sides prove that they know the token, then signed messages over TCP.

    agent  → caller   {"hulk": "probe/1", "version": …, "nonce": n}
    caller → agent    {"nonce": m, "proof": HMAC(token, "caller" n m)}
    agent  → caller   {"proof": HMAC(token, "agent" n m)}, or {"error": …} and the end

The token itself is never sent. The words keep one side's proof from serving as the other's, the nonces keep an old one
from serving again. Every message after that carries an HMAC, under a key made of token and nonces, over its direction,
its number and its text: nobody on the way can add or change one. Nothing is encrypted.

A message is its length in four bytes, its HMAC (none in the handshake), and JSON.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from hulk import __version__
from hulk.errors import HulkError

PROTOCOL = "probe/1"
PORT = 5078
"""Where agents listen unless told otherwise."""
HANDSHAKE_SECONDS = 5.0

_LENGTH = struct.Struct("!I")
_MAC = 32  # bytes of an HMAC-SHA256
_HELLO_MOST = 1024  # bytes that somebody unknown may have us read
_MOST = 4 * 2**20

Address = tuple[str, int]


class WireError(HulkError):
    """The other side is not one to talk to, or is gone. `reason` is one word: silent, refused, token, version, lost."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason = reason


class Line(Protocol):
    """Whom a message can be sent to and received from."""

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message; WireError where none comes within that time."""

    def close(self) -> None:
        """Nothing more."""


@dataclass
class Channel:
    """A TCP connection on which both sides have proved that they know the token. `trip` is how many seconds it took to
    open, which is one round trip."""

    link: socket.socket
    key: bytes
    ours: bytes
    theirs: bytes
    trip: float = 0.0
    sent: int = 0
    received: int = 0

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        body = json.dumps(message).encode()
        mac = _sign(self.key, self.ours, str(self.sent).encode(), body)
        self.sent += 1
        try:
            self.link.sendall(_LENGTH.pack(len(body)) + mac + body)
        except OSError as error:
            raise WireError("lost", f"the connection is gone: {_words(error)}") from None

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message; WireError where none comes within that time, or one that was not signed."""
        with _translated(self.link, seconds):
            (length,) = _LENGTH.unpack(exactly(self.link, _LENGTH.size))
            if length > _MOST:
                raise WireError("lost", "a message that is too long")
            mac = exactly(self.link, _MAC)
            body = exactly(self.link, length)
        if not hmac.compare_digest(mac, _sign(self.key, self.theirs, str(self.received).encode(), body)):
            raise WireError("token", "a message that was changed on its way")
        self.received += 1
        return _object(body)

    def close(self) -> None:
        """Nothing more."""
        self.link.close()


def call(address: Address, token: bytes, seconds: float = HANDSHAKE_SECONDS) -> Channel:
    """A connection to the agent at an address; WireError where there is none, or none that knows the token."""
    began = time.monotonic()
    try:
        link = socket.create_connection(address, timeout=seconds)
    except TimeoutError:
        raise WireError("silent", f"no answer within {seconds:g} s") from None
    except ConnectionRefusedError:
        raise WireError("refused", "nothing listens there") from None
    except OSError as error:
        raise WireError("silent", _words(error)) from None
    try:
        trip = time.monotonic() - began
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = _introduce(link, token, seconds)
        channel.trip = trip
        return channel
    except BaseException:
        link.close()
        raise


def answer(link: socket.socket, token: bytes, seconds: float = HANDSHAKE_SECONDS) -> Channel:
    """The agent's side of the handshake; WireError for a caller that does not know the token."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    nonce = secrets.token_hex(16)
    with _translated(link, seconds):
        _say(link, {"hulk": PROTOCOL, "version": __version__, "nonce": nonce})
        reply = _hear(link)
        theirs = str(reply.get("nonce"))[:64]
        if not _proves(reply.get("proof"), token, b"caller", nonce, theirs):
            _say(link, {"error": "token"})
            raise WireError("token", "a caller that does not know the token")
        _say(link, {"proof": _proof(token, b"agent", nonce, theirs).hex()})
    return Channel(link, _proof(token, b"messages", nonce, theirs), b"agent", b"caller")


def check_greeting(greeting: dict[str, Any]) -> None:
    """WireError where what greets us is no agent of this version."""
    if "hulk" not in greeting:
        raise WireError("version", "what listens there is no agent of hulk probe")
    if greeting["hulk"] != PROTOCOL:
        there = str(greeting.get("version"))[:40]
        words = f"another version of hulk: {there} there, {__version__} here ({greeting['hulk']!r} and {PROTOCOL!r})"
        raise WireError("version", words)


def readable(handle: int, seconds: float) -> bool:
    """Whether something can be read there within that time. Not `select`: it knows no descriptor above 1023."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1e3))


def exactly(link: socket.socket, size: int) -> bytes:
    """The next `size` bytes, all of them within the connection's timeout; OSError where it ends before."""
    parts = bytearray()
    deadline = time.monotonic() + (link.gettimeout() or 0.0)
    while len(parts) < size:
        left = deadline - time.monotonic()
        if left <= 0 or not readable(link.fileno(), left):
            raise TimeoutError
        part = link.recv(min(size - len(parts), 1 << 16))
        if not part:
            raise ConnectionResetError("the other side has gone")
        parts += part
    return bytes(parts)


def _introduce(link: socket.socket, token: bytes, seconds: float) -> Channel:
    """The caller's side of the handshake."""
    ours = secrets.token_hex(16)
    with _translated(link, seconds):
        greeting = _hear(link)
        check_greeting(greeting)
        nonce = str(greeting.get("nonce"))
        _say(link, {"nonce": ours, "proof": _proof(token, b"caller", nonce, ours).hex()})
        reply = _hear(link)
    if not _proves(reply.get("proof"), token, b"agent", nonce, ours):
        raise WireError("token", "it was started with another token")
    return Channel(link, _proof(token, b"messages", nonce, ours), b"caller", b"agent")


@contextlib.contextmanager
def _translated(link: socket.socket, seconds: float) -> Iterator[None]:
    """What goes wrong on a connection within this time, as WireError."""
    link.settimeout(seconds)
    try:
        yield
    except TimeoutError:
        raise WireError("silent", f"no answer within {seconds:g} s") from None
    except OSError as error:
        raise WireError("lost", f"the connection is gone: {_words(error)}") from None


def _say(link: socket.socket, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    link.sendall(_LENGTH.pack(len(body)) + body)


def _hear(link: socket.socket) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(exactly(link, _LENGTH.size))
    if length > _HELLO_MOST:
        raise WireError("version", "what listens there is no agent of hulk probe")
    return _object(exactly(link, length))


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise WireError("version", "what listens there is no agent of hulk probe")
    return found


def _proof(token: bytes, who: bytes, agents_nonce: str, callers_nonce: str) -> bytes:
    return _sign(token, who, agents_nonce.encode(), callers_nonce.encode())


def _proves(proof: object, token: bytes, who: bytes, agents_nonce: str, callers_nonce: str) -> bool:
    expected = _proof(token, who, agents_nonce, callers_nonce).hex()
    return isinstance(proof, str) and proof.isascii() and hmac.compare_digest(proof, expected)


def _sign(key: bytes, *parts: bytes) -> bytes:
    """HMAC-SHA256 over parts with their lengths, so that no two lists of parts read the same."""
    made = hmac.new(key, digestmod="sha256")
    for part in parts:
        made.update(_LENGTH.pack(len(part)) + part)
    return made.digest()


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
