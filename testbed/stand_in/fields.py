"""NVML's fields: many values in one call, each with its own return code."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.stand_in.codes import Code, Refused

if TYPE_CHECKING:
    from testbed.stand_in.gpu import Gpu

# NVML_FI_DEV_*
SW_POWER_CAP_NS = 74
SYNC_BOOST_NS = 76
TOTAL_ENERGY_MJ = 83
POWER_AVERAGE_MW, POWER_INSTANT_MW = 185, 186
POWER_MIN_LIMIT_MW, POWER_MAX_LIMIT_MW, POWER_DEFAULT_LIMIT_MW, POWER_CURRENT_LIMIT_MW = 187, 188, 189, 190
ENERGY_MJ = 191
SW_THERMAL_NS, HW_THERMAL_NS, HW_POWER_BRAKE_NS = 269, 270, 271  # of drivers from 580 on

_UINT, _ULONGLONG = 1, 3  # NVML_VALUE_TYPE_*
_GPU, _MEMORY = 0, 2  # NVML_POWER_SCOPE_*
_READ_S = 4e-6

Reading = tuple[int, int, int, int, int]
"""Return code, type of the value, value, timestamp in µs, latency in µs."""


class Fields:
    """The fields of one GPU.

    Args:
        gpu: whose they are.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._epoch_s = time.time() - gpu.timing.now_s()
        self._seen_s = 0.0
        self._thermal_s = 0.0

    def read(self, asked: Sequence[tuple[int, int]]) -> list[Reading]:
        """Values of (field, scope) pairs."""
        return [self._one(field, scope) for field, scope in asked]

    def cost_s(self, asked: Sequence[tuple[int, int]]) -> float:
        """How long reading them takes on the real board."""
        return sum(self._one_cost_s(field) for field, _ in asked)

    def _one_cost_s(self, field: int) -> float:
        energy = self._gpu.preset.sensors.energy
        return energy.read_s if energy is not None and field in (TOTAL_ENERGY_MJ, ENERGY_MJ) else _READ_S

    def _one(self, field: int, scope: int) -> Reading:
        stamp = round((self._epoch_s + self._gpu.timing.now_s()) * 1e6)
        latency = round(self._one_cost_s(field) * 1e6)
        try:
            kind, value = self._value(field, scope)
        except Refused as refusal:
            return int(refusal.code), 0, 0, stamp, latency
        return int(Code.SUCCESS), kind, value, stamp, latency

    def _value(self, field: int, scope: int) -> tuple[int, int]:
        gpu = self._gpu
        if field in (TOTAL_ENERGY_MJ, ENERGY_MJ):  # the scope is ignored, as on the H200
            return _ULONGLONG, gpu.energy_mj()
        if field == POWER_AVERAGE_MW and scope == _MEMORY:
            return _UINT, gpu.memory_mw()
        if field in (POWER_AVERAGE_MW, POWER_INSTANT_MW):
            if scope != _GPU:
                raise Refused(Code.NOT_SUPPORTED)
            return _UINT, gpu.average_mw() if field == POWER_AVERAGE_MW else gpu.instant_mw()
        if field in (SW_POWER_CAP_NS, SW_THERMAL_NS):
            power_s, thermal_s = self._throttled_s()
            return _ULONGLONG, round(1e9 * (power_s if field == SW_POWER_CAP_NS else thermal_s))
        if field in (SYNC_BOOST_NS, HW_THERMAL_NS, HW_POWER_BRAKE_NS):
            return _ULONGLONG, 0
        limits = {
            POWER_MIN_LIMIT_MW: gpu.power_limits_mw()[0],
            POWER_MAX_LIMIT_MW: gpu.power_limits_mw()[1],
            POWER_DEFAULT_LIMIT_MW: gpu.default_power_limit_mw,
            POWER_CURRENT_LIMIT_MW: gpu.power_limit_mw,
        }
        if field not in limits:
            raise Refused(Code.NOT_SUPPORTED)
        return _UINT, limits[field]

    def _throttled_s(self) -> tuple[float, float]:
        """Time held down by power and by temperature; what passed since the last look goes to what holds it now."""
        gpu = self._gpu
        gpu.engine.advance(0.0)
        if gpu.hot:
            self._thermal_s += gpu.engine.throttled_s - self._seen_s
        self._seen_s = gpu.engine.throttled_s
        return self._seen_s - self._thermal_s, self._thermal_s
