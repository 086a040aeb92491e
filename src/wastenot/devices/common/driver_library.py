"""The only access to a driver's library: a call that would change a GPU is refused here, below every caller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from wastenot.core.errors import WastenotError
from wastenot.devices.common.gpu_driver import NoPermissionError, NotSupportedError, ReadOnlyError, refusal


class DriverLibrary(ABC):
    """A driver's library through its Python binding, with typed errors and a guard against unintended changes.

    Functions are called by their names in the binding: ``library.call("...GetName", handle)``.

    Args:
        library: the binding.
        allow_changes: allow functions that change a GPU. ``WASTENOT_READ_ONLY=1`` in the environment still forbids them.

    Attributes:
        binding: name of the distribution that the binding comes in.
        reading: what names of functions begin with that change nothing.
        turn: held during each call.
    """

    binding: ClassVar[str]
    reading: ClassVar[tuple[str, ...]]
    turn: ClassVar[AbstractContextManager[Any]] = nullcontext()

    def __init__(self, library: Any, *, allow_changes: bool) -> None:
        self.library, self.allow_changes = library, allow_changes

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function.

        Args:
            function: its name in the binding.
            arguments: of the function.

        Raises:
            ReadOnlyError: the function may change something, which was not allowed.
            NoPermissionError: the user lacks the permission.
            NotSupportedError: the GPU, driver or binding does not support it.
            NoSuchGpuError: there is no such GPU.
            GpuLostError: the GPU no longer answers.
            DriverError: any other failure.
        """
        if not function.startswith(self.reading):
            reason = refusal(self.allow_changes)
            if reason is not None:
                raise ReadOnlyError(f"{function}: refused: {reason}")
        implementation = getattr(self.library, function, None)
        if implementation is None:
            text = f"{function}: the installed {self.binding} does not provide it; install a newer version"
            raise NotSupportedError(text)
        try:
            with self.turn:
                return implementation(*arguments)
        except self.error as error:
            raise self.typed(function, error) from error

    def try_call(self, function: str, *arguments: object) -> Any:
        """Call a reading function; ``None`` where this GPU, driver or user has no such value.

        Raises:
            DriverError: the GPU or its driver failed, so that nothing can be said about the value.
        """
        try:
            return self.call(function, *arguments)
        except (NotSupportedError, NoPermissionError):
            return None

    @property
    @abstractmethod
    def error(self) -> type[Exception]:
        """What the binding raises."""

    @abstractmethod
    def typed(self, function: str, error: Exception) -> WastenotError:
        """The error that a failure of a function is for callers."""
