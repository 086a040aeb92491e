r"""The power regulator of a simulated GPU: how its core clock comes down when power exceeds the limit, and rises again.

    power   ▁▁▁██▆▅▅▅▅▅▅▅▅▅▁▅▅▅▅▅▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁    products, then a light kernel
    clock   ‾‾‾‾‾\__________\_/‾‾‾\______/‾‾‾‾‾‾    it is lowered, dips, is held, and rises again

Two loops act on the clock. The fast one sees power late, and aims at a little more than the limit. From what it sees it
works out the clock at which power would be what it aims at, as if power grew with a fixed exponent of the clock, and moves
towards it by steps at random moments; upwards only once power has been far below for a while. The slow loop lowers the aim
while mean power over about a second is above the limit: as long as that second remembers a dip, nothing is too much, so
that dips follow each other about once in a second.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Annotated

import numpy as np
from pydantic import Field

from wastenot.core.documents import NotNegative, Positive
from wastenot.devices.simulated.hardware import PresetPart


class Regulator(PresetPart):
    """Constants of a regulator.

    Attributes:
        step_s: interval of the simulation; the clock is constant in between.
        sees_s: time constant of the lag with which it sees power.
        exponent: of the clock, by which it takes power to grow.
        aim: what the fast loop aims at, relative to the limit.
        act_s: mean time between steps; at least half of it.
        lower_by, raise_by: fraction of the way to the clock it wants that a step covers, downwards and upwards.
        hold_s: how long power has to be far below what it aims at before the clock rises.
        far: fraction that counts as far below.
        mean_s: the time over which the slow loop takes the mean.
        mean: limit of that mean, relative to the power limit.
        mean_gain: relative reduction of the aim for each relative excess of that mean.
        bursts: whether it acts on the bursts of profiles too; where it does not, each execution in them runs as in steady
            state from the first on.
    """

    step_s: Positive
    sees_s: Positive
    exponent: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    aim: Positive
    act_s: Positive
    lower_by: Annotated[float, Field(gt=0, le=1)]
    raise_by: Annotated[float, Field(gt=0, le=1)]
    hold_s: NotNegative
    far: Annotated[float, Field(gt=0, lt=1)]
    mean_s: Positive
    mean: Positive
    mean_gain: NotNegative
    bursts: bool = False


class RegulatedClock:
    """The core clock under a regulator.

    Args:
        regulator: its constants.
        lowest_mhz, highest_mhz: range of the clock.
        idle_w: power before it began.
        seed: of the moments at which it acts.
    """

    def __init__(
        self, regulator: Regulator, lowest_mhz: float, highest_mhz: float, idle_w: float, seed: tuple[int, ...]
    ) -> None:
        self._regulator = regulator
        self._lowest_mhz, self._highest_mhz = lowest_mhz, highest_mhz
        self.core_mhz = highest_mhz
        self._rng = np.random.default_rng(seed)
        self._sees = -math.expm1(-regulator.step_s / regulator.sees_s)
        self._past_w: deque[float] = deque()
        self._sum_w = self._seen_w = 0.0
        self._acts_in_s = self._quiet_s = 0.0
        self._forget(idle_w)

    def step(self, power_w: float, limit_w: float, ceiling_mhz: float) -> None:
        """Act on the time since the last step, which is ``step_s``.

        Args:
            power_w: mean power in it.
            limit_w: the power limit.
            ceiling_mhz: clock that the setting allows.
        """
        regulator = self._regulator
        self._seen_w += self._sees * (power_w - self._seen_w)
        self._past_w.append(power_w)
        self._sum_w += power_w - self._past_w.popleft()
        excess = self._sum_w / len(self._past_w) / (regulator.mean * limit_w) - 1.0
        aim_w = limit_w * regulator.aim * max(1.0 - regulator.mean_gain * max(excess, 0.0), 0.1)
        ceiling_mhz = min(ceiling_mhz, self._highest_mhz)
        wanted_mhz = self.core_mhz * (aim_w / self._seen_w) ** (1.0 / regulator.exponent)
        wanted_mhz = min(max(wanted_mhz, self._lowest_mhz), ceiling_mhz)
        quiet = self._seen_w < (1.0 - regulator.far) * aim_w
        self._quiet_s = self._quiet_s + regulator.step_s if quiet else 0.0
        self._acts_in_s -= regulator.step_s
        if self._acts_in_s > 0.0:
            return
        if wanted_mhz < self.core_mhz:
            self.core_mhz += regulator.lower_by * (wanted_mhz - self.core_mhz)
        elif not quiet or self._quiet_s >= regulator.hold_s:
            self.core_mhz += regulator.raise_by * (wanted_mhz - self.core_mhz)
        self._acts_in_s = self._next_s()

    def rest(self, seconds: float, power_w: float) -> None:
        """Let the GPU rest: afterwards nothing holds the clock."""
        steps = min(round(seconds / self._regulator.step_s), len(self._past_w))
        for _ in range(steps):
            self._past_w.append(power_w)
            self._sum_w += power_w - self._past_w.popleft()
        self._seen_w = power_w + (self._seen_w - power_w) * math.exp(-seconds / self._regulator.sees_s)
        self.core_mhz, self._quiet_s = self._highest_mhz, self._regulator.hold_s

    def _forget(self, power_w: float) -> None:
        regulator = self._regulator
        self._past_w = deque([power_w] * max(round(regulator.mean_s / regulator.step_s), 1))
        self._sum_w, self._seen_w = power_w * len(self._past_w), power_w
        self._acts_in_s, self._quiet_s = self._next_s(), regulator.hold_s

    def _next_s(self) -> float:
        return self._regulator.act_s * (0.5 + 0.5 * float(self._rng.exponential()))
