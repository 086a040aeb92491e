"""The audit log: who asked for what, and what became of it; nothing that happens to the log makes anybody wait."""

import json
import os
import pwd
import signal
import socket
import stat

import pytest

from testbed.daemon_in_process import UUIDS, running
from testbed.daemon_process import ROOT, until
from wastenot.core.errors import BadInputError
from wastenot.devices.clockd import audit as audit_module
from wastenot.devices.clockd.audit import Audit, check_audit
from wastenot.devices.clockd.main import main as wastenotd
from wastenot.devices.clockd.policy import Bounds, Policy, Rule

FIRST, SECOND = UUIDS
POLICY = Policy((Rule(frozenset({1000}), frozenset(), frozenset({0}), Bounds((600.0, 1200.0))),), requests_per_s=1000.0)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "audit"
    folder.mkdir(mode=0o700)
    return folder


def read(path):
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last line may be being written
    return [json.loads(line) for line in whole.splitlines()]


class Told:
    def __init__(self):
        self.lines = []

    def __call__(self, event, **fields):
        self.lines.append((event, fields))


def test_requests_that_concern_clocks_or_are_refused_are_recorded():
    with running(POLICY) as daemon:
        client = daemon.connect()
        for ask, fields in (
            ("hello", {}), ("acquire", {"gpu": FIRST}), ("beat", {}), ("set", {"gpu": FIRST, "core_mhz": 900}),
            ("set", {"gpu": FIRST, "core_mhz": 1500}), ("acquire", {"gpu": SECOND}),
            ("release", {"gpu": FIRST}), ("x" * 1000, {}),
        ):  # fmt: skip
            client.ask(ask, **fields)
        whose = {"user": 1000, "process": 4711}
        assert all(whose.items() <= record.items() for record in daemon.records)
        said = [(each["event"], each.get("gpu"), each.get("core_mhz"), each["result"]) for each in daemon.records]
        assert said == [
            ("acquire", FIRST, None, "granted"), ("set", FIRST, 900, "granted"), ("set", FIRST, 1500, "refused"),
            ("acquire", SECOND, None, "refused"), ("release", FIRST, None, "granted"), ("other", None, None, "refused"),
        ]  # fmt: skip
        refused = daemon.records[2]
        assert refused["kind"] == "policy" and "600 to 1200 MHz" in refused["text"]
        ends = [fields for event, fields in daemon.events if event == "end of lease"]
        assert [(each["why"], each["restored"]) for each in ends] == [("asked", True)]


def test_a_request_that_was_not_answered_is_recorded_too():
    with running(POLICY) as daemon:
        daemon.hang_in_a_set()
        record = daemon.records[-1]
        assert (record["event"], record["result"], record["kind"]) == ("set", "refused", "device")
        assert "does not answer" in record["text"]


def test_records_have_a_time_and_a_name_and_the_file_is_roots_alone(folder):
    path = folder / "audit.jsonl"
    audit = Audit(str(path), lambda: 0.0, Told())
    audit("set", user=os.getuid(), process=1, gpu=FIRST, core_mhz=900, text='a"\n{}')
    audit("ready", socket=path)
    audit.close(60.0)
    first, second = read(path)
    assert first["name"] == pwd.getpwuid(os.getuid()).pw_name and first["text"] == 'a"\n{}' and first["core_mhz"] == 900
    assert first["time"].endswith("+00:00") and second["socket"] == str(path) and "name" not in second
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and audit.dropped() == 0


def test_the_file_is_rotated_by_size_and_its_bound_holds(folder, monkeypatch):
    monkeypatch.setattr(audit_module, "_LARGEST", 1000)
    monkeypatch.setattr(audit_module, "_KEPT", 2)
    path = folder / "audit.jsonl"
    audit = Audit(str(path), lambda: 0.0, Told())
    for number in range(100):
        audit("set", number=number)
    audit.close(60.0)
    assert sorted(each.name for each in folder.iterdir()) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(each.stat().st_size <= 1000 for each in folder.iterdir())
    kept = [record["number"] for name in ("audit.jsonl.2", "audit.jsonl.1", "audit.jsonl") for record in read(folder / name)]
    assert kept == [*range(kept[0], 100)] and len(kept) > 20


def test_a_file_that_is_moved_away_is_made_again(folder):
    path = folder / "audit.jsonl"
    audit = Audit(str(path), lambda: 0.0, Told())
    audit("one")
    assert until(lambda: len(read(path)) == 1)
    path.rename(folder / "moved")
    audit("two")
    audit.close(60.0)
    assert [record["event"] for record in read(path)] == ["two"]


@pytest.mark.parametrize("how", ["a link", "a pipe", "a folder", "an open folder", "an open file", "nothing"])
def test_what_others_could_have_put_there_is_refused(folder, how):
    path = folder / "audit.jsonl"
    if how == "a link":
        (folder / "target").touch()
        path.symlink_to(folder / "target")
    elif how == "a pipe":
        os.mkfifo(path)
    elif how == "a folder":
        path.mkdir()
    elif how == "an open folder":
        folder.chmod(0o777)
    elif how == "an open file":
        path.touch()
        path.chmod(0o666)
    else:
        path = folder / "none" / "audit.jsonl"
    with pytest.raises(BadInputError, match=r"audit\.jsonl: cannot be written"):
        check_audit(str(path))


def test_a_full_disk_loses_records_which_are_counted_and_told(folder, monkeypatch):
    path, told, write = folder / "audit.jsonl", Told(), os.write

    def full(descriptor, data):
        return write(descriptor, data[:5])

    audit = Audit(str(path), lambda: 0.0, told)
    audit("one")
    assert until(lambda: len(read(path)) == 1)
    monkeypatch.setattr(os, "write", full)
    for _ in range(10):
        audit("lost")
    assert until(lambda: audit.dropped() == 10)
    monkeypatch.undo()
    audit("two")
    audit.close(60.0)
    assert [record["event"] for record in read(path)] == ["one", "two", "audit"] and read(path)[-1]["dropped"] == 10
    [(event, fields)] = told.lines  # once a minute
    assert event == "audit" and "records are lost: No space left on device" in fields["error"]


def test_a_user_has_so_many_records_a_minute_and_others_theirs(folder):
    path = folder / "audit.jsonl"
    audit = Audit(str(path), lambda: 0.0, Told())
    for _ in range(1000):
        audit("set", user=10_000)
    audit("set", user=10_001)
    assert until(lambda: len(read(path)) >= 601)
    audit.close(60.0)
    assert [record["user"] for record in read(path)] == [10_000] * 600 + [10_001] and audit.dropped() == 400


def test_journald_gets_records_that_journalctl_can_filter(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_module, "_JOURNAL", str(tmp_path / "journal"))
    told = Told()
    audit = Audit("journald", lambda: 0.0, told)
    audit("lost")  # nobody is there
    assert until(lambda: audit.dropped() == 1) and "records are lost" in told.lines[0][1]["error"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.settimeout(60.0)
        journald.bind(str(tmp_path / "journal"))
        audit("set", core_mhz=900, text="a\nb")
        fields = dict(line.split("=", 1) for line in journald.recv(65536).decode().splitlines())
        assert fields["SYSLOG_IDENTIFIER"] == "wastenot-audit" and json.loads(fields["MESSAGE"])["text"] == "a\nb"
        for _ in range(1500):  # more than anybody reads
            audit("set")
        assert until(lambda: audit.dropped() > 1)
        audit.close(60.0)


def test_the_daemon_records_and_checks_it(stand_in, daemon, folder, monkeypatch, capsys):
    path = folder / "audit.jsonl"
    arguments = ["--policy", str(daemon.policy), "--audit", str(path)]
    daemon.start(ROOT.replace("1.0", "60"), arguments=arguments[2:])
    client, gpu = daemon.connect(), stand_in.control.state().uuid
    client.ask("acquire", gpu=gpu), client.ask("set", gpu=gpu, core_mhz=1200)
    client.close()
    assert until(lambda: any(record["event"] == "end of lease" for record in read(path)))
    daemon.signal(signal.SIGHUP)
    assert until(lambda: any(record["event"] == "policy read again" for record in read(path)))
    assert daemon.stop() == 0
    assert [record["event"] for record in read(path)] == [
        "ready", "acquire", "set", "end of lease", "policy read again", "stopped"
    ]  # fmt: skip
    assert wastenotd([*arguments, "--check"]) == 0
    folder.chmod(0o777)
    assert wastenotd([*arguments, "--check"]) == 2 and "cannot be written" in capsys.readouterr().err
