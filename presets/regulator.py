"""The power regulator of the H200, and what data does to power, as we saw them without setting anything."""

from __future__ import annotations

from wastenot.devices.simulated.regulator import Regulator
from wastenot.devices.timeline import Data

H200_REGULATOR = Regulator(
    step_s=1e-3,
    sees_s=0.0125,
    exponent=1.4,
    aim=1.035,
    lower_s=0.02,
    lower_by=0.7,
    rise_s=0.03,
    hold_s=0.0165,
    far=0.07,
    mean_s=0.85,
    mean=0.99,
    mean_gain=6.0,
)

H200_TOGGLING: dict[Data, float] = {"sparse": 0.9, "equal rows": 0.75, "zeros": 0.6}
