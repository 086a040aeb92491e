r"""The power regulator of a simulated GPU: how its core clock follows power that exceeds the limit, and recovers.

    power   ▁▁▁██▆▅▅▅▅▅▆▅▅▅▅▅▆▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁      products, then a light kernel
    clock   ‾‾‾‾‾\__________/‾\_________/‾‾‾‾      it falls within milliseconds, swings, is held, and rises again

The regulator sees power late. From what it sees it works out the clock at which power would be the limit, as if power grew
with a fixed exponent of the clock, and moves towards that clock: fast downwards, slowly upwards. Power far below the limit
has to stay there for a while before the clock rises at all. A slow correction makes mean power meet the limit while the
clock is held down: under steady load, and under a mixture of heavy and light kernels too.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from wastenot.devices.simulated.hardware import NotNegative, Part, Positive


class Regulator(Part):
    """Constants of a regulator.

    Attributes:
        step_s: interval at which it acts; the clock is constant in between.
        sees_s: time constant with which it sees power.
        exponent: of the clock, by which it takes power to grow.
        fall_s: time constant with which the clock falls.
        rise_s: time constant with which it rises.
        hold_s: how long power has to stay far below the limit before the clock rises.
        far: fraction of the limit that counts as far below it.
        swing: fraction by which the power that it aims at swings around the limit.
        swing_s: period of that swing.
        mean_s: time constant with which mean power is corrected to the limit.
    """

    step_s: Positive
    sees_s: Positive
    exponent: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    fall_s: Positive
    rise_s: Positive
    hold_s: NotNegative
    far: Annotated[float, Field(gt=0, lt=1)]
    swing: Annotated[float, Field(ge=0, lt=0.5)]
    swing_s: Positive
    mean_s: Positive


class RegulatedClock:
    """The core clock under a regulator; every :meth:`step` takes ``step_s``.

    Args:
        regulator: its constants.
        lowest_mhz, highest_mhz: range of the clock.
        power_w: power that it sees at first.
        phase: of the swing at first, as a fraction of its period.
    """

    def __init__(self, regulator: Regulator, lowest_mhz: float, highest_mhz: float, power_w: float, phase: float) -> None:
        self._regulator = regulator
        self._lowest_mhz, self._highest_mhz = lowest_mhz, highest_mhz
        self.core_mhz = highest_mhz
        self._seen_w = power_w
        self._quiet_s = regulator.hold_s  # for how long power has been far below the limit
        self._correction = 0.0
        self._phase = phase
        step = regulator.step_s
        self._sees, self._falls, self._rises = (
            -math.expm1(-step / lag_s) for lag_s in (regulator.sees_s, regulator.fall_s, regulator.rise_s)
        )

    def step(self, power_w: float, limit_w: float, ceiling_mhz: float) -> None:
        """Act once.

        Args:
            power_w: mean power since the last step.
            limit_w: the power limit.
            ceiling_mhz: clock that the setting allows.
        """
        regulator = self._regulator
        self._seen_w += self._sees * (power_w - self._seen_w)
        self._phase += regulator.step_s / regulator.swing_s
        aim_w = limit_w * (1.0 + regulator.swing * math.sin(math.tau * self._phase) + self._correction)
        ceiling_mhz = min(ceiling_mhz, self._highest_mhz)
        wanted_mhz = self.core_mhz * (aim_w / self._seen_w) ** (1.0 / regulator.exponent)
        wanted_mhz = min(max(wanted_mhz, self._lowest_mhz), ceiling_mhz)
        near = self._seen_w > (1.0 - regulator.far) * aim_w
        self._quiet_s = 0.0 if near else self._quiet_s + regulator.step_s
        if self.core_mhz < ceiling_mhz:
            off = regulator.step_s / regulator.mean_s * (1.0 - power_w / limit_w)
            self._correction = min(max(self._correction + off, -0.2), 0.2)
        if wanted_mhz < self.core_mhz:
            self.core_mhz += self._falls * (wanted_mhz - self.core_mhz)
        elif near or self._quiet_s >= regulator.hold_s:
            self.core_mhz += self._rises * (wanted_mhz - self.core_mhz)

    def rest(self, seconds: float, power_w: float) -> None:
        """Let it rest: the clock is free again afterwards, however long that takes."""
        self._phase += seconds / self._regulator.swing_s
        self._seen_w = power_w + (self._seen_w - power_w) * math.exp(-seconds / self._regulator.sees_s)
        self.core_mhz, self._quiet_s = self._highest_mhz, self._regulator.hold_s
