"""What an applied plan has saved so far, and how sure that is: pairs of stretches, and the energy used at the plan's clocks.

With ρ the mean logarithm of energy at a rung against the default clocks, energy E that was used at that rung would have been
E/exp(ρ) at the default clocks: E·(exp(−ρ) − 1) was saved. Of iterations that settle, only the time counts in which the
clocks have arrived.

Leakage grows with temperature. So stretches are compared as if they had one temperature: by the slope of energy and time
with temperature that stretches of one rung show, which begins as what is usual. A job that ran at the default clocks all
along would be warmer, and use a little more than is stated here.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from wastenot.control.blocks import Stretch
from wastenot.control.estimate import LogMean, log_mean
from wastenot.control.status import Estimate, Proof
from wastenot.control.traffic import Traffic

_USUAL_SLOPE, _SLOPE_ERROR = 3e-4, 3e-4  # of the logarithm of an iteration's energy, by degree, where nothing was seen
_SCATTER = 0.003  # of a stretch, that is taken for chance


@dataclass(slots=True)
class Slope:
    """Growth with temperature, by stretches so far; as usual, with its error, before there are any."""

    usual: float
    count: int = 0
    mean_c: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def learn(self, temperature_c: float, value: float) -> None:
        """Take note of a stretch."""
        self.count += 1
        above_c = temperature_c - self.mean_c
        self.mean_c += above_c / self.count
        self.mean += (value - self.mean) / self.count
        self.squares += above_c * (temperature_c - self.mean_c)
        self.products += above_c * (value - self.mean)

    @property
    def value(self) -> float:
        """Growth by degree."""
        doubt = (_SCATTER / _SLOPE_ERROR) ** 2
        return (self.products + self.usual * doubt) / (self.squares + doubt)


@dataclass(slots=True)
class OfRung:
    """What was seen at a rung.

    Attributes:
        times: of pairs, the logarithm of the ratio of times, and how much warmer the plan's stretches were.
        energies: likewise.
        used_j: energy used.
        time_slope: growth of the logarithm of an iteration's time with temperature.
        energy_slope: likewise.
    """

    times: list[tuple[float, float]] = field(default_factory=list)
    energies: list[tuple[float, float]] = field(default_factory=list)
    used_j: float = 0.0
    time_slope: Slope = field(default_factory=lambda: Slope(0.0))
    energy_slope: Slope = field(default_factory=lambda: Slope(_USUAL_SLOPE))

    def energy(self) -> LogMean | None:
        """Energy against the default clocks, as if at one temperature."""
        return log_mean([ratio - self.energy_slope.value * warmer for ratio, warmer in self.energies])


class Ledger:
    """Pairs and energy of a job, rung by rung.

    Args:
        latency_s: that clocks need to arrive.
        traffic: of the GPUs, where it is followed beside the iterations.

    Attributes:
        error: of progress by proxy, as a logarithm, by which intervals are wider.
    """

    def __init__(self, latency_s: float = 0.0, traffic: Traffic | None = None) -> None:
        self._latency_s, self._traffic = latency_s, traffic
        self.error = 0.0
        self.of_rung: dict[int, OfRung] = {}  # since it was last begun anew
        self._earlier: list[tuple[int, OfRung]] = []
        self.plan_iterations = 0
        self.default_iterations = 0
        self.blocks = 0
        self._open: deque[Stretch] = deque()  # ended, but their energy is not known yet
        self._tail: Stretch | None = None
        self._block: Stretch | None = None

    def add(self, stretch: Stretch) -> None:
        """Take note of a stretch that has ended; in the order in which they do."""
        if stretch.default:
            self.default_iterations += len(stretch.times_s)
        else:
            self.plan_iterations += len(stretch.times_s)
        self._open.append(stretch)

    def settle(self) -> None:
        """Take over stretches whose energy has become known."""
        while self._open and self._open[0].settled:
            self._take(self._open.popleft())

    def begin_anew(self) -> None:
        """Compare from here on alone, as what was compared is not what runs now; what was saved stays."""
        self.settle()
        for stretch in self._open:
            if not stretch.default:
                self.of_rung.setdefault(stretch.rung, OfRung()).used_j += stretch.so_far_j
        self._open.clear()
        self._earlier += self.of_rung.items()
        self.of_rung = {}
        self._tail = self._block = None

    def time(self, rung: int) -> LogMean | None:
        """Time at a rung against the default clocks."""
        return self._wider(log_mean(self.time_pairs(rung)))

    def time_pairs(self, rung: int) -> list[float]:
        """Logarithms of the ratios of times of all pairs at a rung, as if at one temperature."""
        seen = self.of_rung.get(rung)
        return [] if seen is None else [ratio - seen.time_slope.value * warmer for ratio, warmer in seen.times]

    def energy(self, rung: int) -> LogMean | None:
        """Energy at a rung against the default clocks."""
        seen = self.of_rung.get(rung)
        return None if seen is None else self._wider(seen.energy())

    def _wider(self, mean: LogMean | None) -> LogMean | None:
        return mean if mean is None or not self.error else LogMean(mean.mean, mean.half + self.error)

    def saved_j(self, present: int = 0, running_j: float = 0.0) -> Estimate | None:
        """All that was saved, at those rungs of which there are pairs.

        Args:
            present: rung of a stretch that runs.
            running_j: that it has used so far.
        """
        value = variance = 0.0
        known = False
        for rung, of_rung in (*self._earlier, *self.of_rung.items()):
            ratio = self._wider(of_rung.energy() or self._elsewhere(rung))
            used_j = of_rung.used_j
            if of_rung is self.of_rung.get(rung):
                open_j = math.fsum(each.so_far_j for each in self._open if each.rung == rung and not each.default)
                used_j += open_j + (running_j if rung == present else 0.0)
            if ratio is None or used_j <= 0.0:
                continue
            known = True
            value += used_j * math.expm1(-ratio.mean)
            variance += (used_j * math.exp(-ratio.mean) * ratio.half) ** 2
        half = math.sqrt(variance)
        return Estimate(value=value, low=value - half, high=value + half) if known else None

    def proof(self, rung: int, running_j: float = 0.0) -> Proof:
        """What is known so far; arguments as of :meth:`saved_j`."""
        time, energy = self.time(rung), self.energy(rung)
        return Proof(
            time_change=None if time is None else time.change,
            energy_change=None if energy is None else energy.change,
            saved_j=self.saved_j(rung, running_j),
            plan_iterations=self.plan_iterations,
            default_iterations=self.default_iterations,
            blocks=self.blocks,
        )

    def _elsewhere(self, rung: int) -> LogMean | None:
        """Energy at a rung by what was compared before or since, where it is not known by itself."""
        of_rung = [seen for at, seen in (*self._earlier, *self.of_rung.items()) if at == rung and len(seen.energies) > 1]
        return of_rung[-1].energy() if of_rung else None

    def _take(self, stretch: Stretch) -> None:
        if stretch.default:
            if stretch.part == "block":
                self.blocks += 1
                self._block = stretch if self._tail is not None else None
            return
        of_rung = self.of_rung.setdefault(stretch.rung, OfRung())
        used_j = stretch.energy_j or 0.0
        if stretch.part == "settle":
            arrived = 1.0 - self._latency_s / math.fsum(stretch.times_s)
            of_rung.used_j += used_j * max(arrived, 0.0)
            return
        of_rung.used_j += used_j
        if stretch.part == "rest":
            return
        if not stretch.spoiled and (temperature_c := stretch.temperature_c) is not None:
            of_rung.time_slope.learn(temperature_c, math.log(stretch.mean_s))
            if used_j:
                of_rung.energy_slope.learn(temperature_c, math.log(used_j / len(stretch.times_s)))
        if stretch.part == "head" and self._tail is not None and self._block is not None:
            self._pair(self._tail, self._block, stretch, of_rung)
        self._block = None
        self._tail = stretch if stretch.part == "tail" else None

    def _pair(self, before: Stretch, block: Stretch, after: Stretch, of_rung: OfRung) -> None:
        three = (before, block, after)
        if before.rung != after.rung or any(stretch.spoiled for stretch in three):
            return
        first_c, default_c, second_c = (stretch.temperature_c for stretch in three)
        known = first_c is not None and default_c is not None and second_c is not None
        warmer = 0.5 * (first_c + second_c) - default_c if known else 0.0  # type: ignore[operator]
        of_rung.times.append((0.5 * math.log(before.mean_s * after.mean_s) - math.log(block.mean_s), warmer))
        if self._traffic is not None:
            self._traffic.compare(before.rung, three)
        first_j, default_j, second_j = (stretch.iteration_j for stretch in three)
        if first_j is not None and default_j is not None and second_j is not None:
            of_rung.energies.append((0.5 * math.log(first_j * second_j) - math.log(default_j), warmer))
