"""How much anyone may ask of the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of requests. Sizes in bytes, times in seconds.

    body        of one request
    machines    of one cluster
    seconds     that a search may be given
    waiting     tasks that may wait for their turn; quick questions likewise
    kept        plans in the history
    patience    for the answer to a quick question, and for a request's body to arrive
    """

    body: int = 18 * 2**20
    machines: int = 10_000
    seconds: float = 120.0
    waiting: int = 64
    kept: int = 10_000
    patience: float = 60.0
