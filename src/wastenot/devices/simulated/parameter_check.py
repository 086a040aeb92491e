"""What the parameters of the time and power model may be."""

from __future__ import annotations

import math
from dataclasses import fields

from wastenot.devices.simulated.model import DeviceParameters

_AT_LEAST_ONE = ("core_bandwidth_sharpness", "overlap_exponent")
_MAY_BE_ZERO = ("core_bandwidth", "core_floor_mhz", "leakage_w", "base_w")
_BY_STATE = ("bandwidth_factor", "base_w", "byte_energy_factor")


def check_parameters(parameters: DeviceParameters) -> DeviceParameters:
    """The same parameters, if a GPU can have them.

    Raises:
        ValueError: one of them is impossible; names it.
    """
    for field in fields(parameters):
        value = getattr(parameters, field.name)
        if value is None:
            continue
        for number in value if isinstance(value, tuple) else (value,):
            least = 1.0 if field.name in _AT_LEAST_ONE else 0.0
            enough = number >= least if field.name in (*_AT_LEAST_ONE, *_MAY_BE_ZERO) else number > least
            if not math.isfinite(number) or not enough:
                above = "at least" if field.name in (*_AT_LEAST_ONE, *_MAY_BE_ZERO) else "above"
                raise ValueError(f"{field.name}: {number:g} is impossible; it must be a number {above} {least:g}")
    states = len(parameters.memory_states_mhz)
    for name in _BY_STATE:
        found = len(getattr(parameters, name))
        if found != states:
            raise ValueError(f"{name}: {found} values for {states} memory_states_mhz")
    if len(parameters.voltage_ratio) != len(parameters.voltage_clocks_mhz):
        raise ValueError(
            f"voltage_ratio: {len(parameters.voltage_ratio)} values for {len(parameters.voltage_clocks_mhz)} "
            "voltage_clocks_mhz"
        )
    for name in ("memory_states_mhz", "voltage_clocks_mhz"):
        clocks = getattr(parameters, name)
        if not clocks or list(clocks) != sorted(set(clocks)):
            raise ValueError(f"{name}: must rise, and name at least one clock")
    if list(parameters.voltage_ratio) != sorted(parameters.voltage_ratio):
        raise ValueError("voltage_ratio: must not fall with the clock")
    return parameters
