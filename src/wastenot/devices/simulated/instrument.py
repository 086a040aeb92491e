"""The instrument of a simulated GPU: runs bursts along their true trace, and logs power as its sensors would."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.instrument import STAMPS_S, Burst, BurstRun, Clock, PreparedBurst, RoundTrip
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.bench import Bench
from wastenot.devices.simulated.pace import Pace, load_of, paced
from wastenot.devices.simulated.regulator import RegulatedClock
from wastenot.devices.simulated.trace import Parts, Steady, Trace, trace
from wastenot.devices.timeline import Subject
from wastenot.workloads.kernel import KernelSpec


class SimulatedInstrument:
    """Runs bursts on a simulated GPU.

    Args:
        bench: what they run on.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._dynamics = bench.physics.preset.dynamics
        self.identity = bench.identity
        self.channels = bench.channels
        # A GPU with a power log of its own stamps readings by its own clock, and executions are stamped by the host's.
        self.executions_by: Clock = "host" if bench.has_log else "gpu"
        self.readings_by: Clock = "gpu" if bench.has_log else "host"
        self.resolution_s = self._dynamics.gpu_clock.resolution_s
        regulator = bench.physics.preset.regulator
        self._regulated = regulator is not None and regulator.bursts
        self._stamp_rng = np.random.default_rng([bench.engine.seed, 79])  # of its own: other noise is the same without it

    def now_s(self) -> float:
        """Virtual time."""
        return self._bench.now_s()

    def round_trips(self, times: int) -> tuple[RoundTrip, ...]:
        """Read the GPU's clock."""
        return self._bench.round_trips(times, self._dynamics.gpu_clock)

    @contextmanager
    def prepare(self, burst: Burst) -> Iterator[PreparedBurst]:
        """Check that every kernel of a burst is known; nothing else needs preparing."""
        for kernel in burst.kernels:
            self._steady(kernel)
        yield PreparedBurst(partial(self._run, burst))

    def _run(self, burst: Burst, rest_s: float) -> BurstRun:
        before = self.round_trips(5)
        engine = self._bench.engine
        engine.advance(rest_s)
        actual = self._trace(burst, self._bench.rng, self._bench.rested_clock() if self._regulated else None)
        began_s = engine.now_s
        readings = self._bench.play(actual.history, float(actual.end_s[-1]), began_s - rest_s)
        begin_s, end_s = began_s + actual.begin_s, began_s + actual.end_s
        if self.executions_by == "gpu":
            begin_s, end_s = self._dynamics.gpu_clock.at(begin_s), self._dynamics.gpu_clock.at(end_s)
        trips = before + self.round_trips(5)
        return BurstRun(actual.kernel, begin_s, end_s, readings, trips, counted_mhz=self._counted_mhz(burst, actual))

    def _counted_mhz(self, burst: Burst, actual: Trace) -> FloatArray:
        """Cycles between stamps every few milliseconds, less those skipped; the resolution of the GPU's timer blurs them."""
        engine, physics = self._bench.engine, self._bench.physics
        clocks_mhz = actual.core_mhz
        if clocks_mhz is None:
            tasks = [Task.of_kernel(kernel) for kernel in burst.kernels]
            points = [physics.operating_point(task, engine.setting, engine.temperature_c) for task in tasks]
            clocks_mhz = np.array([point.core_mhz for point in points])[actual.kernel]
        if self._dynamics.cycle_clock.skipped:
            clocks_mhz = clocks_mhz.copy()
            for which, kernel in enumerate(burst.kernels):
                own = actual.kernel == which
                clocks_mhz[own] *= physics.response(kernel, clocks_mhz[own], engine.setting).counted
        seconds = actual.end_s - actual.begin_s
        _, interval = np.unique((np.cumsum(seconds) - 0.5 * seconds) // STAMPS_S, return_inverse=True)
        lasting_s = np.bincount(interval, seconds)
        means_mhz = np.bincount(interval, seconds * clocks_mhz) / lasting_s
        error = self._dynamics.cycle_clock.resolution_s / (math.sqrt(6.0) * lasting_s)
        return np.asarray((means_mhz * (1.0 + error * self._stamp_rng.standard_normal(len(lasting_s))))[interval])

    def _trace(self, burst: Burst, rng: np.random.Generator | None, regulated: RegulatedClock | None = None) -> Trace:
        steady = [self._steady(kernel) for kernel in burst.kernels]
        pace = None
        if regulated is not None:
            engine = self._bench.engine
            at = (engine.setting, engine.temperature_c, 0.0)
            loads = [load_of(self._bench.physics, Subject(kernel), *at) for kernel in burst.kernels]
            pace = partial(paced, Pace(self._bench, loads, regulated))
        return trace(self._dynamics, steady, burst.order, self._idle(), rng, pace)

    def _steady(self, kernel: KernelSpec) -> Steady:
        engine = self._bench.engine
        return self._bench.physics.steady(kernel, engine.setting, engine.temperature_c)

    def _idle(self) -> Parts:
        return self._bench.idle()
