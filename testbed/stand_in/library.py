"""Stands where ``libnvidia-ml.so.1`` would: NVML's C functions, for the real ``pynvml`` to call through ctypes.

Each function takes what pynvml gives the C one, asks the server, fills in what was passed by reference and returns a code.
A function that is not here is one that the driver does not have.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from testbed.stand_in.codes import Code
from testbed.stand_in.wire import Client

SOCKET_VARIABLE = "STAND_IN_NVML"

Function = Callable[..., Any]

_SCALARS = {  # how many arguments come between the handle and what is filled in
    "nvmlDeviceGetIndex": 0,
    "nvmlDeviceGetMinorNumber": 0,
    "nvmlDeviceGetMigMode": 0,
    "nvmlDeviceGetArchitecture": 0,
    "nvmlDeviceGetCudaComputeCapability": 0,
    "nvmlDeviceGetPersistenceMode": 0,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetPowerUsage": 0,
    "nvmlDeviceGetTotalEnergyConsumption": 0,
    "nvmlDeviceGetPowerManagementLimit": 0,
    "nvmlDeviceGetPowerManagementDefaultLimit": 0,
    "nvmlDeviceGetPowerManagementLimitConstraints": 0,
    "nvmlDeviceGetEnforcedPowerLimit": 0,
    "nvmlDeviceGetClockInfo": 1,
    "nvmlDeviceGetMaxClockInfo": 1,
    "nvmlDeviceGetApplicationsClock": 1,
    "nvmlDeviceGetTemperature": 1,
    "nvmlDeviceGetCurrentClocksEventReasons": 0,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0,
    "nvmlDeviceGetSupportedClocksEventReasons": 0,
    "nvmlDeviceGetC2cModeInfo": 0,
}
_STRUCTS = ("nvmlDeviceGetPciInfo", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates")
_STRINGS = ("nvmlDeviceGetName", "nvmlDeviceGetUUID")
_SYSTEM_STRINGS = ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion")
_SYSTEM_SCALARS = ("nvmlSystemGetCudaDriverVersion", "nvmlDeviceGetCount")
_HANDLES = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleByPciBusId")
_SETTERS = (
    "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks", "nvmlDeviceSetMemoryLockedClocks",
    "nvmlDeviceResetMemoryLockedClocks", "nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetPersistenceMode",
)  # fmt: skip


_GET_PROFILES = "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles"
_UPDATE_PROFILES = "nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1"
_DRAM_BW_UTIL = 10  # NVML_GPM_METRIC_*
_CURRENT_PROFILES = 0x1000064  # version of the struct: 1, and its size


class Library:
    """The functions as attributes, as ctypes has those of a shared library."""

    def __init__(self) -> None:
        self._path = ""
        self._clients = threading.local()  # a connection for each thread, whose calls do not wait for one another
        self._users = 0
        self._samples: list[tuple[float, float]] = []  # of the performance monitors, by place counted from 1
        self._functions: dict[str, Function] = {
            "nvmlInitWithFlags": self._start,
            "nvmlShutdown": self._shut_down,
            "nvmlErrorString": lambda code: Code(code).name.replace("_", " ").title().encode() if code in _KNOWN else b"?",
            "nvmlDeviceGetFieldValues": self._fields,
            "nvmlDeviceGetTemperatureV": self._temperature,
            "nvmlDeviceGetComputeRunningProcesses": self._processes,
            "nvmlDeviceGetSupportedMemoryClocks": self._clocks("nvmlDeviceGetSupportedMemoryClocks"),
            "nvmlDeviceGetSupportedGraphicsClocks": self._clocks("nvmlDeviceGetSupportedGraphicsClocks"),
            **{name: self._scalar(name, taken) for name, taken in _SCALARS.items()},
            **{name: self._struct(name) for name in _STRUCTS},
            **{name: self._string(name) for name in _STRINGS},
            **{name: self._system_string(name) for name in _SYSTEM_STRINGS},
            **{name: self._system_scalar(name) for name in _SYSTEM_SCALARS},
            **{name: self._handle(name) for name in _HANDLES},
            **{name: self._setter(name) for name in _SETTERS},
            "nvmlGpmQueryDeviceSupport": self._gpm_support,
            "nvmlGpmSampleAlloc": self._gpm_alloc,
            "nvmlGpmSampleFree": lambda sample: Code.SUCCESS,
            "nvmlGpmSampleGet": self._gpm_sample,
            "nvmlGpmMetricsGet": self._gpm_metrics,
            _GET_PROFILES: self._profiles,
            _UPDATE_PROFILES.removesuffix("_v1"): self._update_profiles,
        }

    def __getattr__(self, name: str) -> Function:
        functions: dict[str, Function] = self.__dict__.get("_functions", {})
        plain = re.sub(r"(_v\d+|(?<=Info)V)$", "", name)
        if plain not in functions:
            raise AttributeError(name)
        return functions[plain]

    # ---- the connection --------------------------------------------------------------------------------------

    def _start(self, flags: int) -> int:
        path = os.environ.get(SOCKET_VARIABLE)
        if not path:
            return Code.LIBRARY_NOT_FOUND
        if not self._users:
            self._path = path
        code, _ = self._request("nvmlInit", None)
        self._users += code == Code.SUCCESS
        return code

    def _shut_down(self) -> int:
        if not self._users:
            return Code.UNINITIALIZED
        code, _ = self._request("nvmlShutdown", None)
        self._users -= code == Code.SUCCESS
        return code

    def _ask(self, name: str, handle: Any, *arguments: Any) -> tuple[int, Any]:
        """A function of a GPU; ``handle`` is pynvml's."""
        place = ctypes.cast(handle, ctypes.c_void_p).value if handle else None
        if not self._users:
            return Code.UNINITIALIZED, None
        return self._request(name, -1 if place is None else place - 1, *arguments)

    def _ask_system(self, name: str, *arguments: Any) -> tuple[int, Any]:
        if not self._users:
            return Code.UNINITIALIZED, None
        return self._request(name, None, *arguments)

    def _request(self, name: str, index: int | None, *arguments: Any) -> tuple[int, Any]:
        client: Client | None = getattr(self._clients, "client", None)
        if client is None or client.path != self._path:
            client = self._clients.client = Client(self._path)
        try:
            code, value = client.request("nvml", name, index, arguments)
        except (OSError, EOFError):
            return Code.DRIVER_NOT_LOADED, None
        return code, value

    # ---- kinds of functions ----------------------------------------------------------------------------------

    def _scalar(self, name: str, taken: int) -> Function:
        def function(handle: Any, *arguments: Any) -> int:
            given, filled = arguments[:taken], arguments[taken:]
            code, value = self._ask(name, handle, *map(_plain, given))
            if code == Code.SUCCESS:
                for reference, each in zip(filled, value if isinstance(value, tuple) else (value,), strict=True):
                    reference._obj.value = each
            return code

        return function

    def _setter(self, name: str) -> Function:
        return lambda handle, *arguments: self._ask(name, handle, *map(_plain, arguments))[0]

    def _struct(self, name: str) -> Function:
        def function(handle: Any, reference: Any) -> int:
            code, value = self._ask(name, handle)
            if code == Code.SUCCESS:
                for field, each in value.items():
                    setattr(reference._obj, field, each)
            return code

        return function

    def _string(self, name: str) -> Function:
        return lambda handle, buffer, length: _fill(buffer, *self._ask(name, handle))

    def _system_string(self, name: str) -> Function:
        return lambda buffer, length: _fill(buffer, *self._ask_system(name))

    def _system_scalar(self, name: str) -> Function:
        def function(reference: Any) -> int:
            code, value = self._ask_system(name)
            if code == Code.SUCCESS:
                reference._obj.value = value
            return code

        return function

    def _handle(self, name: str) -> Function:
        def function(given: Any, reference: Any) -> int:
            what = _plain(given)
            code, place = self._ask_system(name, what.decode() if isinstance(what, bytes) else what)
            if code == Code.SUCCESS:
                ctypes.c_void_p.from_buffer(reference._obj).value = place
            return code

        return function

    def _clocks(self, name: str) -> Function:
        def function(handle: Any, *arguments: Any) -> int:
            *given, count, array = arguments
            code, value = self._ask(name, handle, *map(_plain, given))
            return _fill_array(count._obj, array, value) if code == Code.SUCCESS else code

        return function

    def _processes(self, handle: Any, count: Any, array: Any) -> int:
        code, value = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        if code != Code.SUCCESS:
            return code
        whole = 0xFFFFFFFF  # neither a GPU instance nor a compute instance
        return _fill_array(count._obj, array, [(process, used, whole, whole) for process, used in value])

    def _temperature(self, handle: Any, reference: Any) -> int:
        code, value = self._ask("nvmlDeviceGetTemperature", handle, reference._obj.sensorType)
        if code == Code.SUCCESS:
            reference._obj.temperature = value
        return code

    def _profiles(self, handle: Any, reference: Any) -> int:
        current = reference._obj
        if current.version != _CURRENT_PROFILES:
            return Code.ARGUMENT_VERSION_MISMATCH
        code, masks = self._ask(_GET_PROFILES, handle)
        if code == Code.SUCCESS:
            for field, numbers in zip(("perfProfiles", "requestedProfiles", "enforcedProfiles"), masks, strict=True):
                for number in numbers:
                    getattr(current, f"{field}Mask").mask[number // 32] |= 1 << number % 32
        return code

    def _update_profiles(self, handle: Any, reference: Any) -> int:
        mask = reference._obj.updateProfilesMask.mask
        numbers = frozenset(number for number in range(256) if mask[number // 32] >> number % 32 & 1)
        return self._ask(_UPDATE_PROFILES, handle, reference._obj.operation, numbers)[0]

    def _gpm_support(self, handle: Any, reference: Any) -> int:
        if reference._obj.version != 1:
            return Code.ARGUMENT_VERSION_MISMATCH
        code, supported = self._ask("nvmlGpmQueryDeviceSupport", handle)
        reference._obj.isSupportedDevice = supported or 0
        return code

    def _gpm_alloc(self, reference: Any) -> int:
        self._samples.append((0.0, 0.0))
        ctypes.c_void_p.from_buffer(reference._obj).value = len(self._samples)
        return Code.SUCCESS

    def _gpm_sample(self, handle: Any, sample: Any) -> int:
        code, value = self._ask("nvmlGpmSampleGet", handle)
        if code == Code.SUCCESS:
            self._samples[_place(sample)] = value
        return code

    def _gpm_metrics(self, reference: Any) -> int:
        """Only what fraction of its bandwidth the memory was used; of two samples of one moment nothing is known."""
        wanted = reference._obj
        (begin_s, before), (end_s, after) = (self._samples[_place(each)] for each in (wanted.sample1, wanted.sample2))
        for metric in wanted.metrics[: wanted.numMetrics]:
            known = metric.metricId == _DRAM_BW_UTIL and end_s > begin_s
            metric.nvmlReturn = Code.SUCCESS if known else Code.NOT_SUPPORTED
            metric.value = 100.0 * (after - before) / (end_s - begin_s) if known else 0.0
        return Code.SUCCESS

    def _fields(self, handle: Any, count: Any, reference: Any) -> int:
        values = reference._obj
        asked = [(values[place].fieldId, values[place].scopeId) for place in range(_plain(count))]
        code, found = self._ask("nvmlDeviceGetFieldValues", handle, asked)
        if code == Code.SUCCESS:
            for place, (returned, kind, value, stamp, latency) in enumerate(found):
                one = values[place]
                one.nvmlReturn, one.valueType, one.timestamp, one.latencyUsec = returned, kind, stamp, latency
                one.value.ullVal = value
        return code


def _place(sample: Any) -> int:
    return (ctypes.cast(sample, ctypes.c_void_p).value or 0) - 1


_KNOWN = frozenset(map(int, Code))


def _plain(value: Any) -> Any:
    """The Python value of a C one."""
    return getattr(value, "value", value)


def _fill(buffer: Any, code: int, value: str | None) -> int:
    if code == Code.SUCCESS and value is not None:
        buffer.value = value.encode()
    return code


def _fill_array(count: Any, array: Any, values: list[Any]) -> int:
    """As NVML does it: the count alone where the array is missing or too small."""
    room, count.value = count.value, len(values)
    if room < len(values) or (array is None and values):
        return Code.INSUFFICIENT_SIZE
    for place, value in enumerate(values):
        array[place] = value
    return Code.SUCCESS
