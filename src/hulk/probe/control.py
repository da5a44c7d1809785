"""One command's hold on the agents: connected to, or started by a command such as ssh and ended again."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from hulk.probe.wire import Address, Channel, Line, WireError, call, check_greeting, readable

CALL_SECONDS = 10.0
"""How long an agent may take to answer at all."""
START_SECONDS = 60.0
"""How long one that is started may take: ssh, and Python on a busy machine."""
_CHATTER = 200  # lines that a login may print before the agent speaks
_KEPT = 20  # last lines of what a process says of its failure
_END_SECONDS = 5.0


@contextlib.contextmanager
def hasty_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that nobody waits for where the block ends by an error or by Ctrl-C."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@dataclass(frozen=True)
class Station:
    """A machine with an agent: where other agents reach it, and the line on which it is told what to do. `lost`: the
    agent has not answered once, and what still comes would be the answer to something else."""

    name: str
    region: str
    address: Address
    line: Line
    lost: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What the agent answers; WireError where it does not, or could not do it."""
        with self._lock:
            if self.lost.is_set():
                raise WireError("lost", "its agent has gone")
            try:
                self.line.send(order)
                reply = self.line.receive(seconds)
            except WireError:
                self.lost.set()
                raise
        if "error" in reply:
            raise WireError(str(reply.get("reason", "lost"))[:20], str(reply["error"])[:300])
        return reply


class Caller:
    """A line to an agent that somebody else has started."""

    def __init__(self, address: Address, token: bytes) -> None:
        self._channel: Channel = call(address, token, CALL_SECONDS)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._channel.send(message)

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message."""
        return self._channel.receive(seconds)

    def close(self) -> None:
        """Hang up; who waits for a message is told at once."""
        with contextlib.suppress(OSError):
            self._channel.link.shutdown(socket.SHUT_RDWR)
        self._channel.close()


class Piped:
    """A line to a process that is started here: its standard input and output. It ends with the line."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said: deque[str] = deque(maxlen=_KEPT)
        self._rest = b""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell; who calls says which command
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C at the terminal is for us: we end it
            )
        except OSError as error:
            raise WireError("silent", f"{command[0]}: {error.strerror}") from None
        self._ear = threading.Thread(target=self._overhear, daemon=True)
        self._ear.start()

    def greeting(self, seconds: float = START_SECONDS) -> dict[str, Any]:
        """Wait until it is there; its first words. WireError where it did not start."""
        deadline = time.monotonic() + seconds
        for _ in range(_CHATTER):
            line = self._line(deadline)
            if line.startswith(b"{"):
                break
        else:
            raise WireError("silent", "it prints something else")
        greeting = self._read(line)
        if "error" in greeting:
            raise WireError("refused", str(greeting["error"])[:300])
        return greeting

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # what is missing shows when the answer is awaited
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next message; WireError where none comes."""
        return self._read(self._line(time.monotonic() + seconds))

    def close(self, seconds: float = _END_SECONDS) -> None:
        """End it: its input ends, and it does within some seconds, or is made to."""
        process = self._process
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not readable(handle, left):
                raise WireError("silent", "no answer in time")
            part = os.read(handle, 1 << 16)
            if not part:
                raise WireError("lost", self.why())
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.strip()

    @staticmethod
    def _read(line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise WireError("version", "its answer makes no sense")
        return found

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line.decode("utf-8", "replace").strip()[:300])

    @property
    def said(self) -> list[str]:
        """The last lines that it wrote to its standard error."""
        return [line for line in self._said if line]

    def why(self) -> str:
        """Why it has ended, as far as it said so."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._ear.join(_END_SECONDS)
        code = self._process.returncode
        said = self.said
        return ssh_words(said, code) if said else f"it ended with exit code {code}"


class Starter(Piped):
    """A line to an agent that is started here."""

    def __init__(self, command: Sequence[str], settings: dict[str, Any]) -> None:
        super().__init__(command)
        self.send(settings)

    def greet(self, seconds: float = START_SECONDS) -> Address:
        """Wait until it is there; where it listens. WireError where it did not start."""
        greeting = self.greeting(seconds)
        check_greeting(greeting)
        host, port = greeting["address"]
        return str(host), int(port)


def ssh_words(said: Sequence[str], code: int | None) -> str:
    """What ssh or the command it ran said, in words that tell what to do."""
    text = "\n".join(said)
    if "Host key verification failed" in text or "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return "ssh does not know its host key: connect by hand once, and compare the key"
    if "Permission denied" in text and code == 255:
        return "ssh would ask for a password: install a key for it (ssh-copy-id)"
    if code == 127 or "command not found" in text:
        return "there is no command `hulk` there: say where it is with --hulk"
    return said[-1]


def ssh_command(
    destination: str, hulk: str, config: str | None = None, *, verb: str = "probe serve --stdio"
) -> list[str]:
    """How ssh starts an agent: no word of a file gets into a command line but the destination, after all options.
    `config` is a configuration of ssh's to use instead of the usual one, `verb` what hulk does there."""
    options = ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15"]
    options += [] if config is None else ["-F", config]
    return ["ssh", *options, "--", destination, f"{shlex.quote(hulk)} {verb}"]
