"""The only access to AMD SMI."""

from __future__ import annotations

import contextlib
import io
import threading
from functools import cache
from types import ModuleType
from typing import Any

from wastenot.core.errors import MissingExtraError, WastenotError
from wastenot.core.install import install_line
from wastenot.devices.common.driver_library import DriverLibrary
from wastenot.devices.common.gpu_driver import (
    DriverError,
    GpuLostError,
    NoPermissionError,
    NoSuchGpuError,
    NotSupportedError,
)  # fmt: skip

_ELSEWHERE = "use a sim: device, or run on a machine where amd-smi works"
_UNKNOWN = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF  # what it writes, by the width of a field, for a value there is none of


class Smi(DriverLibrary):
    """AMD SMI, by the names of functions in ``amdsmi``: ``smi.call("amdsmi_get_power_info", handle)``.

    Raises:
        MissingExtraError: the Python binding of AMD SMI, or AMD SMI itself, is not installed.
        DriverError: the driver is not loaded or does not start.
    """

    binding = "amdsmi"
    reading = ("amdsmi_init", "amdsmi_get")
    turn = threading.RLock()  # before ROCm 7.2 the library is not safe to call from several threads

    def __init__(self, *, allow_changes: bool = False) -> None:
        super().__init__(_library(), allow_changes=allow_changes)
        self.call("amdsmi_init", self.library.AmdSmiInitFlags.INIT_AMD_GPUS)

    @property
    def error(self) -> type[Exception]:
        """What the binding raises."""
        return self.library.AmdSmiException  # type: ignore[no-any-return]

    def typed(self, function: str, error: Exception) -> WastenotError:
        """The error that a failure of a function is for callers."""
        return _typed(self.library, function, error)

    def handles(self) -> tuple[Any, ...]:
        """Handles of all GPUs in HIP's order, which PyTorch and ``HIP_VISIBLE_DEVICES`` count by; AMD SMI's own differs."""
        found = self.call("amdsmi_get_processor_handles")
        places = [self._enumeration(handle).get("hip_id") for handle in found]
        order = sorted(range(len(found)), key=lambda place: (number(places[place]) is None, places[place], place))
        return tuple(found[place] for place in order)

    def unique_id(self, handle: object) -> str:
        """A GPU's unique ID: HIP's as PyTorch writes it, else AMD SMI's own.

        HIP's is text of 16 characters, whose bytes PyTorch prints as a UUID: recalled of its output, not seen on a card.
        """
        hip = str(self._enumeration(handle).get("hip_uuid", "")).removeprefix("GPU-")
        if len(hip) == 16:
            text = hip.encode().hex()
            return f"AMD-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        return f"AMD-{self.call('amdsmi_get_gpu_device_uuid', handle)}"

    def _enumeration(self, handle: object) -> dict[str, Any]:
        return self.try_call("amdsmi_get_gpu_enumeration_info", handle) or {}


def number(value: object) -> float | None:
    """A value of AMD SMI; ``None`` for what stands there where there is none: "N/A", or all bits set."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value in _UNKNOWN:
        return None
    return float(value)


@cache
def _library() -> ModuleType:
    said = io.StringIO()
    try:
        # Where the library is missing, importing the binding prints so, and fails in ways that differ by version.
        with contextlib.redirect_stdout(said):
            import amdsmi
    except ImportError as error:
        raise MissingExtraError(f"AMD GPUs need amdsmi: {install_line('amd')}") from error
    except (OSError, KeyError, AttributeError) as error:
        raise MissingExtraError(f"no AMD driver with AMD SMI (libamd_smi.so) is installed here; {_ELSEWHERE}") from error
    return amdsmi  # type: ignore[no-any-return,unused-ignore]


def _typed(library: Any, function: str, error: Exception) -> WastenotError:
    status, code = library.amdsmi_wrapper, getattr(error, "err_code", None)
    said = " ".join(str(getattr(error, "err_info", None) or error).split())
    absent = MissingExtraError if function == "amdsmi_init" else DriverError  # a driver that was there has failed
    lost = f"the GPU no longer answers ({said}); an administrator must reset it, or reboot"
    by_code: dict[int, tuple[type[WastenotError], str]] = {
        status.AMDSMI_STATUS_DRIVER_NOT_LOADED: (absent, f"the AMD driver is not loaded; {_ELSEWHERE}"),
        status.AMDSMI_STATUS_NO_DRV: (absent, f"the AMD driver is not loaded; {_ELSEWHERE}"),
        status.AMDSMI_STATUS_NO_PERM: (NoPermissionError, f"{function}: no permission; clocks need root"),
        status.AMDSMI_STATUS_NOT_SUPPORTED: (NotSupportedError, f"{function}: this GPU or driver does not support it"),
        status.AMDSMI_STATUS_NOT_YET_IMPLEMENTED: (NotSupportedError, f"{function}: this driver does not provide it"),
        status.AMDSMI_STATUS_SETTING_UNAVAILABLE: (NotSupportedError, f"{function}: this GPU has no such setting"),
        status.AMDSMI_STATUS_INVAL: (NotSupportedError, f"{function}: this GPU does not accept the arguments"),
        status.AMDSMI_STATUS_INPUT_OUT_OF_BOUNDS: (NotSupportedError, f"{function}: this GPU does not accept the value"),
        status.AMDSMI_STATUS_NOT_FOUND: (NoSuchGpuError, f"{function}: {said}"),
        status.AMDSMI_STATUS_DRM_ERROR: (GpuLostError, lost),
        status.AMDSMI_STATUS_IO: (GpuLostError, lost),
    }
    kind, message = (
        (DriverError, f"{function}: {said}") if code is None else by_code.get(code, (DriverError, f"{function}: {said}"))
    )
    return kind(message)
