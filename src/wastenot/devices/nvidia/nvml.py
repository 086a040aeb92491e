"""The only access to NVML: a call that would change a GPU is refused here, below every caller, unless that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from wastenot.core.errors import MissingExtraError, WastenotError
from wastenot.core.install import install_line
from wastenot.devices.common.gpu_driver import (
    DriverError,
    GpuLostError,
    NoPermissionError,
    NoSuchGpuError,
    NotSupportedError,
    ReadOnlyError,
    refusal,
)  # fmt: skip

_ELSEWHERE = "use a sim: device, or run on a machine where nvidia-smi works"
_NEEDED_FOR_CLOCKS = "clocks need root, in a container also --cap-add=SYS_ADMIN"
_RESET = "an administrator must reset it, or reboot"
_READING = ("nvmlInit", "nvmlShutdown", "nvmlSystemGet", "nvmlDeviceGet", "nvmlErrorString")


class Nvml:
    """NVML with typed errors and a guard against unintended changes.

    Functions are called by their names in ``pynvml``: ``nvml.call("nvmlDeviceGetName", handle)``.

    Args:
        allow_changes: allow functions that change a GPU. ``WASTENOT_READ_ONLY=1`` in the environment still forbids them.

    Raises:
        MissingExtraError: the Python binding of NVML, or NVML itself, is not installed.
        DriverError: the driver is not loaded or does not start.
    """

    def __init__(self, *, allow_changes: bool = False) -> None:
        self.library: Any = _library()
        self.allow_changes = allow_changes
        self.call("nvmlInit")

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of NVML.

        Args:
            function: its name in ``pynvml``.
            arguments: of the function.

        Raises:
            ReadOnlyError: the function may change something, which was not allowed.
            NoPermissionError: the user lacks the permission.
            NotSupportedError: the GPU, driver or binding does not support it.
            NoSuchGpuError: there is no GPU of that index or UUID.
            GpuLostError: the GPU has fallen off the bus.
            DriverError: any other failure.
        """
        if not function.startswith(_READING):
            reason = refusal(self.allow_changes)
            if reason is not None:
                raise ReadOnlyError(f"{function}: refused: {reason}")
        implementation = getattr(self.library, function, None)
        if implementation is None:
            raise NotSupportedError(f"{function}: the installed nvidia-ml-py does not provide it; install a newer version")
        try:
            return implementation(*arguments)
        except self.library.NVMLError as error:
            raise _typed(self.library, function, error) from error

    def try_call(self, function: str, *arguments: object) -> Any:
        """Call a reading function; ``None`` where this GPU, driver or user has no such value.

        Raises:
            DriverError: the GPU or its driver failed, so that nothing can be said about the value.
        """
        try:
            return self.call(function, *arguments)
        except (NotSupportedError, NoPermissionError):
            return None

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
