"""Readings of the simulated instrument against what bursts truly used, over several of them."""

import numpy as np
import pytest

from testbed.profiled_gpu import gpu, kernel
from wastenot.devices.instrument import Burst
from wastenot.devices.simulated.bench import MEMORY
from wastenot.devices.simulated.dynamics import GpuClockModel
from wastenot.devices.simulated.hardware import GaugeModel

QUIET = {"jitter": 0.0, "run_jitter": 0.0, "outlier_chance": 0.0, "gpu_clock": GpuClockModel()}
TIMES = (300, 40, 1, 700, 150)  # executions of bursts
TAIL_S = 0.02  # after which power is idle again


def test_a_mean_over_a_second_has_earlier_bursts_in_it() -> None:
    """Power times the window is the energy of all that ran within it, exactly."""
    slow, fast = GaugeModel(period_s=0.1, window_s=1.0), GaugeModel(period_s=0.001, window_s=2e-5)
    instrument = gpu("h200", 1, logger=fast, memory=slow, **QUIET).instrument()
    ran: list[tuple[float, float, float]] = []
    seen = 0
    for times in TIMES:
        burst = Burst(((kernel("gemv:8192"), times),))
        used_j = float(instrument._trace(burst, None).history.energy_j[2, -1])
        with instrument.prepare(burst) as bench:
            run = bench.run(0.3)
        ran.append((float(run.begin_s[0]), float(run.end_s[-1]) + TAIL_S, used_j))
        readings = run.readings[MEMORY]
        for until_s, power_w in zip(readings.moment_s, readings.power_w, strict=True):
            from_s = until_s - slow.window_s
            if any(begin < edge_s < end for begin, end, _ in ran for edge_s in (from_s, until_s)):
                continue  # only part of a burst is within
            within = [used for begin, end, used in ran if from_s <= begin and end <= until_s]
            assert power_w * slow.window_s == pytest.approx(sum(within), rel=1e-9, abs=1e-9)
            seen += len(within) > 1
    assert seen >= 5


def test_a_lag_that_an_earlier_burst_left_decays() -> None:
    """After a burst the total falls to idle as the sensor's lag has it, from one burst's log into the next one's."""
    lag_s = 0.5
    instrument = gpu("h200", 1, logger=GaugeModel(period_s=0.01, window_s=1e-3, lag_s=lag_s), **QUIET).instrument()
    runs = []
    with instrument.prepare(Burst(((kernel("gemv:8192"), 2000),))) as bench:
        runs += [bench.run(rest_s) for rest_s in (0.1, 1.5)]
    first, second = (run.readings["total"] for run in runs)
    resting = second.moment_s < runs[1].begin_s[0]
    idle_w = instrument._idle().total
    expected = (first.power_w[-1] - idle_w) * np.exp((first.moment_s[-1] - second.moment_s[resting]) / lag_s)
    assert expected.max() > 0.5
    assert second.power_w[resting] - idle_w == pytest.approx(expected, rel=1e-3, abs=1e-9)
