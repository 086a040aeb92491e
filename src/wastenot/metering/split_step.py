"""A step of the energy counter that a window's edge cuts in two: what lies on either side, and how well that is known.

The formulas are those of :mod:`wastenot.metering.window_energy`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_CHANGED = 4.0  # so many times the scatter, neighbours differ by a change of the load
_SUDDEN = 0.1  # share of the difference between a sudden change and none that is doubted


@dataclass(frozen=True, slots=True)
class CutStep:
    """A step that is cut (or two taken as one), and the power around it.

    Attributes:
        begin_s: of the step.
        length_s: of it.
        power_w: its mean.
        left_w: mean of the step before.
        right_w: mean of the step after.
        scatter_w: of the steps near it, whatever the reason.
        varies_w: how much power varies within a step, as standard deviation of steps.
        widths_s: of its two moments.
    """

    begin_s: float
    length_s: float
    power_w: float
    left_w: float
    right_w: float
    scatter_w: float
    varies_w: float
    widths_s: tuple[float, float]

    def place(self, moment_s: float) -> float:
        """Where in the step a moment is; 0 to 1."""
        return min(max((moment_s - self.begin_s) / self.length_s, 0.0), 1.0)

    @property
    def change_at(self) -> float | None:
        """Where the one change from left to right was; ``None`` where there was none that stands out."""
        apart = self.right_w - self.left_w
        if abs(apart) <= _CHANGED * self.scatter_w:
            return None
        return min(max((self.right_w - self.power_w) / apart, 0.0), 1.0)

    @property
    def stands_out_w(self) -> float:
        """By how much more than its scatter the power is above both neighbours', or (negative) below both."""
        low, high = sorted((self.left_w, self.right_w))
        apart = self.power_w - min(max(self.power_w, low), high)
        return math.copysign(math.sqrt(max(apart**2 - self.scatter_w**2, 0.0)), apart)

    def used_j(self, x: float) -> float:
        """Energy used up to a place."""
        y = self.change_at
        if y is None:
            return self.power_w * x * self.length_s
        rest = self.power_w - (self.left_w * y + self.right_w * (1.0 - y))
        return (self.left_w * min(x, y) + self.right_w * max(0.0, x - y) + rest * x) * self.length_s

    def variance_j2(self, x: float) -> float:
        """Variance of :meth:`used_j`, that of the sensor's noise apart."""
        y = self.change_at
        there_w = self.power_w if y is None else self.left_w if x < y else self.right_w
        first, second = self.widths_s
        timing = there_w**2 * (((1.0 - x) * first) ** 2 + (x * second) ** 2) / 12.0
        shape = self.length_s**2 * x * (1.0 - x) * (self.varies_w**2 + self.stands_out_w**2)
        model = (_SUDDEN * (self.used_j(x) - self.power_w * x * self.length_s)) ** 2
        return timing + shape + model

    def between_j(self, x: float, z: float) -> tuple[float, float]:
        """Energy between two places and its variance, that of the sensor's noise apart."""
        share = z - x
        if share <= 0.0:
            return 0.0, 0.0
        whole = self.power_w * self.length_s
        plain = self.used_j(z) - self.used_j(x)
        first, second = self.widths_s
        widths2 = first**2 + second**2
        variance = (plain / self.length_s) ** 2 * widths2 / 12.0
        if self.change_at is not None:
            # The place of the change is as uncertain as the step's moments, and the window's edges may be near it.
            variance += (self.right_w - self.left_w) ** 2 * widths2 / 24.0 + (_SUDDEN * (plain - whole * share)) ** 2
        variance += self.length_s**2 * share * (1.0 - share) * self.varies_w**2
        # All that stands out may be the window's own, or no more of it than the window's share.
        all_of_it = min(max(plain + self.stands_out_w * (1.0 - share) * self.length_s, 0.0), whole)
        half = 0.5 * (all_of_it - plain)
        return plain + half, variance + half**2
