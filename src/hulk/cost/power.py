"""What a power limit takes from a GPU's matrix rates.

The driver keeps to a limit by lowering the clock. Near the top that also lowers the voltage, and a tenth less power
costs a thirtieth of the clock; once the voltage is at its least, the clock falls with what is left of the power beside
the part that a GPU draws whatever it does. Memory keeps its clock.

The three constants are fitted to 55 steps of pipelined training under limits from one half of the full power on: five
models on four A100 PCIe and five on eight A40, both of 300 W (artifact of Perseus, SOSP 2024: ml-energy/zeus,
sosp24_data/zeus/csv; a sixth model on A40, T5, did not draw the full power and is left out). Step times by the rule are
4.6 % off in the mean and 13 % at most; 2.4 % and 9 % down to three quarters. A load that does not draw the full power
loses less than the rule says: that T5 nothing down to 58 %.
"""

from __future__ import annotations

import math

LEAST_SHARE = 0.5
"""The lowest limit, as a share of the full power, that the rule was fitted to."""
_EXPONENT = 0.3
_KNEE = 0.8
_STATIC = 0.12


def rate_share(share: float) -> float:
    """Share of the matrix rates that is left under a limit of that share of the full power, from `LEAST_SHARE` to 1."""
    if share >= _KNEE:
        return math.pow(share, _EXPONENT)
    return math.pow(_KNEE, _EXPONENT) * (share - _STATIC) / (_KNEE - _STATIC)
