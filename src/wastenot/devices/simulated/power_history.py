"""The course of a simulated GPU's power by part, and what sensors that look back see of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray

LAG_REACH = 12.0
"""Time constants that a sensor's lag looks back."""


def mean_power_w(moment_s: FloatArray, energy_j: FloatArray) -> FloatArray:
    """Mean power between moments, 0 where no time is between; shapes (moments,), (..., moments), (..., stretches)."""
    span = np.diff(moment_s)
    used_j = np.diff(energy_j)
    return np.asarray(np.divide(used_j, span, out=np.zeros_like(used_j), where=np.broadcast_to(span > 0.0, used_j.shape)))


def lag_of(moment_s: FloatArray, power_w: FloatArray, end_s: float, lag_s: float, before_w: FloatArray) -> FloatArray:
    """A first-order lag, at one moment, of a power that is constant in stretches, and ``before_w`` outside of them."""
    weights = np.diff(np.exp((np.minimum(moment_s, end_s) - end_s) / lag_s))
    return np.asarray(before_w + (power_w - np.asarray(before_w)[..., None]) @ weights)


@dataclass(frozen=True, slots=True, eq=False)
class PowerHistory:
    """Power as it truly went, constant in stretches; before and after it the GPU idles.

    Attributes:
        moment_s: bounds of the stretches; shape (stretches + 1,).
        energy_j: used since the first moment by base, core and memory; shape (3, stretches + 1).
    """

    moment_s: FloatArray
    energy_j: FloatArray

    def mean_w(self, begin_s: FloatArray, end_s: FloatArray, idle_w: FloatArray) -> FloatArray:
        """Mean power by part over windows. Shapes (windows,) and (3,) of power at idle, result (windows, 3)."""
        span = np.asarray(end_s - begin_s, dtype=float)[:, None]
        return np.asarray((self._energy_at(end_s, idle_w) - self._energy_at(begin_s, idle_w)) / span)

    def lagged_w(self, end_s: FloatArray, lag_s: float, idle_w: FloatArray) -> FloatArray:
        """A first-order lag of power by part, at some moments. Result (moments, 3)."""
        found = np.empty((len(end_s), 3))
        for place, end in enumerate(np.asarray(end_s, dtype=float).tolist()):
            begin, until = np.searchsorted(self.moment_s, [end - LAG_REACH * lag_s, end])
            looked = slice(max(begin - 1, 0), until + 1)
            mean_w = mean_power_w(self.moment_s[looked], self.energy_j[:, looked])
            found[place] = lag_of(self.moment_s[looked], mean_w, end, lag_s, idle_w)
        return found

    def from_moment(self, zero_s: float) -> PowerHistory:
        """The same, its moments counted from another zero: what was moment 0 is now ``zero_s``."""
        return PowerHistory(self.moment_s + zero_s, self.energy_j)

    def after(self, earlier: PowerHistory, idle_w: FloatArray) -> PowerHistory:
        """An earlier course, the GPU idling in between, and then this one."""
        idled_j = (self.moment_s[0] - earlier.moment_s[-1]) * idle_w
        energy_j = (earlier.energy_j[:, -1] + idled_j)[:, None] + self.energy_j
        return PowerHistory(
            np.concatenate([earlier.moment_s, self.moment_s]), np.concatenate([earlier.energy_j, energy_j], axis=1)
        )

    def since(self, moment_s: float) -> PowerHistory:
        """What is left of it without stretches that end before a moment."""
        first = min(max(int(np.searchsorted(self.moment_s, moment_s, side="right")) - 1, 0), len(self.moment_s) - 1)
        return PowerHistory(self.moment_s[first:].copy(), self.energy_j[:, first:] - self.energy_j[:, [first]])

    def _energy_at(self, moment_s: FloatArray, idle_w: FloatArray) -> FloatArray:
        inside = np.stack([np.interp(moment_s, self.moment_s, energy_j) for energy_j in self.energy_j], axis=1)
        outside = np.minimum(moment_s - self.moment_s[0], 0.0) + np.maximum(moment_s - self.moment_s[-1], 0.0)
        return np.asarray(inside + outside[:, None] * idle_w)
