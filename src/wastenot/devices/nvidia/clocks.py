"""The calls to NVML that change a GPU's clocks. What makes them safe stands in :mod:`wastenot.devices.common`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref
from typing import Any

from wastenot.core.profiles import profile_name, profile_number
from wastenot.devices.common.gpu_driver import DriverError, Kind, NotSupportedError, Profiles
from wastenot.devices.common.journal import Restore
from wastenot.devices.nvidia.nvml import Nvml

_BLACKWELL = 10  # NVML's number of the architecture
_WORD = 32  # bits of a word of the masks of workload power profiles, whose places are the profiles' numbers
_SET = {
    "core": "nvmlDeviceSetGpuLockedClocks",
    "memory": "nvmlDeviceSetMemoryLockedClocks",
    "power": "nvmlDeviceSetPowerManagementLimit",
}


class NvidiaSetter:
    """Sets one GPU's clocks; errors are those of :class:`~wastenot.devices.common.gpu_driver.ClockSetter`.

    Args:
        nvml: access to NVML.
        handle: NVML's handle of the GPU.
        unique_id: the GPU's UUID.
    """

    def __init__(self, nvml: Nvml, handle: Any, unique_id: str) -> None:
        self._nvml, self._handle, self.unique_id = nvml, handle, unique_id
        self.allow_changes = nvml.allow_changes
        self._supported = dict[float, tuple[float, ...]]()
        self._memory_locks = True  # until the driver says otherwise
        self._has_profiles = True  # likewise

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock, the core clocks that may be requested with it, both ascending."""
        if self._supported:
            return self._supported
        for memory in sorted(self._nvml.try_call("nvmlDeviceGetSupportedMemoryClocks", self._handle) or ()):
            core_mhz = self._nvml.try_call("nvmlDeviceGetSupportedGraphicsClocks", self._handle, memory)
            if core_mhz:
                self._supported[float(memory)] = tuple(sorted(map(float, core_mhz)))
        return self._supported

    def power_limit_range_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit, whoever may set it; ``None`` where it is not reported."""
        limits = self._nvml.try_call("nvmlDeviceGetPowerManagementLimitConstraints", self._handle)
        return None if limits is None else (1e-3 * limits[0], 1e-3 * limits[1])

    def power_limit_w(self) -> float | None:
        """The power limit in force; ``None`` where there is none."""
        limit = self._nvml.try_call("nvmlDeviceGetPowerManagementLimit", self._handle)
        return None if limit is None else 1e-3 * limit

    def default_power_limit_w(self) -> float | None:
        """The power limit that the GPU comes with; ``None`` where it is not reported."""
        limit = self._nvml.try_call("nvmlDeviceGetPowerManagementDefaultLimit", self._handle)
        return None if limit is None else 1e-3 * limit

    def power_w(self) -> float | None:
        """Its power, averaged over a second on Ampere (but GA100) and later; ``None`` where it is not reported."""
        power = self._nvml.try_call("nvmlDeviceGetPowerUsage", self._handle)
        return None if power is None else 1e-3 * power

    def profiles(self) -> Profiles | None:
        """Its workload power profiles; ``None`` where GPU, driver or binding has none."""
        if not self._has_profiles:
            return None
        current = self._nvml.library.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t()
        function = "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles"
        if self._nvml.try_call(function, self._handle, byref(current)) is None:
            self._has_profiles = False
            return None
        masks = current.perfProfilesMask, current.requestedProfilesMask, current.enforcedProfilesMask
        available, requested, enforced = (tuple(map(profile_name, members(mask))) for mask in masks)
        return Profiles(available, requested, enforced)

    def request_profiles(self, names: Sequence[str]) -> None:
        """Request these profiles in place of all that are requested now."""
        library, now = self._nvml.library, self.profiles()
        if now is None:
            raise NotSupportedError("this GPU or its driver has no workload power profiles")
        if set(names) == set(now.requested):
            return
        change = library.c_nvmlWorkloadPowerProfileUpdateProfiles_v1_t()
        # Whether a list may be overwritten with an empty one is not documented: clearing all of it is.
        change.operation = (
            library.NVML_POWER_PROFILE_OPERATION_SET_AND_OVERWRITE if names else library.NVML_POWER_PROFILE_OPERATION_CLEAR
        )
        numbers = (profile_number(name) for name in names or now.requested)
        set_members(change.updateProfilesMask, (number for number in numbers if number is not None))
        self._nvml.call("nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1", self._handle, byref(change))

    def is_needless(self, kind: Kind, value: float) -> bool:
        """Whether it is Blackwell's highest memory clock: any upper bound, even this one, slows Blackwell down."""
        if kind != "memory" or value != max(self.supported_clocks()):
            return False
        return (self._nvml.try_call("nvmlDeviceGetArchitecture", self._handle) or 0) >= _BLACKWELL

    def apply(self, kind: Kind, value: float) -> None:
        """Set one part of a setting but the profile."""
        if kind == "memory" and not self._memory_locks:
            raise NotSupportedError("this GPU or its driver does not support setting its clock")
        arguments: tuple[int, ...]
        if kind == "power":
            arguments = (round(1e3 * value),)
        else:  # a core clock is a ceiling: the GPU may run below it
            lowest = min(cores[0] for cores in self.supported_clocks().values()) if kind == "core" else value
            arguments = (round(lowest), round(value))
        try:
            self._nvml.call(_SET[kind], self._handle, *arguments)
        except NotSupportedError:
            self._memory_locks &= kind != "memory"
            raise

    def restore(self, restore: Restore, kinds: set[Kind]) -> None:
        """Restore parts of a setting to what a journal says, trying all before raising."""
        failed: DriverError | None = None
        calls: list[tuple[str, tuple[int, ...]]] = []
        if "power" in kinds and restore.power_limit_w is not None:
            calls.append((_SET["power"], (round(1e3 * restore.power_limit_w),)))
        for kind, bounds in (("core", restore.core_mhz), ("memory", restore.memory_mhz)):
            if kind in kinds and bounds is None:
                calls.append((_SET[kind].replace("Set", "Reset"), ()))
            elif kind in kinds and bounds is not None:
                calls.append((_SET[kind], (round(bounds[0]), round(bounds[1]))))
        for function, arguments in calls:
            try:
                self._nvml.call(function, self._handle, *arguments)
            except DriverError as error:
                failed = failed or error
        if "profile" in kinds and restore.profiles is not None:
            try:
                self.request_profiles(restore.profiles)
            except DriverError as error:
                failed = failed or error
        if failed is not None:
            raise failed


def members(mask: Any) -> list[int]:
    """Numbers that a mask of workload power profiles holds, ascending."""
    return [_WORD * place + bit for place, word in enumerate(mask.mask) for bit in range(_WORD) if word >> bit & 1]


def set_members(mask: Any, numbers: Iterable[int]) -> None:
    """Put numbers into a mask."""
    for number in numbers:
        mask.mask[number // _WORD] |= 1 << number % _WORD
