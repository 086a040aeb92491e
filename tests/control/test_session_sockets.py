"""Sockets of sessions: whoever finds one there finds somebody who listens."""

import socket
import time
from contextlib import suppress
from random import Random

import pytest

from testbed.heard_markers import HeardMarkers
from wastenot.control.session import Session
from wastenot.control.wire import SCHEMA, Line, ask, listen_at


class Watched(socket.socket):
    """Notes what a second terminal is told just before it listens."""

    def listen(self, backlog: int = 128, /) -> None:
        self.before = ask(self.path, "status"), self.path.exists()
        super().listen(backlog)


def test_a_socket_has_its_path_only_once_it_listens(tmp_path):
    listening = Watched(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.path = tmp_path / "apply.sock"
    (tmp_path / "apply.sock~").touch()  # of a process that died in between
    with listening:
        listen_at(str(listening.path), listening)
        assert listening.before == (None, False)
        assert [each.name for each in tmp_path.iterdir()] == ["apply.sock"]
        assert listening.path.stat().st_mode & 0o777 == 0o600
        line = Line.to(str(listening.path))
        line.close()
    assert ask(listening.path, "status") is None and not listening.path.exists()


def test_a_place_where_nothing_can_be_made_is_told(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening, pytest.raises(FileNotFoundError):
        listen_at(str(tmp_path / "none" / "apply.sock"), listening)


HOSTILE = [
    b"[" * 1000 + b"\n",
    b'{"a":' * 2000 + b"\n",
    b'{"markers": ["a"], "at_s": 1e999}\n',
    b'{"markers": 5, "at_s": 1}\n',
    b'{"hello": "rank", "schema": "wastenot.session/1", "local_rank": 1e300}\n',
    b'{"hello": "rank", "schema": "wastenot.session/1", "local_rank": [1]}\n',
    b'{"seen": {"none": 1}}\n',
    b'{"seen": 4}\n',
    b'{"gpu": {"a": 1}}\n',
    b'{"pipeline_rank": "x", "environment": 3}\n',
    b'{"ask": "status", "ask": "stop"}\n',
    b"\xff\xfe\n",
    b"{" * (1 << 21),
]


def send(path, data):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected, suppress(OSError):
        connected.settimeout(10.0)
        connected.connect(str(path))
        connected.sendall(data)
        connected.shutdown(socket.SHUT_WR)
        while connected.recv(1 << 16):
            pass


def test_whatever_one_client_sends_the_others_are_heard(tmp_path):
    driver = HeardMarkers()
    with Session(driver, tmp_path / "s.sock", lease=False) as session:
        rank = Line.to(str(session.path))
        rank.send({"hello": "rank", "schema": SCHEMA, "process": 1, "local_rank": 0, "program": "test"})
        for data in HOSTILE:
            send(session.path, data)
        random = Random(31)
        for _ in range(300):
            data = bytearray(random.choice(HOSTILE[:-1]))
            for _ in range(random.randrange(4)):
                data[random.randrange(len(data))] = random.randrange(256)
            send(session.path, bytes(data) + b"\n")
        rank.send({"markers": ["iteration"], "at_s": 1.0})
        end_s = time.monotonic() + 60.0
        while "iteration" not in driver.names():
            assert time.monotonic() < end_s
            time.sleep(0.01)
        assert session.problem is None
        rank.close()
        assert session.end() == "job ended"


@pytest.mark.parametrize("local_rank", [-1, -(10**18), 1])
def test_a_local_rank_that_there_is_no_gpu_for_marks_nothing(tmp_path, local_rank):
    driver = HeardMarkers()
    with Session(driver, tmp_path / "s.sock", lease=False) as session:
        rank = Line.to(str(session.path))
        rank.ask({"hello": "rank", "schema": SCHEMA, "process": 1, "local_rank": local_rank, "program": "test"})
        rank.send({"markers": ["iteration"], "at_s": 1.0})
        assert "status" in rank.ask({"ask": "status"})
        assert driver.names() == [] and session.problem is None
        rank.close()


def test_a_client_that_reads_nothing_is_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr("wastenot.control.session._HEARS_S", 0.2)
    with Session(HeardMarkers(), tmp_path / "s.sock", lease=False) as session:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
            deaf.connect(str(session.path))
            with suppress(OSError):  # hung up on while it still asks
                deaf.sendall(b'{"ask": "status"}\n' * 20_000)
            assert ask(session.path, "status") is not None
        assert session.end() == "job ended"


def test_a_session_that_fails_gives_the_clocks_back_and_says_so(tmp_path):
    class Failing(HeardMarkers):
        ended = None

        def due_s(self):
            if self.markers:
                raise ZeroDivisionError("of a driver")
            return super().due_s()

        def end(self, now_s=None, *, ended="job ended", exit_code=None):
            self.ended = ended
            return super().end(now_s, ended=ended)

    driver = Failing()
    with Session(driver, tmp_path / "s.sock", lease=False) as session:
        rank = Line.to(str(session.path))
        rank.send({"hello": "rank", "schema": SCHEMA, "process": 1, "local_rank": 0, "program": "test"})
        rank.send({"markers": ["iteration"], "at_s": 1.0})
        heard = []
        while data := rank.socket.recv(1 << 16):
            heard += rank.taken(data)
        assert heard[-1] == {"bye": True}
        end_s = time.monotonic() + 60.0
        while driver.ended is None:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        assert driver.ended == "failed" and session.problem == "ZeroDivisionError: of a driver"
        rank.close()
