"""The one door to NVML. It reads; whatever would change a GPU is refused here unless it was allowed, below every caller."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from types import ModuleType
from typing import Any

from wastenot.errors import DeviceError, MissingExtraError

READ_ONLY = "WASTENOT_READ_ONLY"

_READING = ("nvmlInit", "nvmlShutdown", "nvmlSystemGet", "nvmlDeviceGet", "nvmlErrorString")


class NvmlError(DeviceError):
    """NVML could not do it."""


class NoPermissionError(NvmlError):
    """The user may not do it."""


class NotSupportedError(NvmlError):
    """The GPU or its driver does not have it."""


class GpuLostError(NvmlError):
    """The GPU no longer answers."""


class ReadOnlyError(NvmlError):
    """It would change the GPU, which was not allowed."""


def forbidden() -> str | None:
    """Why nothing may be changed whatever is said on the command line; ``None`` where nothing forbids it."""
    value = os.environ.get(READ_ONLY, "")
    return None if value in ("", "0") else f"{READ_ONLY}={value} is set"


class Nvml:
    """NVML with typed errors, behind a guard.

    Functions are called by their names in ``pynvml``: ``nvml.call("nvmlDeviceGetName", handle)``.

    Args:
        allow_changes: let functions through that change a GPU; the environment's ``WASTENOT_READ_ONLY=1`` forbids it all the
            same.

    Raises:
        MissingExtraError: the Python binding of NVML is not installed.
        NvmlError: there is no driver, or it does not start.
    """

    def __init__(self, *, allow_changes: bool = False) -> None:
        self.library: Any = _library()
        self.allow_changes = allow_changes
        self.call("nvmlInit")

    def allowing_changes(self) -> Nvml:
        """The same NVML, started once, with changes allowed; the environment may still forbid them."""
        allowed = copy(self)
        allowed.allow_changes = True
        return allowed

    def close(self) -> None:
        """Done with NVML."""
        self.call("nvmlShutdown")

    def refusal(self) -> str | None:
        """Why clocks may not be changed; ``None`` where they may, as far as wastenot goes."""
        reason = forbidden()
        if reason is None and not self.allow_changes:
            reason = "clocks are only touched with --allow-clock-control"
        return reason

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of NVML.

        Args:
            function: its name in ``pynvml``.
            arguments: as it takes them.

        Raises:
            ReadOnlyError: the function may change something, and that was not allowed.
            NoPermissionError: the user lacks a right.
            NotSupportedError: the GPU or driver lacks it.
            GpuLostError: the GPU has fallen off the bus.
            NvmlError: any other failure.
        """
        if not function.startswith(_READING):
            reason = self.refusal()
            if reason is not None:
                raise ReadOnlyError(f"{function}: refused: {reason}")
        found = getattr(self.library, function, None)
        if found is None:
            raise NotSupportedError(f"{function}: this nvidia-ml-py does not have it; install a newer one")
        try:
            return found(*arguments)
        except self.library.NVMLError as error:
            raise _typed(self.library, function, error) from error

    def try_call(self, function: str, *arguments: object) -> Any:
        """Call a reading function; ``None`` where the value cannot be had.

        Raises:
            GpuLostError: the GPU has fallen off the bus.
        """
        try:
            return self.call(function, *arguments)
        except GpuLostError:
            raise
        except NvmlError:
            return None

    def field(self, handle: object, field: int, scope: int = 0) -> float | None:
        """The value of one field; ``None`` where the GPU does not tell it."""
        return self.fields(handle, [field], scope)[0]

    def fields(self, handle: object, wanted: Sequence[int], scope: int = 0) -> tuple[float | None, ...]:
        """Values of several fields, asked for together; ``None`` for each that the GPU does not tell."""
        return self.scoped_fields(handle, [(field, scope) for field in wanted])

    def scoped_fields(self, handle: object, wanted: Sequence[tuple[int, int]]) -> tuple[float | None, ...]:
        """Values of several (field, scope), asked for together; ``None`` for each that the GPU does not tell."""
        found = self.try_call("nvmlDeviceGetFieldValues", handle, wanted)
        return (None,) * len(wanted) if found is None else tuple(map(_value_of, found))


def _value_of(field: Any) -> float | None:
    kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    if field.nvmlReturn != 0 or not 0 <= field.valueType < len(kinds):
        return None
    return float(getattr(field.value, kinds[field.valueType]))


def text_of(value: str | bytes) -> str:
    """Text from NVML, which some versions of the binding give as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _library() -> ModuleType:
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise MissingExtraError("NVIDIA GPUs need nvidia-ml-py: pip install 'wastenot[nvidia]'") from error
    if not hasattr(pynvml, "nvmlDeviceGetFieldValues"):
        raise MissingExtraError(
            "the installed 'pynvml' is not NVIDIA's binding: pip uninstall pynvml, then pip install nvidia-ml-py"
        )
    return pynvml  # type: ignore[no-any-return,unused-ignore]


def _typed(library: Any, function: str, error: Exception) -> NvmlError:
    code = getattr(error, "value", None)
    if code in (library.NVML_ERROR_LIBRARY_NOT_FOUND, library.NVML_ERROR_DRIVER_NOT_LOADED):
        return NvmlError("no NVIDIA driver was found on this machine; use a sim: device, or run where nvidia-smi works")
    if code == library.NVML_ERROR_NO_PERMISSION:
        return NoPermissionError(f"{function}: no permission; clocks need root, in a container also --cap-add=SYS_ADMIN")
    if code == library.NVML_ERROR_NOT_SUPPORTED:
        return NotSupportedError(f"{function}: this GPU or driver does not support it")
    if code == library.NVML_ERROR_GPU_IS_LOST:
        return GpuLostError("the GPU is lost: it no longer answers; it needs a reset by the administrator, or a reboot")
    return NvmlError(f"{function}: {error}")
