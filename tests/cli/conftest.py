"""The program in a folder with a sweep, and with a study."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from testbed.program import SWEEP, Program


@pytest.fixture(scope="session")
def imported_study(tmp_path_factory) -> Path:
    """The study of the sweep, to be copied."""
    folder = tmp_path_factory.mktemp("imported")
    (folder / "sweep.csv").write_text(SWEEP)
    given = ("--study", "my.db", "--device-name", "Test GPU", "--workload", "tiny")
    ran = Program(folder)("study", "import", "sweep.csv", *given)
    assert ran.code == 0, ran.err
    return folder / "my.db"


@pytest.fixture
def study(wastenot, imported_study) -> Program:
    """The program beside a study called my.db."""
    shutil.copy(imported_study, wastenot.folder)
    return wastenot
