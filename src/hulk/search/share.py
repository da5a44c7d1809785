"""How the replicas of a job share its batch, compiled: each gets as many microbatches as it can do while the slowest
one is at work."""

from __future__ import annotations

import numpy as np

from hulk.cost.arrays import Durations, Encoded
from hulk.cost.compiled import kernel


@kernel
def share(plan: Encoded, out: Durations, total: int) -> bool:
    """Give each replica its microbatches. False where there are fewer microbatches than replicas.

    A replica takes about fill + (m − 1) × period: fill is one microbatch alone through all stages and back; period is
    the slowest of a stage's work, a link's, and a round trip over the microbatches that may be in flight.
    """
    replicas = plan.microbatches.shape[0]
    if total < replicas:
        return False
    alone = np.zeros(replicas)
    period = np.zeros(replicas)
    for p in range(replicas):
        tail = 0.0
        for n in range(plan.starts[p + 1] - 1, plan.starts[p] - 1, -1):
            work = out.forward[n] + out.backward[n]
            if n + 1 < plan.starts[p + 1]:
                tail += 2 * out.latency[n] + out.send_forward[n] + out.send_backward[n]
                period[p] = max(period[p], out.send_forward[n], out.send_backward[n])
            tail += work
            period[p] = max(period[p], work, tail / plan.warmup[n])
        alone[p] = tail
    low, high = 0.0, 0.0
    for p in range(replicas):
        high = max(high, alone[p] + total * period[p])
    for _ in range(60):
        middle = 0.5 * (low + high)
        done = 0
        for p in range(replicas):
            done += max(1, 1 + int((middle - alone[p]) / period[p])) if middle > alone[p] else 1
        if done >= total:
            high = middle
        else:
            low = middle
        if high - low <= 1e-9 * high:
            break
    done = 0
    for p in range(replicas):
        plan.microbatches[p] = max(1, 1 + int((high - alone[p]) / period[p])) if high > alone[p] else 1
        done += plan.microbatches[p]
    while done > total:  # give back where the time to finish is longest
        worst, latest = -1, -1.0
        for p in range(replicas):
            if plan.microbatches[p] > 1:
                ends = alone[p] + (plan.microbatches[p] - 1) * period[p]
                if ends > latest:
                    worst, latest = p, ends
        plan.microbatches[worst] -= 1
        done -= 1
    while done < total:
        best, earliest = 0, np.inf
        for p in range(replicas):
            ends = alone[p] + plan.microbatches[p] * period[p]
            if ends < earliest:
                best, earliest = p, ends
        plan.microbatches[best] += 1
        done += 1
    return True
