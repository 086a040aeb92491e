"""Whatever is built on devices works with a vendor that the source does not know: it is registered, and that is all."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import made_up_gpus
from testbed.made_up_gpus import DEFAULT, IDS, state
from wastenot.control.application import parse_devices
from wastenot.core import vendors
from wastenot.core.errors import BadInputError, ClocksRefusedError, DeviceError
from wastenot.core.setting import Setting
from wastenot.core.vendors import commands, undo_commands
from wastenot.devices.clockd.leases import Leases
from wastenot.devices.clockd.policy import Bounds, Peer, Policy, Rule
from wastenot.devices.common import journal, machine
from wastenot.devices.common.gpu_driver import DriverError, setters_here
from wastenot.devices.common.journal import Restore
from wastenot.devices.common.rights import Rights
from wastenot.devices.open import device_of_study, open_device
from wastenot.meters.devices import visible_names

ROOT = Path(__file__).parents[2]
FIRST, SECOND = IDS
PROGRAM = """
import os, signal, sys, time
from testbed import made_up_gpus
from wastenot.core import vendors
vendors.VENDORS = made_up_gpus.known()
from wastenot.devices.open import open_device
from wastenot.core.setting import Setting
device = open_device("acme:0", allow_clock_control=True)
with device.clocks.claimed():
    device.clocks.request(Setting(900.0, 2000.0, 200.0))
    print("changed", flush=True)
    time.sleep(60.0)
"""


@pytest.fixture(autouse=True)
def acme(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(vendors, "VENDORS", made_up_gpus.known())
    monkeypatch.setenv(made_up_gpus.FILE, str(tmp_path / "cards.json"))
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    for name in ("WASTENOT_READ_ONLY", "WASTENOTD_SOCKET", "ACME_VISIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("wastenot.devices.common.control.rights_here", lambda: Rights(True, True, None, None))
    monkeypatch.setitem(sys.modules, "pynvml", None)


@pytest.fixture
def changed():
    """A process that has claimed the first card and changed its clocks."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, cwd=ROOT) as process:
        # Who is no root sets clocks here too: the cards are a file.
        assert process.stdout.readline() == b"changed\n"
        assert state(FIRST) == {"core": 900.0, "memory": 2000.0, "power": 200.0}
        yield process
        process.kill()


def test_it_is_opened_by_index_and_by_unique_id():
    first, second = open_device("acme:0").identity, open_device(f"acme:{SECOND}").identity
    assert (first.unique_id, second.unique_id) == IDS and first.label == f"Acme Rocket {FIRST}"
    assert device_of_study("s.db", first.label) == f"acme:{FIRST}"
    assert parse_devices("acme:0,1") == ("acme:0", "acme:1")
    for wrong, said in (("acme:7", "acme:0, acme:1"), ("acme:", "acme:INDEX"), ("tpu:0", "acme:INDEX")):
        with pytest.raises(BadInputError, match=said):
            open_device(wrong)


def test_clocks_are_changed_only_where_that_is_allowed_and_always_journaled():
    with pytest.raises(ClocksRefusedError, match="allow_clock_control"):
        open_device("acme:0").clocks.request(Setting(900.0))
    clocks = open_device("acme:0", allow_clock_control=True).clocks
    with pytest.raises(ClocksRefusedError, match="no core clock of 901 MHz"):
        clocks.request(Setting(901.0))
    assert state(FIRST) == DEFAULT and journal.journals() == ()
    clocks.request(Setting(900.0, None, 200.0))
    assert state(FIRST) == {"core": 900.0, "memory": None, "power": 200.0}
    (found,) = journal.journals()
    assert (found.uuid, found.owner, found.restore) == (FIRST, os.getpid(), Restore(None, None, 300.0))
    clocks.release()
    assert state(FIRST) == DEFAULT and journal.journals() == ()


def test_a_claim_keeps_other_processes_out(changed):
    clocks = open_device("acme:0", allow_clock_control=True).clocks
    for taken in (lambda: clocks.request(Setting(300.0)), lambda: clocks.claimed().__enter__()):
        with pytest.raises(DeviceError, match=f"process {changed.pid} .* controls the clocks"):
            taken()
    with open_device("acme:1", allow_clock_control=True).clocks.claimed():
        assert {each.uuid for each in journal.journals()} == set(IDS)


def test_a_signal_gives_them_back(changed):
    changed.send_signal(signal.SIGTERM)
    changed.wait()
    assert state(FIRST) == DEFAULT and journal.journals() == ()


def test_after_a_kill_the_next_command_gives_them_back_whichever_card_it_is_for(changed):
    changed.kill()
    changed.wait()
    assert state(FIRST)["core"] == 900.0 and len(journal.stale()) == 1
    open_device("acme:1")
    assert state(FIRST) == DEFAULT and journal.journals() == ()


@pytest.mark.parametrize("as_json", [False, True])
def test_after_a_kill_reset_gives_them_back(changed, wastenot, as_json):
    assert json.loads(wastenot("device", "reset", "--json").stdout)["held"] == [FIRST]
    changed.kill()
    changed.wait()
    said = wastenot("device", "reset", *["--json"] * as_json)
    assert said.returncode == 0
    assert json.loads(said.stdout)["restored"] == [FIRST] if as_json else f"{FIRST}: process {changed.pid}" in said.stderr
    assert state(FIRST) == DEFAULT and journal.journals() == ()


def test_doctor_says_what_it_is_and_what_to_do(wastenot, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(machine, "rights_here", lambda: Rights(True, True, None, None))
    seen = {vendors.bare_unique_id(FIRST): 0}
    monkeypatch.setattr(machine, "_torch", lambda: machine.FoundTorch("2.9.1", "HIP 6.2", seen))
    text = wastenot("doctor", "--seconds", "0.01s").stdout
    assert text.startswith("2 × Acme Rocket: its clocks can be set") and "--device acme:0 " in text
    assert f"Acme Rocket, Coyote, {SECOND}" in text and "core 300 to 1500 MHz (3 clocks)" in text
    found = json.loads(wastenot("doctor", "--json", "--seconds", "0.01s").stdout)
    assert (found["driver"], [gpu["name"] for gpu in found["gpus"]]) == ("1.0", ["acme:0", "acme:1"])
    assert [gpu["torch_index"] for gpu in found["gpus"]] == [0, None] and found["gpus"][0]["sensors"]


def test_beside_gpus_of_another_vendor(wastenot, stand_in):
    gpus = json.loads(wastenot("doctor", "--json", "--seconds", "0.01s").stdout)["gpus"]
    assert [gpu["name"] for gpu in gpus] == ["nvidia:0", "nvidia:1", "acme:0", "acme:1"]
    assert [setter.unique_id for setter in setters_here(pytest.fail)][2:] == [*IDS]
    clocks = [open_device(f"{vendor}:0", allow_clock_control=True).clocks for vendor in ("nvidia", "acme")]
    with clocks[0].claimed(), clocks[1].claimed():
        assert len(journal.journals()) == 2
    assert journal.journals() == ()


def test_all_that_are_visible_are_measured(monkeypatch):
    assert visible_names() == ("acme:0", "acme:1")
    monkeypatch.setenv("ACME_VISIBLE", f"1,{FIRST}")
    assert visible_names() == ("acme:1", f"acme:{FIRST}")
    monkeypatch.setenv("ACME_VISIBLE", "")
    with pytest.raises(DeviceError, match="ACME_VISIBLE= leaves no GPU"):
        visible_names()


def test_plans_name_the_command_of_its_tool():
    wanted = commands(f"Acme Rocket {FIRST}", Setting(900.0))
    assert wanted == (f"acme-smi --card {FIRST} --ceiling 900",)
    assert undo_commands(wanted) == (f"acme-smi --card {FIRST} --no-ceiling",)


def finished(leases):
    """Let the threads of leases finish what they do."""
    deadline = time.monotonic() + 60.0
    while leases.searching() or any(waiting for waiting, *_ in leases.numbers().values()):
        assert time.monotonic() < deadline
        time.sleep(1e-3)
        leases.finish()


def asked(leases, what, *arguments):
    """The kind of refusal of a request; ``None`` where it is granted."""
    said = []
    getattr(leases, what)(*arguments, said.append)
    finished(leases)
    return said[0] and said[0].kind


def test_the_daemon_gives_them_to_users():
    policy = Policy((Rule(frozenset({1000}), frozenset(), None, Bounds(core_mhz=(300.0, 900.0))),))
    leases = Leases(setters_here(pytest.fail), policy, lambda: 0.0, lambda *_, **__: None, lambda: None)
    mine, others, peer = object(), object(), Peer(1000, frozenset(), 4711)
    assert asked(leases, "acquire", mine, peer, FIRST, False) is None
    assert asked(leases, "set", mine, FIRST, Setting(900.0)) is None
    assert state(FIRST)["core"] == 900.0 and journal.journals()[0].holder.through_daemon
    assert asked(leases, "acquire", others, peer, FIRST, False) == "leased"
    assert asked(leases, "set", mine, FIRST, Setting(1500.0)) == "policy"
    assert asked(leases, "release", mine, FIRST) is None
    assert state(FIRST) == DEFAULT and journal.journals() == ()


def test_the_daemon_asks_a_card_that_did_not_answer_again(monkeypatch):
    def lost(index):
        raise DriverError("the card is lost")

    missed, events, now = [], [], [0.0]
    policy = Policy((Rule(frozenset({1000}), frozenset(), frozenset({0}), Bounds()),))
    with monkeypatch.context() as context:
        context.setattr(made_up_gpus, "unique_id", lambda index: lost(index) if index == 0 else IDS[index])
        setters = setters_here(lambda name, error: missed.append((name, str(error))))
        leases = Leases(
            setters, policy, lambda: now[0], lambda event, **fields: events.append((event, fields)), lambda: None
        )
        now[0] = 5.0
        leases.look_after()
        finished(leases)
        assert missed == [("acme:0", "the card is lost")] and leases.missing() == ["acme:0"] and [*leases.gpus] == [SECOND]
    now[0] = 9.9
    leases.look_after()
    finished(leases)
    assert leases.missing() == ["acme:0"]
    now[0] = 10.0
    leases.look_after()
    finished(leases)
    assert leases.missing() == [] and ("answers again", {"gpu": FIRST}) in events
    peer = Peer(1000, frozenset(), 4711)
    assert asked(leases, "acquire", object(), peer, FIRST, False) is None  # which the rule names by its place
    assert leases.end_all(60.0) == (True, [])
