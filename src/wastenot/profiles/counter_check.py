"""A profile compared with the energy counter, over a run that the profile was not made from."""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import TOTAL, Instrument, PreparedBurst, burst_of
from wastenot.devices.protocol import Device
from wastenot.meters.mean_power import CounterMeter
from wastenot.profiles.result import CounterCheck, Profile
from wastenot.profiles.runs import on_host_clock, unit_times
from wastenot.workloads.kernel import KernelSpec

_RUN_S = 3.0
_MAX_TRIES = 5
_COMPARED_UNITS = 10  # from that of the last state on, whose times are compared with the profile's


def check_by_counter(device: Device, instrument: Instrument, kernel: KernelSpec, profile: Profile) -> CounterCheck | None:
    """Run the kernel for some seconds between two steps of the counter, and add up what the profile expects.

    Returns:
        Mean power by the counter and by the profile; ``None`` if no run's executions were in the profile's bin.

    Raises:
        DeviceError: the counter stands still or cannot be read.
    """
    units = math.ceil(_RUN_S / profile.states[-1].time_s)
    with instrument.prepare(burst_of(kernel, units * profile.group)) as bench:
        for _ in range(_MAX_TRIES):
            check = _check_run(device, instrument, bench, profile, units)
            if check is not None:
                return check
    return None


def _check_run(
    device: Device, instrument: Instrument, bench: PreparedBurst, profile: Profile, number: int
) -> CounterCheck | None:
    """One run; ``None`` if its executions are not in the profile's bin."""
    meter = CounterMeter(device, lambda: None)
    meter.begin()
    run = bench.run(0.0)
    meter.lap(0.0)
    counted = meter.mean()
    trips = (*run.round_trips, *instrument.round_trips(5))
    timed = on_host_clock([run], instrument, fit_clocks(trips))[0]
    units = unit_times([timed], 0, profile.group, number)
    if not _in_bin(units.time_s[0], profile):
        return None
    total = next(one for one in profile.channels if one.channel.name == TOTAL)
    power_w = np.full(units.time_s.shape[1], total.steady_w)
    first = min(len(total.mean_w), len(power_w))
    power_w[:first] = total.mean_w[:first]
    busy_s = float(timed.end_s[-1])
    spacing_s = np.append(units.begin_s[0, 1:], busy_s) - units.begin_s[0]
    expected_j = float(spacing_s @ power_w) + (counted.seconds - busy_s) * total.idle_w
    return CounterCheck(counted.power_w, expected_j / counted.seconds, counted.seconds)


def _in_bin(time_s: FloatArray, profile: Profile) -> bool:
    """Whether units are in the profile's bin: those right after SSP, or all later ones, as where power swings."""
    state = profile.states[-1]
    later = time_s[min(state.unit - 1, len(time_s) - 1) :]
    medians = (float(np.median(one)) for one in (later[:_COMPARED_UNITS], later))
    return any(abs(median / state.time_s - 1.0) <= profile.margin for median in medians)
