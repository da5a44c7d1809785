"""The line to one machine's agent, as long as a launch lasts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from hulk import __version__
from hulk.errors import HulkError
from hulk.launch.facts import FORMAT
from hulk.launch.sites import AgentLine
from hulk.probe.control import START_SECONDS
from hulk.probe.wire import WireError

ANSWER_SECONDS = 60.0
"""How long an agent may take for an answer."""
BEAT = 10.0
"""Seconds between two signs of life that agents get."""
END_SECONDS = 15.0
"""How long an agent may take to end what it started."""
_LONG = 7 * 24 * 3600.0


class Station:
    """A machine with its agent."""

    def __init__(self, machine: str, line: AgentLine) -> None:
        self.machine = machine
        self._line = line
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def greet(self) -> None:
        """Wait for the agent. WireError where it does not come, or is of another version."""
        hello = self._line.greeting(START_SECONDS)
        if hello.get("hulk") != FORMAT or hello.get("version") != __version__:
            found = str(hello.get("version", "something else"))[:40]
            raise WireError("version", f"hulk {found} there, {__version__} here: install the same version")
        threading.Thread(target=self._beat, daemon=True).start()

    def ask(self, order: dict[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """What the agent answers; HulkError with its words where it could not do it."""
        self.tell(order)
        try:
            reply = self._line.receive(seconds)
        except WireError as error:
            raise HulkError(f"{self.machine} does not answer any more, and nothing was started: {error}") from None
        if "error" in reply:
            failure = HulkError(f"{self.machine}: {reply['error']}")
            failure.exit_code = int(reply.get("code", 1))
            raise failure
        return reply

    def tell(self, order: dict[str, Any]) -> None:
        """An order that is not answered."""
        with self._lock:
            self._line.send(order)

    def follow(self, hear: Callable[[dict[str, Any] | None], None]) -> None:
        """Pass on everything that the agent says from now on, and None when it is gone. It is asked nothing after."""

        def listen() -> None:
            with contextlib.suppress(WireError):
                while True:
                    hear(self._line.receive(_LONG))
            hear(None)

        threading.Thread(target=listen, daemon=True).start()

    def why(self) -> str:
        """Why it has gone, as far as it said so."""
        return self._line.why()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            self.tell({"do": "alive"})

    def close(self) -> None:
        """The agent ends all that it started, and itself."""
        self._closed.set()
        self._line.close(END_SECONDS)
