"""Tests that share the machine with other work: which they are, and whether they pass beside load, time after time.

    .venv/bin/pytest -n 3 -p benchmarks.suite_load -m "not slow" --waiting FILE
    python -m benchmarks.suite_load FILE [--times 10] [--load 4] [-- OPTIONS OF PYTEST]    # such as -n 3

What a test computes does not depend on load; what it waits for may. As a plugin of pytest this lists the tests that start a
process or a thread, open a socket, sleep or read a clock from our own code, whatever they do with it. As a program it runs
the listed ones several times beside ``stress-ng --cpu LOAD`` and exits with 1 if any failed. It needs ``stress-ng``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kept import ROOT

_EVENTS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec", "socket.__new__", "pty.spawn")
_CLOCKS = ("sleep", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns")
_OURS = ("wastenot", "testbed", "tests", "benchmarks.")

_waits = threading.Event()
_waiting: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file to write, by the controller and by every worker beside it."""
    parser.addoption("--waiting", required=True, metavar="FILE", help="list the tests that may depend on load there")


def _audited(event: str, arguments: tuple[object, ...]) -> None:
    if event in _EVENTS:
        _waits.set()


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``time`` that notes calls from our own code."""

    @wraps(function)
    def noted(*arguments: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").startswith(_OURS):
            _waits.set()
        return function(*arguments)

    return noted


def _started(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @wraps(start)
    def noted(thread: threading.Thread) -> None:
        _waits.set()
        start(thread)

    return noted


def pytest_configure() -> None:
    """Watch from before the first module of ours is imported."""
    sys.addaudithook(_audited)
    threading.Thread.start = _started(threading.Thread.start)  # type: ignore[method-assign]
    for name in _CLOCKS:
        setattr(time, name, _noting(getattr(time, name)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """One test, with the set-up of its fixtures."""
    _waits.clear()
    result = yield
    if _waits.is_set():
        _waiting.append(item.nodeid)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add what this process saw."""
    if _waiting:
        with Path(session.config.getoption("--waiting")).open("a", encoding="utf-8") as file:
            file.writelines(f"{each}\n" for each in _waiting)


def main(waiting: Path, times: int, load: int, options: list[str]) -> int:
    """Run the listed tests beside load; returns how many runs failed."""
    tests = sorted(set(waiting.read_text(encoding="utf-8").splitlines()))
    arguments = waiting.with_suffix(".args")
    arguments.write_text("".join(f"{each}\n" for each in tests), encoding="utf-8")
    failed = 0
    with subprocess.Popen(["stress-ng", "--cpu", str(load), "--quiet"]) as stress:
        try:
            for run in range(1, times + 1):
                began = time.monotonic()
                done = subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, f"@{arguments}"],
                    cwd=ROOT, capture_output=True, text=True, check=False,
                )  # fmt: skip
                last = next(iter(done.stdout.strip().splitlines()[-1:]), "no output")
                print(f"run {run} of {times}, {len(tests)} tests, {time.monotonic() - began:.0f} s: {last}", flush=True)
                if done.returncode:
                    failed += 1
                    names = [each for each in done.stdout.splitlines() if each.startswith(("FAILED", "ERROR"))]
                    print("\n".join(names) or done.stdout[-2000:], flush=True)
        finally:
            stress.terminate()
    print(f"{failed} of {times} runs failed")
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("waiting", type=Path)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--load", type=int, default=4)
    ours, _, theirs = "\0".join(sys.argv[1:]).partition("\0--\0")
    asked = parser.parse_args(ours.split("\0"))
    sys.exit(min(main(asked.waiting, asked.times, asked.load, theirs.split("\0") if theirs else []), 1))
