"""The power regulator of the H200, and what data does to power, as we saw them without setting anything."""

from __future__ import annotations

from wastenot.devices.simulated.regulator import Regulator

H200_REGULATOR = Regulator(
    step_s=1e-3,
    sees_s=4e-3,
    exponent=2.0,
    fall_s=3e-3,
    rise_s=0.03,
    hold_s=0.016,
    far=0.05,
    swing=0.1,
    swing_s=1.0,
    mean_s=0.5,
)

H200_TOGGLING = {"sparse": 0.9, "equal rows": 0.75, "zeros": 0.6}
