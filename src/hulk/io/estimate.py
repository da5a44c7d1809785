"""What to assume of a link that nobody measured.

Both estimates are fitted on the 45 pairs of AWS regions published with "Decentralized Training of Foundation Models in
Heterogeneous Environments" (NeurIPS 2022, arXiv 2206.01288), each with a latency and the bandwidth of one TCP flow.

The published latencies are read as round trips: taken as one way, no pair would come below 2.2 times light in fibre
(median 3.1); halved, they start at 1.1 (median 1.5), and London-Frankfurt's 14 ms is what ping shows. Hulk's latencies
are one way, so the latency fit is on half the published figures.

Latency    one way = 1.397 × great circle / (2e8 m/s) + 2.83 ms     least squares of the relative error;
           error over the 45 pairs: median 13 %, at most 47 % (Seoul-Frankfurt, whose cables go the long way)
Bandwidth  one flow = 77.5 Mbit / round trip, at most 1.05 Gbit/s     least squares in log-log;
           error over the 45 pairs: median 8 %, mean 13 %, at most 55 % (a free power of the latency is no better: its
           best exponent is -0.88 and the error falls from 16.5 % to 16.3 % rms)
           Near places do better than 1.05 Gbit/s: the same paper's figure inside a region, 2 Gbit/s at 5 ms, gives the
           short branch 10 Mbit / round trip. It rests on that one figure.
"""

from __future__ import annotations

import math

from hulk.domain.cluster import Region

EARTH_RADIUS = 6.371e6  # metres
FIBRE_SPEED = 2.0e8  # metres a second: light in glass
DETOUR = 1.397  # cable length over great circle
LATENCY_FLOOR = 2.83e-3  # seconds one way: routers, last miles

_MEGABIT = 1e6 / 8  # bytes
_WINDOW = 77.5 * _MEGABIT  # bytes in flight of one TCP flow over a long path
_LONG_HAUL_MOST = 1050 * _MEGABIT  # bytes/s of one flow between regions
_NEAR_WINDOW = 10 * _MEGABIT  # bytes in flight inside a region: 2 Gbit/s × 5 ms
_MOST = 100e3 * _MEGABIT  # bytes/s: no flow is estimated faster than 100 Gbit/s

INSIDE_LATENCY = 0.5e-3  # seconds one way between two machines of a region, where nothing is said


def distance(a: Region, b: Region) -> float | None:
    """Great circle between two regions in metres (haversine); None where one has no coordinates."""
    if a.latitude is None or a.longitude is None or b.latitude is None or b.longitude is None:
        return None
    phi, psi = math.radians(a.latitude), math.radians(b.latitude)
    turn = math.radians(b.longitude - a.longitude)
    h = math.sin((psi - phi) / 2) ** 2 + math.cos(phi) * math.cos(psi) * math.sin(turn / 2) ** 2
    return 2 * EARTH_RADIUS * math.asin(math.sqrt(min(1.0, h)))


def latency_from_distance(metres: float) -> float:
    """Seconds one way between two regions that far apart."""
    return DETOUR * metres / FIBRE_SPEED + LATENCY_FLOOR


def bandwidth_from_latency(seconds: float) -> float:
    """Bytes/s of one flow over a link with that latency (one way): falls as the latency grows."""
    round_trip = 2 * seconds
    if round_trip * _MOST <= _NEAR_WINDOW:
        return _MOST
    return max(min(_LONG_HAUL_MOST, _WINDOW / round_trip), _NEAR_WINDOW / round_trip)
