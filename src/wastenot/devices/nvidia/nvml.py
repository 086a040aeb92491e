"""The only access to NVML."""

from __future__ import annotations

from collections.abc import Sequence
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

_ELSEWHERE = "use a sim: device, or run on a machine where nvidia-smi works"
_NEEDED_FOR_CLOCKS = "clocks need root, in a container also --cap-add=SYS_ADMIN"
_RESET = "an administrator must reset it, or reboot"


class Nvml(DriverLibrary):
    """NVML, by the names of functions in ``pynvml``: ``nvml.call("nvmlDeviceGetName", handle)``.

    Raises:
        MissingExtraError: the Python binding of NVML, or NVML itself, is not installed.
        DriverError: the driver is not loaded or does not start.
    """

    binding = "nvidia-ml-py"
    reading = (
        "nvmlInit",
        "nvmlShutdown",
        "nvmlSystemGet",
        "nvmlDeviceGet",
        "nvmlErrorString",
        "nvmlDeviceWorkloadPowerProfileGet",
        "nvmlGpmQuery",
        "nvmlGpmSample",
        "nvmlGpmMetricsGet",
    )

    def __init__(self, *, allow_changes: bool = False) -> None:
        super().__init__(_library(), allow_changes=allow_changes)
        self.call("nvmlInit")

    @property
    def error(self) -> type[Exception]:
        """What the binding raises."""
        return self.library.NVMLError  # type: ignore[no-any-return]

    def typed(self, function: str, error: Exception) -> WastenotError:
        """The error that a failure of a function is for callers."""
        return _typed(self.library, function, error)

    def fields(self, handle: object, wanted: Sequence[tuple[int, int]]) -> tuple[float | None, ...]:
        """Values of several (field, scope), read in one call; ``None`` for each that the GPU does not report."""
        values = self.try_call("nvmlDeviceGetFieldValues", handle, wanted)
        return (None,) * len(wanted) if values is None else tuple(map(_value_of, values))


def _value_of(field: Any) -> float | None:
    kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    if field.nvmlReturn != 0 or not 0 <= field.valueType < len(kinds):
        return None
    return float(getattr(field.value, kinds[field.valueType]))


def text_of(value: str | bytes) -> str:
    """Text from NVML, which some versions of the binding return as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _library() -> ModuleType:
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise MissingExtraError(f"NVIDIA GPUs need nvidia-ml-py: {install_line('nvidia')}") from error
    if not hasattr(pynvml, "nvmlDeviceGetFieldValues"):
        raise MissingExtraError(
            "the installed 'pynvml' is not NVIDIA's binding: pip uninstall pynvml, then pip install nvidia-ml-py"
        )
    return pynvml  # type: ignore[no-any-return,unused-ignore]


def _typed(library: Any, function: str, error: Exception) -> WastenotError:
    absent = MissingExtraError if function == "nvmlInit" else DriverError  # a driver that was there has failed
    by_code: dict[int, tuple[type[WastenotError], str]] = {
        library.NVML_ERROR_LIBRARY_NOT_FOUND: (absent, f"no NVIDIA driver is installed here; {_ELSEWHERE}"),
        library.NVML_ERROR_DRIVER_NOT_LOADED: (DriverError, f"the NVIDIA driver is not loaded; {_ELSEWHERE}"),
        library.NVML_ERROR_NO_PERMISSION: (NoPermissionError, f"{function}: no permission; {_NEEDED_FOR_CLOCKS}"),
        library.NVML_ERROR_NOT_SUPPORTED: (NotSupportedError, f"{function}: this GPU or driver does not support it"),
        library.NVML_ERROR_FUNCTION_NOT_FOUND: (NotSupportedError, f"{function}: this driver does not provide it"),
        library.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: (
            NotSupportedError,
            f"{function}: this driver has another version of it",
        ),
        library.NVML_ERROR_INVALID_ARGUMENT: (NotSupportedError, f"{function}: this GPU does not accept the arguments"),
        library.NVML_ERROR_GPU_IS_LOST: (GpuLostError, f"the GPU is lost: it no longer answers; {_RESET}"),
    }
    code = getattr(error, "value", None)
    if "GetHandle" in function and code in (library.NVML_ERROR_INVALID_ARGUMENT, library.NVML_ERROR_NOT_FOUND):
        return NoSuchGpuError(f"{function}: {error}")
    kind, message = (
        by_code.get(code, (DriverError, f"{function}: {error}")) if code is not None else (DriverError, str(error))
    )
    return kind(message)
