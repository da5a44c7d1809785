"""What measures the network from inside: `python -m hulk.testbed.probe`, run in the machines' namespaces.

    serve                       echo datagrams and time what arrives over TCP, until standard input ends
    ping ADDRESS COUNT WAIT     send COUNT datagrams; round trips in seconds, without those that took over WAIT seconds
    send ADDRESS SIZE SKIP      send SIZE bytes over one connection; how the bytes after the first SKIP arrived

`ping` and `send` print one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import threading
import time

PORT = 5077
_PING = struct.Struct("!Id")
_PING_INTERVAL = 0.02  # seconds
_CHUNK = 1 << 20
_PATIENCE = 60.0  # seconds without a byte


def serve() -> None:
    """Answer probes until standard input ends."""
    echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    echo.bind(("", PORT))
    sink = socket.create_server(("", PORT))
    threading.Thread(target=_echo, args=(echo,), daemon=True).start()
    threading.Thread(target=_sink, args=(sink,), daemon=True).start()
    _say("ready")
    sys.stdin.read()


def ping(address: str, count: int, wait: float) -> dict[str, object]:
    """Round trips in seconds, from the moment a datagram is sent to the moment its echo is read."""
    trips: dict[int, float] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.connect((address, PORT))
        for number in range(count):
            link.send(_PING.pack(number, time.monotonic()))
            _collect(link, time.monotonic() + _PING_INTERVAL, trips, all_of=count)
        _collect(link, time.monotonic() + wait, trips, all_of=count)
    return {"round_trips": [seconds for seconds in trips.values() if seconds <= wait]}


def send(address: str, size: int, skip: int) -> dict[str, object]:
    """Bytes after the first `skip`, and seconds between the arrival of the first and the last of them."""
    chunk = bytes(_CHUNK)
    with socket.create_connection((address, PORT), timeout=_PATIENCE) as link:
        link.sendall(struct.pack("!Q", skip))
        left = size
        while left > 0:
            left -= link.send(chunk[:left] if left < _CHUNK else chunk)
        link.shutdown(socket.SHUT_WR)
        reply: dict[str, object] = json.loads(link.makefile().readline())
        return reply


def _collect(link: socket.socket, until: float, trips: dict[int, float], *, all_of: int) -> None:
    while len(trips) < all_of and (left := until - time.monotonic()) > 0:
        if select.select([link], (), (), left)[0]:
            try:
                number, sent = _PING.unpack(link.recv(_PING.size))
            except ConnectionRefusedError:  # nobody serves there yet
                continue
            trips[number] = time.monotonic() - sent


def _echo(link: socket.socket) -> None:
    while True:
        data, sender = link.recvfrom(2048)
        link.sendto(data, sender)


def _sink(server: socket.socket) -> None:
    while True:
        link, _ = server.accept()
        threading.Thread(target=_receive, args=(link,), daemon=True).start()


def _receive(link: socket.socket) -> None:
    # An error means that the sender went away.
    with link, contextlib.suppress(OSError, struct.error):
        link.settimeout(_PATIENCE)
        link.sendall(json.dumps(_time_arrival(link)).encode() + b"\n")


def _time_arrival(link: socket.socket) -> dict[str, float]:
    (skip,) = struct.unpack("!Q", link.recv(8, socket.MSG_WAITALL))
    buffer = bytearray(_CHUNK)
    total = first = 0
    began = now = time.monotonic()
    while count := link.recv_into(buffer):
        now = time.monotonic()
        total += count
        if first == 0 and total >= skip:
            first, began = total, now
    return {"bytes": total - first, "seconds": now - began}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Run one probe, before other processes: it is the network that is measured, not how busy the machine is."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    match arguments:
        case ["serve"]:
            serve()
        case ["ping", address, count, wait]:
            _say(json.dumps(ping(address, int(count), float(wait))))
        case ["send", address, size, skip]:
            _say(json.dumps(send(address, int(size), int(skip))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
