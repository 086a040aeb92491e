"""The host's clock and the GPU's told together: FinGraV's step 6, with the drift that the paper leaves to future work.

    host   before ──────────┬────────── after         the GPU's clock was read somewhere between
    GPU                     gpu

Of round trips close to each other only the fastest counts: what made the others slow lies on either way. A straight line
through what is left gives offset and drift; the time that the fastest takes bounds what the line may be off by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import RoundTrip
from wastenot.errors import DeviceError

_LEAST_TRIPS = 3
_FASTEST_SHARE = 0.3
_DRIFT_NEEDS_S = 0.05  # over less time nothing is learnt of drift


@dataclass(frozen=True, slots=True)
class ClockFit:
    """gpu = gpu_s + (1 + drift) · (host - host_s).

    Attributes:
        host_s, gpu_s: one moment on either clock.
        drift: by which the GPU's clock runs faster, as a share.
        delay_s: half the time of the fastest round trip: from asking for the GPU's clock to its being read.
        error_s: standard error of moments told over, within the time that was looked at.
    """

    host_s: float
    gpu_s: float
    drift: float
    delay_s: float
    error_s: float

    def host(self, gpu_s: FloatArray) -> FloatArray:
        """Moments of the GPU's clock on the host's."""
        return np.asarray(self.host_s + (gpu_s - self.gpu_s) / (1.0 + self.drift))


def fit_clocks(trips: Iterable[RoundTrip], *, drift: bool = True) -> ClockFit:
    """Tell the two clocks together.

    Args:
        trips: round trips over the time of interest.
        drift: whether the clocks may run differently fast.

    Raises:
        DeviceError: they cannot be told together: too few round trips, or a clock that stands still or goes back.
    """
    given = sorted(trips, key=lambda trip: trip.before_s)
    before = np.array([trip.before_s for trip in given])
    gpu = np.array([trip.gpu_s for trip in given])
    after = np.array([trip.after_s for trip in given])
    if len(before) < _LEAST_TRIPS:
        raise DeviceError(f"the GPU's clock cannot be synchronised: {len(before)} round trips, {_LEAST_TRIPS} are needed")
    if not (np.all(np.isfinite(gpu)) and np.all(np.diff(gpu) >= 0.0) and gpu[-1] > gpu[0]):
        raise DeviceError("the GPU's clock cannot be synchronised: it stands still or goes back between readings")
    took = after - before
    fastest = took <= np.quantile(took, _FASTEST_SHARE)
    host, seen = (0.5 * (before + after))[fastest], gpu[fastest]
    middle = float(host.mean())
    ahead = seen - host
    spread = float(np.sum((host - middle) ** 2))
    slope = 0.0
    if drift and np.ptp(host) > _DRIFT_NEEDS_S and len(host) > 2:
        slope = float((host - middle) @ (ahead - ahead.mean()) / spread)
    left = ahead - ahead.mean() - slope * (host - middle)
    scatter = float(np.sqrt(np.mean(left**2)))
    delay = 0.5 * float(took.min())
    error = float(np.hypot(scatter / np.sqrt(len(host)), 0.25 * delay))
    return ClockFit(middle, middle + float(ahead.mean()), slope, delay, error)
