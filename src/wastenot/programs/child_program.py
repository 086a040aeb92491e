"""A program that a command runs: it has the terminal, signals are passed on to it, and its exit code is the command's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Child = subprocess.Popen[bytes]


@contextmanager
def running_program(
    command: Sequence[str], *, to_stderr: bool, environment: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Run a program and wait for it; signals meant to end this process are passed on to it.

    In another thread than the main one, which alone may handle signals, none are.

    Args:
        command: the program and its arguments.
        to_stderr: send what it writes to stdout there.
        environment: variables that it gets besides those of this process.

    Raises:
        OSError: it cannot be run.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = subprocess.Popen(
        command, stdout=sys.stderr if to_stderr else None, env=None if environment is None else os.environ | environment
    )

    def pass_on(number: int, _: object) -> None:
        # A key pressed in the terminal reaches the whole foreground group, including the program.
        if (number == signal.SIGINT and _in_foreground()) or child.poll() is not None:
            return
        child.send_signal(number)

    before = {}
    try:
        try:
            for number in _handled():
                before[number] = signal.signal(number, pass_on)
        except BaseException:  # nobody would watch over it
            child.terminate()
            raise
        yield child
    finally:
        child.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(child: Child) -> int:
    """The exit code of a program that has ended, as shells state it: 128 + n if signal n ended it."""
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _handled() -> list[signal.Signals]:
    """Signals that this thread may pass on; one that is ignored, as under nohup, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in _PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
