"""An A100-like profile of a pipeline, made by formula.

Stage s takes ``40 ms * imbalance[s]`` for a forward and ``80 ms * imbalance[s]`` for a backward at 1410 MHz, where
``imbalance`` is drawn uniformly from [1, 1.12] by ``numpy.random.default_rng(SEED)`` and stretched so that the extremes are
there. At clock f, with r = f / 1410 MHz:

    time   = time at the top * (0.9 / r + 0.1)
    power  = 90 W + P * r * (0.7 + 0.3 * r)^2,   P = 250 W (forward), 270 W (backward)
    energy = time * power

Nothing is added for noise: exponential fits are at their best on curves as smooth as these.
"""

from __future__ import annotations

import numpy as np

SEED = 2024
CLOCKS_MHZ = tuple(range(1410, 914, -15))
WAITING_W = 70.0
TIME_S = {"forward": 0.040, "backward": 0.080}
POWER_W = {"forward": 250.0, "backward": 270.0}

Row = tuple[int, str, int, float, float]


def synthetic_rows(stages: int, imbalance: float = 0.12, seed: int = SEED) -> list[Row]:
    """Rows (stage, instruction, MHz, s, J)."""
    drawn = np.random.default_rng(seed).uniform(size=stages)
    if stages > 1:
        drawn = (drawn - drawn.min()) / np.ptp(drawn)
    return [
        (
            stage,
            name,
            clock,
            (time := TIME_S[name] * (1.0 + imbalance * float(drawn[stage])) * (0.9 / (clock / 1410.0) + 0.1)),
            time * (90.0 + POWER_W[name] * (clock / 1410.0) * (0.7 + 0.3 * clock / 1410.0) ** 2),
        )
        for stage in range(stages)
        for name in ("forward", "backward")
        for clock in CLOCKS_MHZ
    ]
