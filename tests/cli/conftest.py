"""The program in a folder with a sweep, and with a study."""

from __future__ import annotations

import pytest

from testbed.program import SWEEP, Program


@pytest.fixture
def wastenot(tmp_path) -> Program:
    (tmp_path / "sweep.csv").write_text(SWEEP)
    return Program(tmp_path)


@pytest.fixture
def study(wastenot) -> Program:
    """The program beside a study called my.db."""
    ran = wastenot("import", "sweep.csv", "--study", "my.db", "--device-name", "Test GPU", "--workload", "tiny")
    assert ran.code == 0, ran.err
    return wastenot
