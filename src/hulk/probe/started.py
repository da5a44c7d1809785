"""An agent that another process has started and talks to over standard input and output, a line of JSON a message.

The first line brings its settings, {"token", "bind", "port", "seconds", "ahead"}; it answers with a greeting, or with
{"error": …}. It ends when standard input does, so it never outlives the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
from collections.abc import Iterator
from typing import Any

from hulk.errors import HulkError
from hulk.probe.agent import Agent, greeting, listen

_LONGEST = 4 * 2**20  # bytes of a line


def main() -> None:
    """Serve until standard input ends, or the time is over."""
    lines = _lines()
    settings = json.loads(next(lines, b"{}"))
    if settings.get("ahead"):  # before other processes: it is the network that is measured, not how busy the machine is
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        agent = Agent(listen(settings["bind"], int(settings["port"])), settings["token"].encode())
    except KeyError as error:
        _say({"error": f"an agent that is started needs {error}"})
        return
    except HulkError as error:
        _say({"error": str(error)})
        return
    _say(greeting(agent))
    orders: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(lines, orders, agent), daemon=True).start()
    threading.Thread(target=_work, args=(orders, agent), daemon=True).start()
    agent.serve(float(settings["seconds"]))


def _lines() -> Iterator[bytes]:
    """What standard input brings. Not by `sys.stdin`: a thread that waits there holds up the end of the process."""
    rest = b""
    while part := os.read(0, 1 << 16):
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
        if len(rest) > _LONGEST:
            return


def _listen(lines: Iterator[bytes], orders: queue.Queue[bytes], agent: Agent) -> None:
    for line in lines:
        orders.put(line)
    agent.stop()


def _work(orders: queue.Queue[bytes], agent: Agent) -> None:
    while True:
        try:
            order: Any = json.loads(orders.get())
        except ValueError:
            order = {}
        _say(agent.obey(order if isinstance(order, dict) else {}))


def _say(message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        left = json.dumps(message).encode() + b"\n"
        while left:
            left = left[os.write(1, left) :]


if __name__ == "__main__":
    main()
