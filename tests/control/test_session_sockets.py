"""Sockets of sessions: whoever finds one there finds somebody who listens."""

import socket

import pytest

from wastenot.control.session import ask
from wastenot.control.wire import Line, listen_at


class Watched(socket.socket):
    """Notes what a second terminal is told just before it listens."""

    def listen(self, backlog):
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
