"""Maps timestamps of the GPU's clock to the host's: FinGraV's step 6, with the drift that the paper leaves to future work.

    host   before ──────────┬────────── after         the GPU's clock was read at some moment in between
    GPU                     gpu

Only the fastest round trips count, since what delays the others is unknown and one-sided. A straight line through them gives
offset and drift; half the fastest round trip bounds the offset's error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import DeviceError
from wastenot.devices.instrument import RoundTrip

_MIN_ROUND_TRIPS = 3
_FASTEST_FRACTION = 0.3
_MIN_DRIFT_SPAN_S = 0.05  # shorter spans do not determine the drift


@dataclass(frozen=True, slots=True)
class ClockFit:
    """gpu = gpu_s + (1 + drift) · (host - host_s).

    Attributes:
        host_s, gpu_s: the same moment on either clock.
        drift: relative rate by which the GPU's clock runs fast.
        delay_s: half the fastest round trip: from requesting the GPU's clock to its reading.
        error_s: standard error of mapped timestamps within the span of the round trips.
    """

    host_s: float
    gpu_s: float
    drift: float
    delay_s: float
    error_s: float

    @classmethod
    def through(cls, first: RoundTrip, last: RoundTrip, min_span_s: float = 1.0) -> ClockFit:
        """The line through two round trips, exact at the second; without drift where they are closer than ``min_span_s``."""
        host_s = 0.5 * (last.before_s + last.after_s)
        span_s = host_s - 0.5 * (first.before_s + first.after_s)
        drift = (last.gpu_s - first.gpu_s) / span_s - 1.0 if span_s > min_span_s else 0.0
        delay_s = 0.5 * max(first.after_s - first.before_s, last.after_s - last.before_s)
        return cls(host_s, last.gpu_s, drift, delay_s, 0.5 * delay_s)

    def host(self, gpu_s: FloatArray) -> FloatArray:
        """GPU timestamps on the host's clock."""
        return np.asarray(self.host_s + (gpu_s - self.gpu_s) / (1.0 + self.drift))


def fit_clocks(round_trips: Iterable[RoundTrip], *, drift: bool = True) -> ClockFit:
    """Fit the mapping between the two clocks.

    Args:
        round_trips: over the time of interest.
        drift: fit the drift as well as the offset.

    Raises:
        DeviceError: there are too few round trips, or the GPU's clock stands still or runs backwards.
    """
    trips = sorted(round_trips, key=lambda trip: trip.before_s)
    before = np.array([trip.before_s for trip in trips])
    gpu = np.array([trip.gpu_s for trip in trips])
    after = np.array([trip.after_s for trip in trips])
    if len(before) < _MIN_ROUND_TRIPS:
        raise DeviceError(
            f"the GPU's clock cannot be synchronised: {len(before)} round trips, at least {_MIN_ROUND_TRIPS} needed"
        )
    if not (np.all(np.isfinite(gpu)) and np.all(np.diff(gpu) >= 0.0) and gpu[-1] > gpu[0]):
        raise DeviceError("the GPU's clock cannot be synchronised: it stands still or runs backwards between readings")
    duration = after - before
    fastest = duration <= np.quantile(duration, _FASTEST_FRACTION)
    host = (0.5 * (before + after))[fastest]
    centre = float(host.mean())
    offset = gpu[fastest] - host
    slope = 0.0
    if drift and np.ptp(host) > _MIN_DRIFT_SPAN_S and len(host) > 2:
        slope = float((host - centre) @ (offset - offset.mean()) / float(np.sum((host - centre) ** 2)))
    residual = offset - offset.mean() - slope * (host - centre)
    scatter = float(np.sqrt(np.mean(residual**2)))
    delay = 0.5 * float(duration.min())
    error = float(np.hypot(scatter / np.sqrt(len(host)), 0.25 * delay))
    return ClockFit(centre, centre + float(offset.mean()), slope, delay, error)
