"""Sensors of an AMD GPU. A value that the GPU does not report is ``None``; a failure to read raises."""

from __future__ import annotations

from typing import Any

from wastenot.devices.amd.smi import Smi, number
from wastenot.devices.common.gpu_driver import DriverError
from wastenot.devices.protocol import ClockReading

_POWERS = ("current_socket_power", "average_socket_power", "socket_power")
"""Which of these a GPU reports differs: an MI300X has no average, older ones have only that."""
_HELD_DOWN = ("acc_ppt_pwr", "acc_socket_thrm", "acc_prochot_thrm", "acc_hbm_thrm", "acc_vr_thrm")
_NO_COUNT = 2**64 - 1
_TRAFFIC_S = 1e-5  # of the counter of memory activity: per cent, added up each ms (assumed; only ratios count)
_WRAPS = 2**32
_MOST = 4.0  # times the power limit: no GPU draws more between two readings of its counter


class AmdSensors:
    """Readings of an AMD GPU in SI units.

    The energy counter is checked against time and power limit (counters that were wrong or went backwards: amdsmi issues
    38 and 115). From the first reading that cannot be right on, it is not used any more.

    Args:
        smi: access to AMD SMI.
        handle: AMD SMI's handle of the GPU.
        limit_w: its highest power limit; ``None`` where unknown.
    """

    def __init__(self, smi: Smi, handle: Any, limit_w: float | None) -> None:
        self._smi, self._handle = smi, handle
        self._most_w = _MOST * limit_w if limit_w else None
        self._last: tuple[float, float] | None = None  # time by the GPU's clock in s, energy in J
        self._counts = True
        self._held_s = 0.0
        self._traffic: tuple[float, float] | None = None  # the counter, and the time it stands for
        self._violations: tuple[float, float, float] | None = None  # time in µs, steps, of these with a violation

    def energy_j(self) -> float | None:
        """The energy counter of the package: on cards with two dies (MI250), of both, at the first of them."""
        if not self._counts:
            return None
        found = self._smi.try_call("amdsmi_get_energy_count", self._handle)
        if found is None or not 0 < found["energy_accumulator"] < _NO_COUNT:
            return None
        energy_j: float = 1e-6 * found["counter_resolution"] * found["energy_accumulator"]
        time_s: float = 1e-9 * found["timestamp"]
        before, self._last = self._last, (time_s, energy_j)
        if before is not None and not self._plausible(time_s - before[0], energy_j - before[1]):
            self._counts = False
            raise DriverError(
                f"the energy counter of this GPU went from {before[1]:,.1f} to {energy_j:,.1f} J in "
                f"{time_s - before[0]:.3g} s, which cannot be: power readings take its place from now on; measure again"
            )
        return energy_j

    def _plausible(self, passed_s: float, used_j: float) -> bool:
        if used_j < 0.0 or passed_s < 0.0:
            return False
        return self._most_w is None or used_j <= self._most_w * (passed_s + 0.1)

    def power_w(self) -> float | None:
        """Power of the package, whichever reading of it the GPU has."""
        found = self._smi.try_call("amdsmi_get_power_info", self._handle) or {}
        watts = [number(found.get(name)) for name in _POWERS]
        return next((value for value in watts if value), None)

    def memory_power_w(self) -> float | None:
        """AMD SMI reports none."""
        return None

    def clocks(self) -> ClockReading:
        """Clocks of the compute units and the memory."""
        kinds = self._smi.library.AmdSmiClkType
        return ClockReading(self._clock(kinds.GFX), self._clock(kinds.MEM))

    def temperature_c(self) -> float | None:
        """Temperature of the hottest spot; the data-centre cards report no other."""
        library = self._smi.library
        kind, metric = library.AmdSmiTemperatureType.HOTSPOT, library.AmdSmiTemperatureMetric.CURRENT
        return number(self._smi.try_call("amdsmi_get_temp_metric", self._handle, kind, metric))

    def throttled_s(self) -> float | None:
        """Time for which power or thermal limits have held clocks down since the first reading.

        The firmware counts its own steps and those in which a limit was violated: the share of these is taken of the time.
        """
        found = self._smi.try_call("amdsmi_get_violation_status", self._handle)
        if found is None:
            return None
        steps, stamp_us = number(found["acc_counter"]), number(found["reference_timestamp"])
        violated = [value for value in (number(found.get(name)) for name in _HELD_DOWN) if value is not None]
        if steps is None or stamp_us is None or not violated:
            return None
        before, self._violations = self._violations, (stamp_us, steps, sum(violated))
        if before is not None and steps > before[1]:
            share = (sum(violated) - before[2]) / (steps - before[1])
            self._held_s += min(max(share, 0.0), 1.0) * 1e-6 * (stamp_us - before[0])
        return self._held_s

    def traffic_s(self, now_s: float) -> float | None:
        """Time for which the memory controllers were busy since the first reading."""
        found = self._smi.try_call("amdsmi_get_gpu_metrics_info", self._handle) or {}
        count = number(found.get("mem_activity_acc"))
        if count is None:
            return None
        before, total_s = self._traffic or (count, 0.0)
        total_s += _TRAFFIC_S * ((count - before) % _WRAPS)
        self._traffic = count, total_s
        return total_s

    def processes(self) -> int | None:
        """Number of processes computing on the GPU; ``None`` where that is not reported."""
        running = self._smi.try_call("amdsmi_get_gpu_process_list", self._handle)
        return None if running is None else len(running)

    def _clock(self, kind: object) -> float | None:
        return number((self._smi.try_call("amdsmi_get_clock_info", self._handle, kind) or {}).get("clk"))
