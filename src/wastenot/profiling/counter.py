"""A profile against the energy counter, over a run that the profile was not made from."""

from __future__ import annotations

import math

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import TOTAL, Instrument, PreparedBurst, burst_of
from wastenot.devices.protocol import Device
from wastenot.metering.mean_power import CounterMeter
from wastenot.profiling.collect import by_host
from wastenot.profiling.result import CounterCheck, Profile
from wastenot.profiling.units import units_of
from wastenot.workloads.kernel import KernelSpec

_RUN_S = 3.0
_TRIES = 5
_LIKE = 10  # units from the state's own on


def check_by_counter(device: Device, instrument: Instrument, kernel: KernelSpec, profile: Profile) -> CounterCheck | None:
    """Run the kernel for a while between two steps of the counter, and add up what the profile says of it.

    Returns:
        What both say; ``None`` if no run's executions were of the profile's bin.

    Raises:
        DeviceError: the counter stands still or cannot be read.
    """
    units = math.ceil(_RUN_S / profile.states[-1].time_s)
    with instrument.prepare(burst_of(kernel, units * profile.group)) as bench:
        for _ in range(_TRIES):
            found = _one_run(device, instrument, bench, profile, units)
            if found is not None:
                return found
    return None


def _one_run(
    device: Device, instrument: Instrument, bench: PreparedBurst, profile: Profile, number: int
) -> CounterCheck | None:
    """One run of so many units; ``None`` if its executions are not of the profile's bin."""
    meter = CounterMeter(device, lambda: None)
    meter.begin()
    run = bench.run(0.0)
    meter.lap(0.0)
    counted = meter.mean()
    trips = (*run.round_trips, *instrument.round_trips(5))
    timed = by_host([run], instrument, fit_clocks(trips))[0]
    units = units_of([timed], 0, profile.group, number)
    if not _alike(units.time_s[0], profile):
        return None
    total = next(found for found in profile.channels if found.channel.name == TOTAL)
    level = np.full(units.time_s.shape[1], total.steady_w)
    first = min(len(total.mean_w), len(level))
    level[:first] = total.mean_w[:first]
    busy_s = float(timed.end_s[-1])
    spacing = np.append(units.begin_s[0, 1:], busy_s) - units.begin_s[0]
    expected_j = float(spacing @ level) + (counted.seconds - busy_s) * total.idle_w
    return CounterCheck(counted.power_w, expected_j / counted.seconds, counted.seconds)


def _alike(time_s: FloatArray, profile: Profile) -> bool:
    """Whether units are of the profile's bin, at the state's own or over all that follow, as where power swings."""
    state = profile.states[-1]
    later = time_s[min(state.unit - 1, len(time_s) - 1) :]
    return any(abs(float(np.median(one)) / state.time_s - 1.0) <= profile.margin for one in (later[:_LIKE], later))
