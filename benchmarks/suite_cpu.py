"""Where the CPU time of the test suite goes: a plugin of pytest, and the table of what it wrote.

    SUITE_CPU=/tmp/cpu .venv/bin/pytest -n 2 -p benchmarks.suite_cpu -m "not slow"
    python -m benchmarks.suite_cpu /tmp/cpu [LINES]

CPU time is that of the worker and of every child process it has waited for, in user and system mode. It is counted for each
test (setup, call, teardown) and for each set-up of a fixture; a fixture's time includes that of the fixtures it asked for.
What was seen is written twice a minute, so that a run that is broken off is not lost.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_tests: dict[str, list[float]] = {}
_fixtures: dict[str, list[float]] = {}
_WRITE_EVERY_S = 30.0
_written_s = [0.0]


def _cpu_s() -> float:
    return sum(os.times()[:4])


def _spend(into: dict[str, list[float]], name: str, cpu_s: float, wall_s: float) -> None:
    spent = into.setdefault(name, [0.0, 0.0])
    spent[0] += cpu_s
    spent[1] += wall_s


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """The whole of one test."""
    cpu_s, wall_s = _cpu_s(), time.monotonic()
    result = yield
    _spend(_tests, item.nodeid, _cpu_s() - cpu_s, time.monotonic() - wall_s)
    if time.monotonic() - _written_s[0] > _WRITE_EVERY_S:
        _write()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    """One set-up of a fixture."""
    cpu_s, wall_s = _cpu_s(), time.monotonic()
    result = yield
    _spend(_fixtures, f"{fixturedef.baseid}::{fixturedef.argname}", _cpu_s() - cpu_s, time.monotonic() - wall_s)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave what this process has seen."""
    _write()


def _write() -> None:
    _written_s[0] = time.monotonic()
    folder = Path(os.environ["SUITE_CPU"])
    folder.mkdir(parents=True, exist_ok=True)
    written = {"total_s": _cpu_s(), "tests": _tests, "fixtures": _fixtures}
    (folder / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.json").write_text(json.dumps(written))


def report(folder: Path, lines: int) -> str:
    """Files, tests and fixtures in order of the CPU time they took, ``lines`` of each."""
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    fixtures: Counter[str] = Counter()
    for each in sorted(folder.glob("*.json")):
        seen = json.loads(each.read_text())
        for name, (cpu_s, _wall_s) in seen["tests"].items():
            files[name.split("::")[0]] += cpu_s
            tests[name] += cpu_s
        for name, (cpu_s, _wall_s) in seen["fixtures"].items():
            fixtures[name] += cpu_s
    text = [f"{sum(files.values()):9.1f} s CPU in {len(tests)} tests"]
    for title, spent in (("files", files), ("tests", tests), ("fixtures", fixtures)):
        text += ["", title] + [f"{cpu_s:9.2f}  {name}" for name, cpu_s in spent.most_common(lines)]
    return "\n".join(text)


if __name__ == "__main__":
    print(report(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40))
