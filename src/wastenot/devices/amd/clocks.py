"""The calls to AMD SMI that change a GPU's clocks. What makes them safe stands in :mod:`wastenot.devices.common`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wastenot.devices.amd.sensors import AmdSensors
from wastenot.devices.amd.smi import Smi, number
from wastenot.devices.common.gpu_driver import DriverError, Kind, NotSupportedError
from wastenot.devices.common.journal import Restore

_STEP_MHZ = 10.0  # of the core clocks that may be asked for: the driver takes any, a list is for people and searches
_NAMES: Mapping[Kind, str] = {"core": "sclk", "memory": "mclk"}


class AmdSetter:
    """Sets one GPU's clocks; errors are those of :class:`~wastenot.devices.common.gpu_driver.ClockSetter`.

    Undoing a clock means performance level AUTO, which undoes **all** clocks; what else this process has set is set again.

    Args:
        smi: access to AMD SMI.
        handle: AMD SMI's handle of the GPU.
        unique_id: of the GPU.
    """

    def __init__(self, smi: Smi, handle: Any, unique_id: str) -> None:
        self._smi, self._handle, self.unique_id = smi, handle, unique_id
        self.allow_changes = smi.allow_changes
        self._supported = dict[float, tuple[float, ...]]()
        self._sensors = AmdSensors(smi, handle, None)
        self._limits = dict[Kind, tuple[float, float]]()  # clocks that are limited now, from and to

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock, the core clocks that may be requested with it, both ascending."""
        if not self._supported:
            clocks = self._smi.library.AmdSmiClkType
            core = self._smi.try_call("amdsmi_get_clock_info", self._handle, clocks.GFX) or {}
            lowest, highest = number(core.get("min_clk")), number(core.get("max_clk"))
            states = (self._smi.try_call("amdsmi_get_clk_freq", self._handle, clocks.MEM) or {}).get("frequency", ())
            if lowest is not None and highest is not None and lowest < highest:
                steps = int((highest - lowest) / _STEP_MHZ)
                cores = tuple(sorted({lowest, *(highest - _STEP_MHZ * step for step in range(steps + 1))}))
                self._supported = {1e-6 * hertz: cores for hertz in sorted(states)}
        return self._supported

    def power_limit_range_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit, whoever may set it; ``None`` where it is not reported."""
        low, high = self._watts("min_power_cap"), self._watts("max_power_cap")
        return None if low is None or high is None or not high > 0.0 else (low, high)

    def power_limit_w(self) -> float | None:
        """The power limit in force; ``None`` where there is none."""
        return self._watts("power_cap")

    def default_power_limit_w(self) -> float | None:
        """The power limit that the GPU comes with; ``None`` where it is not reported."""
        return self._watts("default_power_cap")

    def power_w(self) -> float | None:
        """The latest reading of its power; ``None`` where it reports none."""
        return self._sensors.power_w()

    def profiles(self) -> None:
        """``None``: the profiles of AMD SMI are not used."""

    def request_profiles(self, names: Sequence[str]) -> None:
        """Refused: it has none."""
        raise NotSupportedError("this GPU has no workload power profiles")

    def is_needless(self, kind: Kind, value: float) -> bool:
        """Whether it is the highest memory clock, which an upper limit cannot change."""
        return kind == "memory" and value == max(self.supported_clocks())

    def apply(self, kind: Kind, value: float) -> None:
        """Set one part. A core clock is a ceiling, and so is a memory clock: the driver snaps it down."""
        if kind == "power":
            try:
                self._cap(value)
            except NotSupportedError as error:
                raise NotSupportedError(f"{error}; some firmware of the MI300X refuses lower power limits") from error
            return
        self._limit(kind, "max", value)
        self._limits[kind] = (0.0, value)

    def restore(self, restore: Restore, kinds: set[Kind]) -> None:
        """Restore parts of a setting to what a journal says, trying all before raising."""
        failed: DriverError | None = None
        if kinds & {"core", "memory"}:
            named: Mapping[Kind, tuple[float, float] | None] = {"core": restore.core_mhz, "memory": restore.memory_mhz}
            again = {kind: bounds for kind, bounds in self._limits.items() if kind not in kinds}
            again |= {kind: bounds for kind, bounds in named.items() if kind in kinds and bounds is not None}
            try:
                level = self._smi.library.AmdSmiDevPerfLevel.AUTO
                self._smi.call("amdsmi_set_gpu_perf_level", self._handle, level)
                self._limits.clear()
                for kind, (low, high) in again.items():
                    if low > 0.0:
                        self._limit(kind, "min", low)
                    self._limit(kind, "max", high)
                    self._limits[kind] = (low, high)
            except DriverError as error:
                failed = error
        if "power" in kinds and restore.power_limit_w is not None:
            try:
                self._cap(restore.power_limit_w)
            except DriverError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _limit(self, kind: Kind, end: str, mhz: float) -> None:
        self._smi.call("amdsmi_set_gpu_clk_limit", self._handle, _NAMES[kind], end, round(mhz))

    def _cap(self, watts: float) -> None:
        self._smi.call("amdsmi_set_power_cap", self._handle, 0, round(1e6 * watts))

    def _watts(self, which: str) -> float | None:
        microwatts = number((self._smi.try_call("amdsmi_get_power_cap_info", self._handle) or {}).get(which))
        return None if microwatts is None else 1e-6 * microwatts
