"""Simulated GPUs to profile, and what their executions truly are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from testbed.true_executions import true_executions
from wastenot.core.arrays import FloatArray
from wastenot.devices.instrument import burst_of
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.device import SimulatedDevice
from wastenot.devices.simulated.instrument import SimulatedInstrument
from wastenot.devices.simulated.preset import find_preset
from wastenot.profiles.result import Profile, UnitPower
from wastenot.profiles.steady_state import SETTLED
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.primitives import primitive

_EXECUTIONS = 1500

SETTLINGS: Mapping[str, Mapping[str, Any]] = {
    "as the preset": {},
    "no warm-up": {"warm_up": ()},
    "at once, no warm-up": {"warm_up": (), "slow_share": 0.0, "fast_s": 1e-5},
    "a fifth in 2 ms, no warm-up": {"warm_up": (), "slow_share": 0.2, "slow_s": 2e-3},
}
"""How power rises from rest, which a sensor whose delay is not known can hardly tell from that delay."""


def gpu(preset: str, seed: int = 0, **dynamics: Any) -> SimulatedDevice:
    """A simulated GPU, some of its dynamics changed."""
    found = find_preset(preset)
    changed = found.model_copy(update={"dynamics": found.dynamics.model_copy(update=dynamics)})
    return simulated_device(changed, f"sim:{preset}", seed=seed)


def h200_with(seed: int, **gauge: float) -> SimulatedDevice:
    """A simulated H200, some of its power sensor changed."""
    preset = find_preset("h200")
    assert preset.sensors.power is not None
    sensors = preset.sensors.model_copy(update={"power": preset.sensors.power.model_copy(update=gauge)})
    return simulated_device(preset.model_copy(update={"sensors": sensors}), "sim:h200", seed=seed)


def averaging_h200(seed: int = 0) -> SimulatedDevice:
    """A simulated H200 whose power sensor is what was published of it: a mean over 25 ms, told at once."""
    return h200_with(seed, lag_s=0.0, delay_s=0.0, sample_s=0.0, sample_drift=0.0)


def kernel(name: str) -> KernelSpec:
    """A kernel by itself."""
    return primitive(name)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """What a kernel's executions from rest truly are.

    Attributes:
        mean_w: of each execution.
        sse, ssp: execution from which time, and power, is steady; from 1.
        range_w: from idle to peak.
    """

    mean_w: FloatArray
    sse: int
    ssp: int
    range_w: float
    _inside: list[FloatArray]

    @classmethod
    def of(cls, device: SimulatedDevice, spec: KernelSpec) -> Truth:
        """Without chance."""
        instrument = device.instrument()
        assert isinstance(instrument, SimulatedInstrument)
        told = true_executions(instrument, burst_of(spec, _EXECUTIONS))
        mean = np.array([execution.mean_w["total"] for execution in told])
        time = np.array([execution.time_s for execution in told])
        far = np.flatnonzero(np.abs(mean - mean[-1]) > SETTLED * mean[-1])
        slow = np.flatnonzero(time > 1.001 * time[-1])
        inside = [execution.power_w["total"] for execution in told]
        sse = int(slow[-1]) + 2 if len(slow) else 1
        ssp = max(int(far[-1]) + 2 if len(far) else 1, sse)
        return cls(mean, sse, ssp, max(float(each.max()) for each in inside) - instrument._idle().total, inside)

    def until(self, later: Truth) -> Truth:
        """What lies halfway to a later truth of the same kernel: the GPU warms up while it is profiled."""
        halfway = [0.5 * (one + other) for one, other in zip(self._inside, later._inside, strict=True)]
        return replace(self, mean_w=0.5 * (self.mean_w + later.mean_w), _inside=halfway)

    def mean_in(self, profile: Profile, state: str) -> float:
        """Mean power of the units that a state of a profile is about."""
        told = (re.search(rf"{state}: .* a mean of (\d+) in a row", note) for note in profile.notes)
        units = next((int(found[1]) for found in told if found), 1)
        first = (profile.state(state).unit - 1) * profile.group
        its = self.mean_w[first : first + units * profile.group]
        return float(its.mean()) if len(its) else float(self.mean_w[-1])

    def held(self, profile: Profile, state: str) -> float:
        """Share of the moments inside a state's unit at which the stated 95 % band holds the power."""
        unit, found = profile.state(state).unit - 1, profile.state(state).channels["total"]
        off_w = found.power_w - self._at(found, unit, profile.group)
        return float(np.mean(np.abs(off_w) <= 1.96 * found.error_w))

    def error(self, profile: Profile, state: str) -> float:
        """Root mean square error of a profile inside a state's unit, over the range from idle to peak."""
        unit, found = profile.state(state).unit - 1, profile.state(state).channels["total"]
        return self.error_of(found, unit, profile.group)

    def error_of(self, found: UnitPower, unit: int, group: int) -> float:
        """The same of what was found inside a unit, from 0, of some executions."""
        return float(np.sqrt(np.mean((found.power_w - self._at(found, unit, group)) ** 2))) / self.range_w

    def _at(self, found: UnitPower, unit: int, group: int) -> FloatArray:
        true = np.concatenate(self._inside[unit * group : (unit + 1) * group])
        return np.interp(found.share, (np.arange(len(true)) + 0.5) / len(true), true)
