"""Ctrl-C while the program is being loaded: one line and the exit code, when nothing is to be undone yet."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def interrupted(number: int, frame: FrameType | None) -> None:
    """End at once: an exception would be a traceback through imports, or be lost in one of Python's own callbacks."""
    os.write(2, b"interrupted\n")
    os._exit(130)


def begin_loading() -> None:
    """Where this process is the program ``wastenot``, not another that imports the package, hear Ctrl-C from now on."""
    is_program = sys.orig_argv[1:3] == ["-m", "wastenot"] or "".join(sys.argv[:1]).endswith("/wastenot")
    if is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)


def end_loading() -> None:
    """A Ctrl-C raises ``KeyboardInterrupt`` again, which commands handle."""
    if signal.getsignal(signal.SIGINT) is interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
