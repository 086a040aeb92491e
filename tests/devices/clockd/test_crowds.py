"""Many clients at once: all are served, or are told that the daemon is busy."""

import os
import signal
import socket
import threading
import time

import pytest

from testbed.daemon_process import ROOT
from wastenot.devices.common import daemon_connection
from wastenot.devices.common.daemon_connection import BusyError, Connection


def connected(count, then=lambda: None):
    """What became of so many clients that connect at once, while something happens."""
    kept, errors = [], []

    def connect():
        try:
            kept.append(Connection())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=connect) for _ in range(count)]
    for thread in threads:
        thread.start()
    then()
    for thread in threads:
        thread.join()
    return kept, errors


def test_clients_that_come_all_at_once_are_all_served(daemon):
    daemon.start("connections_per_user = 400\n" + ROOT)
    daemon.signal(signal.SIGSTOP)
    kept, errors = connected(300, lambda: (time.sleep(0.5), daemon.signal(signal.SIGCONT)))
    assert errors == [] and len(kept) == 300
    for each in kept:
        each.close()


def test_who_finds_a_full_backlog_tries_again(monkeypatch, tmp_path):
    path = tmp_path / "sock"
    monkeypatch.setenv("WASTENOTD_SOCKET", str(path))
    monkeypatch.setattr(daemon_connection, "_BUSY_S", 0.2)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(0)
        waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        waiting.connect(str(path))
        with pytest.raises(BusyError, match="wastenotd is busy: too many programs are waiting"):
            Connection()
        waiting.close()


def test_who_has_too_many_connections_is_told_so_and_waits_for_one(daemon, monkeypatch):
    daemon.start("connections_per_user = 1\n" + ROOT)
    first = Connection()
    monkeypatch.setattr(daemon_connection, "_BUSY_S", 0.2)
    for _ in range(5):
        with pytest.raises(BusyError, match="wastenotd is busy: it has too many connections"):
            Connection()
    monkeypatch.setattr(daemon_connection, "_BUSY_S", 60.0)
    kept, errors = connected(1, lambda: (time.sleep(0.3), first.close()))
    assert errors == [] and kept[0].welcome.user == os.getuid()
    kept[0].close()
