"""The errors that wastenot raises on purpose: each says what is wrong, where, and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Callable

_ARGUMENT = re.compile(r"`([a-z][a-z0-9_]*)`")


class WastenotError(Exception):
    """Base of every error a caller can act on; its text is one line for a person to read.

    A message puts the names of arguments in backticks. ``str()`` shows them bare; the command line shows the flags that
    stand for them (``--max-slowdown``), so that the library need not know of flags:

        >>> str(BadInputError("`max_slowdown` -2: must be above -1"))
        'max_slowdown -2: must be above -1'
    """

    def __str__(self) -> str:
        return self.text(lambda argument: argument)

    def text(self, name_of: Callable[[str], str]) -> str:
        """The message with each argument named by ``name_of``."""
        return _ARGUMENT.sub(lambda match: name_of(match[1]), super().__str__())


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class BadInputError(WastenotError):
    """An input cannot be used: a file, a row, a field, an argument."""


class StudyError(WastenotError):
    """A study cannot be opened, read or written."""


class StudyUnreachableError(StudyError):
    """The server of a study does not answer; it may answer again."""


class InfeasibleError(WastenotError):
    """No plan can meet the request; the text says what is possible.

    Attributes:
        least_slowdown: the smallest slowdown that any plan reaches, where that is known.
        reason: the text without what was asked for, for a reader who knows that.
    """

    def __init__(self, message: str, *, least_slowdown: float | None = None, asked: str = "") -> None:
        super().__init__(f"{asked}: {message}" if asked else message)
        self.least_slowdown = least_slowdown
        self.reason = message


class MissingExtraError(WastenotError):
    """Software that the request needs is not installed on this machine; the text says how to install it."""


class DeviceError(WastenotError):
    """A device, its driver or one of its sensors failed, does not answer, or lacks what measuring needs.

    The command line exits with 1 for it and with 2 for two of the subclasses below, which a different request avoids.
    """


class ClocksRefusedError(DeviceError):
    """A device does not support the requested clocks, or this process may not set them."""


class CannotRunError(DeviceError):
    """A device cannot run a task: no operation is known for a kernel, or its data do not fit into memory."""


class ServerError(DeviceError):
    """A server that is measured failed, or stopped answering."""
