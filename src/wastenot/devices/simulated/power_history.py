"""The history of a simulated GPU's power by part, and what sensors with a window or a lag read from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray

LAG_REACH = 12.0
"""How many time constants a sensor's lag looks back."""


def mean_power_w(moment_s: FloatArray, energy_j: FloatArray) -> FloatArray:
    """Mean power between moments, 0 where they coincide; shapes (moments,) and (..., moments) to (..., moments - 1)."""
    span = np.diff(moment_s)
    used_j = np.diff(energy_j)
    return np.asarray(np.divide(used_j, span, out=np.zeros_like(used_j), where=np.broadcast_to(span > 0.0, used_j.shape)))


def lag_of(moment_s: FloatArray, power_w: FloatArray, end_s: float, lag_s: float, before_w: FloatArray) -> FloatArray:
    """First-order lag at one moment of a power that is piecewise constant, and ``before_w`` outside of the pieces."""
    weights = np.diff(np.exp((np.minimum(moment_s, end_s) - end_s) / lag_s))
    return np.asarray(before_w + (power_w - np.asarray(before_w)[..., None]) @ weights)


@dataclass(frozen=True, slots=True, eq=False)
class PowerHistory:
    """True power over time, piecewise constant; before and after it the GPU idles.

    Attributes:
        moment_s: bounds of the pieces; shape (pieces + 1,).
        energy_j: energy used since the first moment by base, core and memory; shape (3, pieces + 1).
    """

    moment_s: FloatArray
    energy_j: FloatArray

    def mean_w(self, begin_s: FloatArray, end_s: FloatArray, idle_w: FloatArray) -> FloatArray:
        """Mean power by part over windows. Shapes (windows,) and (3,) of power at idle, result (windows, 3)."""
        span = np.asarray(end_s - begin_s, dtype=float)[:, None]
        return np.asarray((self._energy_at(end_s, idle_w) - self._energy_at(begin_s, idle_w)) / span)

    def lagged_w(self, end_s: FloatArray, lag_s: float, idle_w: FloatArray) -> FloatArray:
        """First-order lag of power by part at given moments. Result (moments, 3)."""
        lagged_w = np.empty((len(end_s), 3))
        for index, end in enumerate(np.asarray(end_s, dtype=float).tolist()):
            begin, until = np.searchsorted(self.moment_s, [end - LAG_REACH * lag_s, end])
            visible = slice(max(begin - 1, 0), until + 1)
            mean_w = mean_power_w(self.moment_s[visible], self.energy_j[:, visible])
            lagged_w[index] = lag_of(self.moment_s[visible], mean_w, end, lag_s, idle_w)
        return lagged_w

    def after(self, earlier: PowerHistory, idle_w: FloatArray) -> PowerHistory:
        """An earlier history followed by this one, with the GPU idle in between."""
        idled_j = (self.moment_s[0] - earlier.moment_s[-1]) * idle_w
        energy_j = (earlier.energy_j[:, -1] + idled_j)[:, None] + self.energy_j
        return PowerHistory(
            np.concatenate([earlier.moment_s, self.moment_s]), np.concatenate([earlier.energy_j, energy_j], axis=1)
        )

    def since(self, moment_s: float) -> PowerHistory:
        """The part of it that ends after a moment."""
        first = min(max(int(np.searchsorted(self.moment_s, moment_s, side="right")) - 1, 0), len(self.moment_s) - 1)
        return PowerHistory(self.moment_s[first:].copy(), self.energy_j[:, first:] - self.energy_j[:, [first]])

    def _energy_at(self, moment_s: FloatArray, idle_w: FloatArray) -> FloatArray:
        inside = np.stack([np.interp(moment_s, self.moment_s, energy_j) for energy_j in self.energy_j], axis=1)
        outside = np.minimum(moment_s - self.moment_s[0], 0.0) + np.maximum(moment_s - self.moment_s[-1], 0.0)
        return np.asarray(inside + outside[:, None] * idle_w)
