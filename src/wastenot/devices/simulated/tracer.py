"""Tiny iterations on a simulated GPU, with the noise that timing them has on real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import CannotRunError
from wastenot.core.setting import AUTO
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import RoundTrip
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.bench import round_trip
from wastenot.devices.simulated.engine import Engine, History
from wastenot.devices.simulated.preset import Preset
from wastenot.devices.tracer import Load, Trace, TracedRun
from wastenot.workloads.kernel import KernelSpec, Op

_ITERATION_S: dict[Load, float] = {"core": 30e-6, "memory": 60e-6, "power_limit": 100e-6}  # at the default clocks, about
_SIZES = (1.0, 1e15)  # FLOPs or bytes of an iteration
_TRIPS = 8

# Interruptions of a kernel on a real GPU, ASSUMED: a few in ten thousand iterations take some tens of microseconds longer.
_INTERRUPTED, _INTERRUPTED_S = 2e-4, 30e-6


class SimulatedTracer:
    """Runs iterations on an engine.

    Args:
        engine: of the device.
        preset: of the device.
    """

    def __init__(self, engine: Engine, preset: Preset) -> None:
        self._engine, self._dynamics = engine, preset.dynamics
        self._rng = np.random.default_rng([engine.seed, 83])
        resolution_s = preset.dynamics.cycle_clock.resolution_s
        self._timer = preset.dynamics.gpu_clock.model_copy(update={"resolution_s": resolution_s})
        self._tasks: dict[Load, Task] = {}

    @contextmanager
    def start(self, load: Load, seconds: float) -> Iterator[TracedRun]:
        """Run iterations until the context exits; a simulated GPU runs them for as long as that takes."""
        task = self._task(load)
        trips = self._round_trips()
        self._engine.start(task)
        run = TracedRun()
        try:
            yield run
        finally:
            history = self._engine.stop_with_history()
            run.ended = self._trace(history, [*trips, *self._round_trips()])

    def _task(self, load: Load) -> Task:
        """Iterations that take about as long as wanted at the default clocks; they are found by bisection."""
        if load not in self._tasks:
            low, high = _SIZES
            for _ in range(60):
                middle = (low * high) ** 0.5
                point = self._engine.physics.operating_point(_iteration(load, middle), AUTO, self._engine.temperature_c)
                low, high = (middle, high) if point.time_s < _ITERATION_S[load] else (low, middle)
            self._tasks[load] = _iteration(load, low)
        return self._tasks[load]

    def _trace(self, history: History, trips: list[RoundTrip]) -> Trace:
        moment_s, progress = self._interrupted(history)
        calls = int(progress[-1])
        if calls < 1:
            raise CannotRunError("the run ended before its first iteration did")
        true_s = np.interp(np.arange(calls + 1), progress, moment_s)
        seconds = np.diff(true_s)
        # What makes one iteration longer is taken from the next, so that the trace stays in step with the engine.
        jitter = np.clip(self._dynamics.jitter * self._rng.standard_normal(calls), -0.4, 0.4)
        bounds = np.concatenate([true_s[:1], true_s[1:] + jitter * seconds])
        bounds = np.maximum.accumulate(bounds)
        ticks_s: FloatArray = self._timer.at(bounds + self._rng.uniform(0.0, self._timer.resolution_s))
        megacycles = np.concatenate([[0.0], np.cumsum(history.core_mhz * np.diff(history.moment_s))])
        counted = np.diff(np.interp(bounds, history.moment_s, megacycles))
        fit = fit_clocks(trips)
        lasted_s = np.maximum(np.diff(ticks_s), 0.5 * self._timer.resolution_s)
        return Trace(fit.host(ticks_s), counted / lasted_s, fit.error_s)

    def _interrupted(self, history: History) -> tuple[FloatArray, FloatArray]:
        """Moments and progress, with moments in which nothing is done while the clock runs on."""
        begin_s, end_s = float(history.moment_s[0]), float(history.moment_s[-1])
        times = self._rng.poisson(_INTERRUPTED * history.progress[-1])
        starts = np.sort(self._rng.uniform(begin_s, end_s, times))
        ends = np.minimum(starts + self._rng.exponential(_INTERRUPTED_S, times), np.append(starts[1:], end_s))
        moment_s = np.unique(np.concatenate([history.moment_s, starts, ends]))
        done = np.diff(np.interp(moment_s, history.moment_s, history.progress))
        middle = 0.5 * (moment_s[1:] + moment_s[:-1])
        done[np.searchsorted(starts, middle) > np.searchsorted(ends, middle)] = 0.0
        return moment_s, np.concatenate([[0.0], np.cumsum(done)])

    def _round_trips(self) -> list[RoundTrip]:
        """Read the GPU's timer some times."""
        return [round_trip(self._engine, self._timer, self._rng) for _ in range(_TRIPS)]


def _iteration(load: Load, size: float) -> Task:
    """One iteration: arithmetic alone, traffic alone, or a matrix product that draws all the power it can."""
    op: Op = "gemm" if load == "power_limit" else "elementwise"
    edge = max(round((0.5 * size) ** (1.0 / 3.0)), 1)
    elements = max(round(size), 1)
    shape = (1, edge, edge, edge) if load == "power_limit" else (elements,)
    flops, moved = (0.0, size) if load == "memory" else (size, 2.0)
    name = f"iteration-{load}"
    return Task.of_kernel(
        KernelSpec(name, name, op, shape, flops, 0.5 * moved, 0.5 * moved, "forward", None, 1, element_bytes=2)
    )
