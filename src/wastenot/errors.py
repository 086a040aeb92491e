"""The errors that wastenot raises on purpose: each says what was wrong, where, and how to mend it."""

from __future__ import annotations


class WastenotError(Exception):
    """Base of every error a caller can act on; its text is one line for a person to read."""


class BadInputError(WastenotError):
    """Something that was given cannot be used: a file, a row, a field, a flag."""


class StudyError(WastenotError):
    """A study cannot be opened, read or written."""


class InfeasibleError(WastenotError):
    """No plan can meet what was asked; the text says what is possible.

    Attributes:
        least_slowdown: the smallest slowdown that any plan reaches, where that is known.
    """

    def __init__(self, message: str, *, least_slowdown: float | None = None) -> None:
        super().__init__(message)
        self.least_slowdown = least_slowdown


class MissingExtraError(WastenotError):
    """An optional dependency is not installed; the text says how to install it."""


class DeviceError(WastenotError):
    """A device cannot do what is asked of it."""


class ClocksRefusedError(DeviceError):
    """A device does not run at the clocks asked for, or does not allow them to be set."""


class CannotRunError(DeviceError):
    """A device cannot run a task."""
