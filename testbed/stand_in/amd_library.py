"""Stands where ``libamd_smi.so`` would: its C functions, for the real ``amdsmi`` to call through ctypes.

Each function takes what amdsmi gives the C one, asks the server, fills in what was passed by reference and returns a status.
A function that is not here answers that it is not supported.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from testbed.stand_in.codes import Code
from testbed.stand_in.wire import Client

SOCKET_VARIABLE = "STAND_IN_AMDSMI"
_STATUS = {  # AMDSMI_STATUS_*
    Code.SUCCESS: 0, Code.INVALID_ARGUMENT: 1, Code.NOT_SUPPORTED: 2, Code.FUNCTION_NOT_FOUND: 3, Code.TIMEOUT: 8,
    Code.NO_PERMISSION: 10, Code.GPU_IS_LOST: 12, Code.IN_USE: 30, Code.NOT_FOUND: 31, Code.UNINITIALIZED: 32,
    Code.DRIVER_NOT_LOADED: 34, Code.NO_DATA: 40, Code.INSUFFICIENT_SIZE: 41,
}  # fmt: skip
_OTHER = 0xFFFFFFFF  # AMDSMI_STATUS_UNKNOWN_ERROR
_STRUCTS = {  # how many arguments come between the handle and the struct
    "amdsmi_get_gpu_enumeration_info": 0, "amdsmi_get_gpu_asic_info": 0, "amdsmi_get_gpu_driver_info": 0,
    "amdsmi_get_gpu_vram_info": 0, "amdsmi_get_power_info": 0, "amdsmi_get_violation_status": 0,
    "amdsmi_get_gpu_metrics_info": 0,
    "amdsmi_get_clock_info": 1, "amdsmi_get_power_cap_info": 1,
}  # fmt: skip
_SCALARS = {
    "amdsmi_get_energy_count": 0, "amdsmi_get_gpu_perf_level": 0, "amdsmi_get_temp_metric": 2,
}  # fmt: skip
_SETTERS = ("amdsmi_set_gpu_clk_limit", "amdsmi_set_gpu_perf_level", "amdsmi_set_power_cap")


class _Function:
    """A function of the library, which amdsmi declares types on as on one of ctypes."""

    def __init__(self, call: Callable[..., int]) -> None:
        self._call = call
        self.restype: Any = None
        self.argtypes: Any = None

    def __call__(self, *arguments: Any) -> int:
        return self._call(*arguments)


class Library:
    """The functions as attributes, as ctypes has those of a shared library."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._functions = {
            "amdsmi_init": self._start,
            "amdsmi_get_socket_handles": self._sockets,
            "amdsmi_get_processor_handles": self._processors,
            "amdsmi_get_gpu_device_uuid": self._uuid,
            "amdsmi_get_clk_freq": self._frequencies,
            "amdsmi_get_gpu_process_list": self._processes,
            **{name: self._struct(name, taken) for name, taken in _STRUCTS.items()},
            **{name: self._scalar(name, taken) for name, taken in _SCALARS.items()},
            **{name: self._setter(name) for name in _SETTERS},
        }

    def __getattr__(self, name: str) -> _Function:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _Function(self._functions.get(name, lambda *_: _STATUS[Code.NOT_SUPPORTED]))
        setattr(self, name, found)
        return found

    def _start(self, flags: Any) -> int:
        path = os.environ.get(SOCKET_VARIABLE)
        if not path:
            return _STATUS[Code.DRIVER_NOT_LOADED]
        self._client = Client(path)
        return self._request("amdsmi_init", None)[0]

    def _request(self, name: str, index: int | None, *arguments: Any) -> tuple[int, Any]:
        if self._client is None:
            return _STATUS[Code.UNINITIALIZED], None
        try:
            code, value = self._client.request("nvml", name, index, arguments)
        except (OSError, EOFError):
            return _STATUS[Code.DRIVER_NOT_LOADED], None
        return _STATUS.get(Code(code), _OTHER), value

    def _ask(self, name: str, handle: Any, *arguments: Any) -> tuple[int, Any]:
        """A function of a GPU; ``handle`` is amdsmi's: its place, counted from 1."""
        place = ctypes.cast(handle, ctypes.c_void_p).value
        return self._request(name, -1 if place is None else place - 1, *map(_plain, arguments))

    # ---- functions ---------------------------------------------------------------------------------------------

    def _sockets(self, count: Any, handles: Any) -> int:
        status, found = self._request("nvmlDeviceGetCount", None)
        if status == 0:
            count._obj.value = found
            for place in range(found if handles else 0):
                handles[place] = place + 1
        return status

    def _processors(self, socket: Any, count: Any, handles: Any) -> int:
        count._obj.value = 1
        if handles:
            handles[0] = ctypes.cast(socket, ctypes.c_void_p).value
        return 0

    def _uuid(self, handle: Any, length: Any, buffer: Any) -> int:
        status, value = self._ask("amdsmi_get_gpu_device_uuid", handle)
        if status == 0:
            buffer.value = value.encode()
        return status

    def _frequencies(self, handle: Any, kind: Any, reference: Any) -> int:
        status, value = self._ask("amdsmi_get_clk_freq", handle, kind)
        if status == 0:
            reference._obj.num_supported, reference._obj.current = len(value), len(value) - 1
            for place, hertz in enumerate(value):
                reference._obj.frequency[place] = hertz
        return status

    def _processes(self, handle: Any, count: Any, array: Any) -> int:
        status, value = self._ask("amdsmi_get_gpu_process_list", handle)
        if status == 0:
            count._obj.value = len(value)
            for place, (process, used) in enumerate(value):
                array[place].pid, array[place].mem = process, used
        return status

    def _struct(self, name: str, taken: int) -> Callable[..., int]:
        def function(handle: Any, *arguments: Any) -> int:
            status, value = self._ask(name, handle, *arguments[:taken])
            if status == 0:
                for field, each in value.items():
                    setattr(arguments[taken]._obj, field, each)
            return status

        return function

    def _scalar(self, name: str, taken: int) -> Callable[..., int]:
        def function(handle: Any, *arguments: Any) -> int:
            status, value = self._ask(name, handle, *arguments[:taken])
            if status == 0:
                for reference, each in zip(arguments[taken:], value if isinstance(value, tuple) else (value,), strict=True):
                    reference._obj.value = each
            return status

        return function

    def _setter(self, name: str) -> Callable[..., int]:
        return lambda handle, *arguments: self._ask(name, handle, *arguments)[0]


def _plain(value: Any) -> Any:
    """The Python value of a C one, or of an enumeration."""
    return int(getattr(value, "value", value))
