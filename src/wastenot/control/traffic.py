"""Progress of a program that reports no iterations, by proxy: by what its GPUs move through their memory.

    traffic            ╱‾‾  an iteration moves the same bytes at any core clock, whatever its kernels are bound by: so the
                 ╱‾‾‾‾╱     time that a unit of traffic takes stands for the time of an iteration
    ╱‾‾‾‾╱‾‾‾‾‾‾╱
    units  ├────┼────┼────┤

A unit is as much traffic as makes units take alike at the default clocks: an iteration or several where these have phases,
and else whatever takes a second. Cycles in which multiprocessors are active would not do: in memory-bound kernels warps wait
for the memory at any clock, so that these fall with the clock though the work is the same.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from wastenot.control.blocks import Stretch
from wastenot.control.estimate import log_mean
from wastenot.core.arrays import FloatArray
from wastenot.core.errors import DeviceError
from wastenot.devices.open import is_virtual
from wastenot.devices.protocol import Device

_TOLD = 0.01  # half length of the interval of an error that counts
_EACH_S = 0.2  # between samples: twice as long as NVML takes to refresh its own
_REMEMBERED = 3000  # samples: ten minutes
_FIRST_S, _LONGEST_S, _AGAIN_S = 30.0, 120.0, 10.0  # of samples by which a unit is chosen; between attempts
_LEAST_UNIT_S, _STEP = 1.0, 1.002  # candidates: the shortest, and how much longer the next one is
_LEAST_UNITS = 6  # of a candidate among the samples
_ALIKE, _UNLIKE = 0.005, 0.05  # scatter of units that is good enough, and with which they say nothing
_LEAST_TRAFFIC = 1e-3  # of the bandwidth; less is what any process causes
_OTHER = 5.0  # by which units are longer or shorter where something else runs
_OTHERS = 3  # of them in a row


def traffic_of(gpus: Sequence[Device], *, rehearsal: bool = False) -> Traffic | None:
    """What follows the traffic of a program on GPUs; ``None`` where they run none, or their time is virtual."""
    return None if rehearsal or any(is_virtual(gpu) for gpu in gpus) else Traffic(gpus)


class Traffic:
    """Memory traffic of some GPUs as it grows.

    Args:
        gpus: of a job.

    Attributes:
        due_s: when to take the next sample; never where a GPU does not report it.
        learns: whether iterations are reported as well, so that it can be compared with them.
    """

    def __init__(self, gpus: Sequence[Device]) -> None:
        self._gpus = gpus
        self._moments_s: list[float] = []
        self._totals_s: list[float] = []
        self._ratios: dict[object, list[float]] = {}
        self.due_s = -math.inf
        self.learns = True

    @property
    def known(self) -> bool:
        """Whether the GPUs report their traffic."""
        return math.isfinite(self.due_s)

    def act(self, now_s: float) -> None:
        """Take a sample."""
        try:
            read_s = [gpu.sensors.traffic_s(now_s) for gpu in self._gpus]
        except DeviceError:  # nothing that a job should end for
            read_s = [None]
        known = [each for each in read_s if each is not None]
        if len(known) < len(read_s):
            self.due_s = math.inf
            return
        self.due_s = now_s + _EACH_S
        self._moments_s.append(now_s)
        self._totals_s.append(math.fsum(known))
        if len(self._moments_s) > 2 * _REMEMBERED:
            del self._moments_s[:_REMEMBERED], self._totals_s[:_REMEMBERED]

    def compare(self, what: object, three: Sequence[Stretch], place: float = 0.5) -> None:
        """Take note of how the traffic of an iteration differs between settings, which is by how much the proxy is off.

        Args:
            what: setting that is compared with the default clocks.
            three: stretches one after another, the middle one at one of the two and the others at the other.
            place: of the middle one between the others.
        """
        if not self.learns:
            return
        logs: list[float] = []
        for each in three:
            moved = self.between(each.begin[0].moment_s, each.end[0].moment_s)
            logs.append(math.nan if moved is None else math.log(moved / len(each.times_s)))
        ratio = (1.0 - place) * logs[0] + place * logs[2] - logs[1]
        if math.isfinite(ratio):
            self._ratios.setdefault(what, []).append(ratio)

    def error(self) -> float | None:
        """By how much the proxy was off at the setting where that was most, as a logarithm, without what is noise.

        ``None`` where no setting was compared often enough to tell it to within :data:`_TOLD`.
        """
        means = [mean for ratios in self._ratios.values() if (mean := log_mean(ratios)) is not None and mean.half < _TOLD]
        return max((math.sqrt(max(each.mean**2 - (0.5 * each.half) ** 2, 0.0)) for each in means), default=None)

    def between(self, begin_s: float, end_s: float) -> float | None:
        """Traffic between two moments; ``None`` where it was not followed."""
        moments_s, totals = self._moments_s, self._totals_s
        if not self.known or len(moments_s) < 2 or not moments_s[0] <= begin_s < end_s <= moments_s[-1] + 2.0 * _EACH_S:
            return None
        begin, end = np.interp([begin_s, end_s], moments_s, totals)
        if end_s > moments_s[-1]:  # as the end of a stretch that has only just ended
            end += (end_s - moments_s[-1]) * (totals[-1] - totals[-2]) / (moments_s[-1] - moments_s[-2])
        return float(end - begin) if end > begin else None

    def since(self, moment_s: float) -> tuple[FloatArray, FloatArray]:
        """Samples from a moment on: when, and traffic until then; shape (samples,) each."""
        first = bisect_right(self._moments_s, moment_s)
        return np.array(self._moments_s[first:]), np.array(self._totals_s[first:])


class Units:
    """Counts units of traffic, once it has chosen their size.

    Args:
        traffic: that is followed.
        now_s: from when on.

    Attributes:
        unit_s: time that a unit took when it was chosen; ``None`` until then.
        count: of units that have ended.
        failed: why nothing shows progress; empty where it does, or may yet.
        other: whether the job is nothing like when the unit was chosen.
    """

    def __init__(self, traffic: Traffic, now_s: float) -> None:
        self._traffic, self._began_s = traffic, now_s
        self._try_s = now_s + _FIRST_S
        self.unit_s: float | None = None
        self.count = 0
        self.failed, self.other = "", False
        self._unit = self._next = 0.0  # traffic
        self._last_s = now_s
        self._odd = 0

    def look(self, now_s: float) -> list[float]:
        """The moments at which units have ended since the last look."""
        if not self._traffic.known:
            self.failed = "the GPU no longer reports its memory traffic"
        elif self.unit_s is None and now_s >= self._try_s:
            self._choose(now_s)
        if self.failed or self.unit_s is None:
            return []
        moments_s, totals = self._traffic.since(self._last_s)
        ended: list[float] = []
        while len(totals) and self._next <= totals[-1]:
            ended.append(float(np.interp(self._next, totals, moments_s)))
            odd = not 1.0 / _OTHER < (ended[-1] - self._last_s) / self.unit_s < _OTHER
            self._odd = self._odd + 1 if odd else 0
            self._last_s, self._next = ended[-1], self._next + self._unit
            self.count += 1
        self.other = self._odd >= _OTHERS or now_s - self._last_s > max(_FIRST_S, 2.0 * _OTHER * self.unit_s)
        return ended

    def _choose(self, now_s: float) -> None:
        """Choose a unit by the latest samples, or say why there is none once that took too long."""
        over = now_s - self._began_s >= _LONGEST_S
        self._try_s = now_s + _AGAIN_S
        moments_s, totals = self._traffic.since(self._began_s if over else now_s - _FIRST_S)
        unit_s, unlike = unit_of(moments_s, totals)
        if unlike < (_UNLIKE if over else _ALIKE):
            rate = (totals[-1] - totals[0]) / (moments_s[-1] - moments_s[0])
            self.unit_s, self._unit = unit_s, rate * unit_s
            self._last_s, self._next = float(moments_s[-1]), float(totals[-1]) + self._unit
        elif over:
            self.failed = "its memory traffic has no rhythm" if math.isfinite(unlike) else "its memory traffic stands still"


def unit_of(moments_s: FloatArray, totals: FloatArray) -> tuple[float, float]:
    """The shortest time whose traffic takes alike again and again, or that which comes closest to it.

    Args:
        moments_s: of samples; shape (samples,).
        totals: traffic until each; shape (samples,).

    Returns:
        The time, and the scatter of the times of such units, as a fraction; infinite where hardly anything is moved.
    """
    lasted_s = float(moments_s[-1] - moments_s[0])
    rate = float(totals[-1] - totals[0]) / lasted_s
    if rate < _LEAST_TRAFFIC:
        return lasted_s, math.inf
    best = lasted_s, math.inf
    unit_s = _LEAST_UNIT_S
    while unit_s * _LEAST_UNITS <= lasted_s:
        ends_s = np.interp(np.arange(totals[0], totals[-1], rate * unit_s), totals, moments_s)
        unlike = float(np.std(np.diff(ends_s)) / unit_s)
        if unlike < best[1]:
            best = unit_s, unlike
        if unlike < _ALIKE:
            break
        unit_s *= _STEP
    return best
