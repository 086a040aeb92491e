"""Where a study lies: paths, URLs, drivers, and passwords that stay unseen."""

from __future__ import annotations

import pytest

from wastenot.core.errors import StudyError
from wastenot.study import address as address_module
from wastenot.study.address import parse_address
from wastenot.study.store import open_study


def test_a_path_is_a_file(tmp_path):
    address = parse_address(tmp_path / "a b?mode=rwc#%41.db")
    assert address.path == tmp_path / "a b?mode=rwc#%41.db"
    assert address.url is None
    assert address.file_uri.endswith("/a%20b%3Fmode%3Drwc%23%2541.db?mode=rw")


def test_sqlite_urls_are_files_too():
    assert str(parse_address("sqlite:////data/s.db").path) == "/data/s.db"
    assert str(parse_address("sqlite:///s.db").path) == "s.db"
    read_only = parse_address("sqlite:///file:/data/s.db?mode=ro&uri=true")
    assert str(read_only.path) == "/data/s.db"
    assert read_only.file_uri == "file:/data/s.db?mode=ro"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_study_in_memory_is_refused(url):
    with pytest.raises(StudyError, match="in memory would be lost"):
        parse_address(url)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
@pytest.mark.parametrize(("installed", "driver"), [(True, "postgresql+psycopg"), (False, "postgresql")])
def test_a_bare_postgresql_url_uses_psycopg_3_where_it_is(monkeypatch, scheme, installed, driver):
    monkeypatch.setattr(address_module, "find_spec", lambda _: installed or None)
    address = parse_address(f"{scheme}://me@host/db")
    assert address.url.drivername == driver
    assert address.label == f"{scheme}://me@host/db"


def test_a_named_driver_is_kept():
    assert parse_address("postgresql+psycopg2://host/db").url.drivername == "postgresql+psycopg2"


def test_passwords_are_hidden():
    address = parse_address("postgresql://me:hush%21@host/db?sslpassword=quiet&application_name=x")
    assert address.label == "postgresql://me:***@host/db?application_name=x&sslpassword=***"
    assert set(address.secrets) == {"hush!", "quiet"}
    assert address.url.password == "hush!"


@pytest.mark.parametrize("url", ["://me:hush@host/db", "postgresql://me:hush@host:port/db", "my sql://me:hu@sh@host/db"])
def test_bad_urls_are_refused_without_their_password(url):
    with pytest.raises(StudyError, match="is not a database URL") as caught:
        parse_address(url)
    assert "hu" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_names_no_file_is_refused(path):
    with pytest.raises(StudyError, match="is not a file name"):
        parse_address(path)


def test_unknown_databases_and_missing_drivers_are_said():
    with pytest.raises(StudyError, match=r"^nosuch://me:\*\*\*@host/db: no such kind of database"):
        open_study("nosuch://me:hush@host/db", create=True)
    with pytest.raises(StudyError, match=r"its driver is not installed: .*pip install '.*\[postgresql\]'"):
        open_study("postgresql+psycopg2://host/db")


def test_an_unreachable_server_is_said():
    pytest.importorskip("psycopg", reason="needs the postgresql extra")
    study = open_study("postgresql://me:hush@127.0.0.1:1/db?connect_timeout=2")
    with pytest.raises(StudyError, match=r"the server does not answer: .*127\.0\.0\.1") as caught:
        study.summary()
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)
