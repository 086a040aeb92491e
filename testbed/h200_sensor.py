"""The power sensor of a real H200, identified from the short runs in data/h200/fingrav."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from testbed.raw_runs import read_runs
from wastenot.devices.clock_fit import fit_clocks
from wastenot.meters.sensors.channel_readings import ChannelReadings
from wastenot.meters.sensors.fit import SensorFit, fit_channel
from wastenot.meters.sensors.model import BurstReadings, Load
from wastenot.meters.sensors.rough_fit import rough_fit
from wastenot.meters.sensors.updates import Updates, find_updates

RUNS = Path(__file__).parents[1] / "data" / "h200" / "fingrav" / "GPU-5b450c73"
KERNELS = ("gemm-8192", "gemm-4096", "gemm-2048", "gemv-8192", "gemv-4096", "gemv-2048")
_NOISE_W, _LONGEST_S = 2.0, 0.5


def sensor_of(kernel: str) -> tuple[Updates, SensorFit]:
    """Period, and response with delay and drift, by the fit of `wastenot device sensor` to bursts of 26 ms from rest."""
    metadata, runs = read_runs(RUNS / f"{kernel}-1.npz")
    in_unit = metadata["executions_in_unit"]
    assert isinstance(in_unit, list)
    clocks = fit_clocks(trip for run in runs for trip in run.round_trips)
    begin_s = clocks.host(np.array([run.begin_s[0] for run in runs]))
    end_s = clocks.host(np.array([run.end_s[-1] for run in runs]))
    unit_s = np.array([np.median(run.end_s - run.begin_s) for run in runs])
    load = Load(begin_s, end_s, float(np.median(unit_s)) / in_unit[0])
    logs = [run.readings["total"] for run in runs]
    moment_s = np.concatenate([log.moment_s for log in logs])
    number = np.repeat(np.arange(len(logs)), [len(log.moment_s) for log in logs])
    order = np.argsort(moment_s, kind="stable")
    order = order[np.append(True, np.diff(moment_s[order]) > 0.0)]
    updates = find_updates(moment_s[order], np.concatenate([log.power_w for log in logs])[order], polled=True)
    assert updates is not None
    readings = ChannelReadings(
        BurstReadings.of(updates.moment_s, updates.power_w, load), number[order][updates.index], load, unit_s
    )
    rng = np.random.default_rng(0)
    return updates, fit_channel(readings, rough_fit(readings, updates.period_s, _LONGEST_S, rng), _NOISE_W, rng)
