"""What the daemon does for its clients, and to those that mean harm; in virtual time."""

import array
import json
import os
import socket

import pytest

from testbed.daemon_in_process import DEFAULT_MW, UUIDS, running
from wastenot.devices.clockd import gpu_leases as leases_module, server as server_module
from wastenot.devices.clockd.policy import Bounds, Policy, Rule
from wastenot.devices.common import daemon_protocol, journal
from wastenot.devices.common.gpu_driver import NotSupportedError

FIRST, SECOND = UUIDS
POLICY = Policy(
    (
        Rule(frozenset({1000}), frozenset(), frozenset({0}), Bounds((600.0, 1200.0), None, (300.0, 600.0), 100.0)),
        Rule(frozenset({1001}), frozenset({50}), None, Bounds()),
    ),
    heartbeat_s=10.0,
    requests_per_s=1000.0,
    connections_per_user=4,
)


@pytest.fixture
def daemon():
    with running(POLICY) as daemon:
        yield daemon
        assert daemon.mistakes() == []


@pytest.fixture
def client(daemon):
    client = daemon.connect()
    assert client.ask("hello")["ok"]["user"] == 1000
    return client


def kind(reply):
    return reply.get("error", "ok")


# ---- leases -----------------------------------------------------------------------------------------------------


def test_hello_says_what_the_policy_allows(daemon, client):
    found = client.ask("hello")["ok"]
    assert found["heartbeat_s"] == 10.0 and found["leases"] == {}
    assert found["gpus"] == {
        FIRST: {
            "core_mhz": [600.0, 1200.0], "memory_mhz": None, "power_limit_w": [300.0, 600.0], "longest_lease_s": 100.0,
            "profiles": [], "shares": False, "restore": "reset to the driver's defaults",
        }
    }  # fmt: skip
    by_group = daemon.connect(user=7, groups=(50,)).ask("hello")["ok"]["gpus"]
    assert list(by_group) == [FIRST, SECOND] and by_group[FIRST]["core_mhz"] == [0.0, None]
    assert daemon.connect(user=7).ask("hello")["ok"]["gpus"] == {}


def test_a_lease_is_acquired_journaled_set_and_released(daemon, client):
    assert kind(client.ask("acquire", gpu=FIRST)) == "ok" and daemon.journals() == [FIRST]
    assert kind(client.ask("set", gpu=FIRST, core_mhz=900, power_limit_w=400)) == "ok"
    assert daemon.nvml.core[0] == (300, 900) and daemon.nvml.limit_mw[0] == 400_000
    assert client.ask("status")["ok"]["leases"][FIRST]["user"] == 1000
    assert kind(client.ask("release", gpu=FIRST)) == "ok"
    assert not daemon.nvml.changed(0) and daemon.journals() == []
    logged = [event for event, _ in daemon.events]
    assert logged == ["lease", "set", "end of lease"]


def test_the_journal_is_there_before_anything_changes(daemon, client):
    client.ask("acquire", gpu=FIRST)
    seen = []
    daemon.nvml.on_change = lambda: seen.append((daemon.journals(), daemon.nvml.changed(0)))
    client.ask("set", gpu=FIRST, core_mhz=900)
    assert seen == [([FIRST], False)]


def test_auto_in_a_claim_resets_and_keeps_the_lease_and_without_one_ends_it(daemon, client):
    unbounded = daemon.connect(user=1001)
    unbounded.ask("hello")
    unbounded.ask("acquire", gpu=FIRST, claim=True)
    unbounded.ask("set", gpu=FIRST, core_mhz=900)
    unbounded.ask("set", gpu=FIRST)
    assert not daemon.nvml.changed(0) and daemon.journals() == [FIRST]
    unbounded.ask("release", gpu=FIRST)
    client.ask("acquire", gpu=FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    assert kind(client.ask("set", gpu=FIRST)) == "ok" and daemon.journals() == []
    assert kind(client.ask("set", gpu=FIRST, core_mhz=900)) == "lost"


LOCKED, KEPT = (300, 600), (2000, 2000)  # by an administrator, before


def test_auto_within_bounds_is_the_widest_that_they_allow(daemon, client):
    daemon.nvml.core[0], daemon.nvml.memory[0] = LOCKED, KEPT
    client.ask("acquire", gpu=FIRST, claim=True)
    assert kind(client.ask("set", gpu=FIRST)) == "ok"
    assert daemon.nvml.core[0] == (300, 1200) and daemon.nvml.memory[0] == KEPT  # which this user may not set
    client.ask("set", gpu=FIRST, core_mhz=900)
    client.ask("set", gpu=FIRST, power_limit_w=400)
    assert daemon.nvml.core[0] == (300, 1200)
    client.ask("release", gpu=FIRST)
    assert daemon.nvml.memory[0] == KEPT and daemon.nvml.core[0] is None and daemon.journals() == []


@pytest.mark.parametrize("how", ["release", "close", "silence", "kill"])
def test_a_lease_leaves_what_it_may_not_set_as_it_found_it(daemon, how, monkeypatch):
    daemon.nvml.core[1], daemon.nvml.memory[1] = LOCKED, KEPT
    only_power = Rule(frozenset({7}), frozenset(), None, Bounds(None, None, (300.0, 600.0)))
    daemon.take_policy(Policy((only_power,), heartbeat_s=10.0))
    client = daemon.connect(user=7)
    client.ask("hello")
    client.ask("acquire", gpu=SECOND, claim=True)
    for limit_w in (None, 400, None):
        assert kind(client.ask("set", gpu=SECOND, power_limit_w=limit_w)) == "ok"
        assert (daemon.nvml.core[1], daemon.nvml.memory[1]) == (LOCKED, KEPT)
    if how == "release":
        client.ask("release", gpu=SECOND)
    elif how == "kill":
        client.ask("set", gpu=SECOND, power_limit_w=400)
        monkeypatch.setattr(journal.process_lock, "is_taken", lambda path: False)  # as the next daemon finds it
        monkeypatch.setattr(journal.process_lock, "take", lambda path: True)
        daemon.search()
    elif how == "close":
        client.close()
    else:
        daemon.pass_time(10.1)
    assert daemon.journals() == []
    assert (daemon.nvml.core[1], daemon.nvml.memory[1], daemon.nvml.limit_mw[1]) == (LOCKED, KEPT, DEFAULT_MW)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"core_mhz": 1500}, "core clock of 600 to 1200 MHz"),
        ({"core_mhz": 300}, "core clock of 600 to 1200 MHz"),
        ({"memory_mhz": 1000}, "does not let you set its memory clock"),
        ({"power_limit_w": 650.0}, "power limit of 300 to 600 W"),
        ({"core_mhz": 900, "power_limit_w": 250}, "power limit of 300 to 600 W"),
    ],
)
def test_nobody_gets_past_the_policy(daemon, client, fields, said):
    client.ask("acquire", gpu=FIRST)
    refused = client.ask("set", gpu=FIRST, **fields)
    assert kind(refused) == "policy" and said in refused["text"] and not daemon.nvml.changed(0)
    assert kind(client.ask("set", gpu=FIRST, core_mhz=900)) == "ok"


def test_a_gpu_that_the_policy_does_not_name_is_refused(daemon, client):
    assert kind(client.ask("acquire", gpu=SECOND)) == "policy"
    stranger = daemon.connect(user=7)
    stranger.ask("hello")
    assert kind(stranger.ask("acquire", gpu=FIRST)) == "policy" and daemon.journals() == []


def test_without_a_lease_nothing_is_set(daemon, client):
    assert kind(client.ask("set", gpu=FIRST, core_mhz=900)) == "lost"
    other = daemon.connect(user=1001)
    other.ask("hello")
    other.ask("acquire", gpu=FIRST)
    for ask in ("acquire", "set"):
        refused = client.ask(ask, gpu=FIRST, core_mhz=900) if ask == "set" else client.ask(ask, gpu=FIRST)
        assert kind(refused) in ("leased", "lost") and not daemon.nvml.changed(0)
    assert "process 4711 (user 1001, through wastenotd) controls" in client.ask("acquire", gpu=FIRST)["text"]
    assert kind(client.ask("release", gpu=FIRST)) == "ok" and daemon.journals() == [FIRST]  # not theirs to release


def test_what_the_gpu_does_not_have_is_refused_as_it_is_to_root(daemon, client):
    client.ask("acquire", gpu=FIRST)
    refused = client.ask("set", gpu=FIRST, core_mhz=901)
    assert kind(refused) == "refused" and "no core clock of 901 MHz" in refused["text"]


@pytest.mark.parametrize("how", ["close", "shutdown"])
def test_who_hangs_up_has_given_back(daemon, client, how):
    client.ask("acquire", gpu=FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    if how == "close":
        client.close()
    else:
        client.socket.shutdown(socket.SHUT_WR)
        daemon.go()
        assert client.hung_up()
    assert not daemon.nvml.changed(0) and daemon.journals() == []


def test_who_is_silent_loses_the_lease_and_is_told_so(daemon, client):
    client.ask("acquire", gpu=FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    for _ in range(5):
        daemon.pass_time(9.0)
        assert client.ask("beat")["ok"] == {"held": True}
    daemon.pass_time(9.9)
    assert daemon.nvml.changed(0)
    client.send(b"")
    client.send(b'{"wastenot": 1')  # half a heartbeat is none
    daemon.pass_time(0.2)
    assert not daemon.nvml.changed(0) and daemon.journals() == []
    client.send(b', "ask": "beat"}\n')
    assert client.reply()["ok"] == {"held": False}
    told = client.ask("set", gpu=FIRST, core_mhz=900)
    assert kind(told) == "lost" and "no heartbeat for 10 s" in told["text"]
    assert kind(client.ask("acquire", gpu=FIRST)) == "ok"


def test_a_driver_that_takes_long_makes_nobody_silent(daemon, client):
    """Heartbeats that came while the daemon waited for a driver are read before anybody is found silent."""
    other = daemon.connect(user=1001)
    other.ask("hello")
    client.ask("acquire", gpu=FIRST)
    other.ask("acquire", gpu=SECOND)

    def slow():
        daemon.now += 60.0
        client.socket.send(b'{"wastenot": 1, "ask": "beat"}\n')

    daemon.nvml.on_change = slow
    other.send(json.dumps({"wastenot": 1, "ask": "set", "gpu": SECOND, "core_mhz": 900}).encode() + b"\n")
    daemon.nvml.on_change = lambda: None
    assert daemon.journals() == [FIRST, SECOND]


def test_no_lease_is_for_ever_and_others_get_their_turn(daemon, client):
    client.ask("acquire", gpu=FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    for _ in range(10):
        daemon.pass_time(9.99)
        client.ask("beat")
    assert daemon.nvml.changed(0)
    daemon.pass_time(0.2)
    assert not daemon.nvml.changed(0)
    assert "reached the time limit of the policy" in client.ask("set", gpu=FIRST, core_mhz=900)["text"]
    again = client.ask("acquire", gpu=FIRST)
    assert kind(again) == "policy" and "try again in 10 s" in again["text"]
    another = daemon.connect(user=1000, process=4712)
    another.ask("hello")
    assert kind(another.ask("acquire", gpu=FIRST)) == "policy"
    daemon.pass_time(10.1)
    assert kind(client.ask("acquire", gpu=FIRST)) == "ok"


EVERYBODY = Policy(
    (Rule(frozenset({1000, 1001, 1002}), frozenset(), None, Bounds(longest_lease_s=100.0)),),
    heartbeat_s=10.0, requests_per_s=1000.0,
)  # fmt: skip


def both(client, gpu):
    """Release and acquire in one write."""
    lines = [json.dumps({"wastenot": 1, "ask": what, "gpu": gpu}).encode() + b"\n" for what in ("release", "acquire")]
    client.send(b"".join(lines))
    return kind(client.reply()), kind(client.reply())


def test_who_gives_back_and_takes_again_at_once_has_it_no_longer(daemon, client):
    daemon.take_policy(EVERYBODY)
    client.ask("acquire", gpu=FIRST)
    for _ in range(10):
        daemon.pass_time(9.5)
        assert both(client, FIRST) == ("ok", "ok")
    daemon.pass_time(5.1)
    assert daemon.journals() == [] and "reached the time limit" in client.ask("set", gpu=FIRST, core_mhz=900)["text"]
    assert kind(client.ask("acquire", gpu=FIRST)) == "policy"
    daemon.pass_time(10.1)
    assert kind(client.ask("acquire", gpu=FIRST)) == "ok"
    for _ in range(10):
        daemon.pass_time(9.5)
        client.ask("beat")
    assert daemon.journals() == [FIRST]  # a hundred seconds more


def test_no_lease_is_given_that_is_already_over(daemon, client):
    daemon.take_policy(EVERYBODY)
    client.ask("acquire", gpu=FIRST)
    for _ in range(10):
        daemon.pass_time(9.7)
        client.ask("beat")
    assert kind(client.ask("release", gpu=FIRST)) == "ok"
    daemon.pass_time(5.0)
    again = client.ask("acquire", gpu=FIRST)
    assert kind(again) == "policy" and "try again in 10 s" in again["text"] and daemon.journals() == []
    daemon.pass_time(10.1)
    assert kind(client.ask("acquire", gpu=FIRST)) == "ok"
    assert client.ask("status")["ok"]["leases"][FIRST]["left_s"] == 100.0


def test_users_take_turns_in_the_order_in_which_they_asked(daemon, client):
    daemon.take_policy(EVERYBODY)
    second, third = daemon.connect(user=1001), daemon.connect(user=1002)
    for each in (second, third):
        each.ask("hello")
    client.ask("acquire", gpu=FIRST)
    assert [kind(each.ask("acquire", gpu=FIRST)) for each in (second, third)] == ["leased", "leased"]
    daemon.pass_time(5.0)
    assert both(client, FIRST) == ("ok", "queued")
    assert kind(third.ask("acquire", gpu=FIRST)) == "queued" and kind(second.ask("acquire", gpu=FIRST)) == "ok"
    assert both(second, FIRST) == ("ok", "queued")
    assert kind(client.ask("acquire", gpu=FIRST)) == "queued" and kind(third.ask("acquire", gpu=FIRST)) == "ok"
    assert kind(client.ask("acquire", gpu=SECOND)) == "ok"  # for which nobody waits


def test_who_does_not_ask_any_more_keeps_nobody_waiting(daemon, client):
    daemon.take_policy(EVERYBODY)
    other = daemon.connect(user=1001)
    other.ask("hello")
    client.ask("acquire", gpu=FIRST)
    other.ask("acquire", gpu=FIRST)
    assert both(client, FIRST) == ("ok", "queued")
    daemon.pass_time(10.1)
    assert kind(client.ask("acquire", gpu=FIRST)) == "ok"


def test_a_gpu_that_cannot_be_restored_is_tried_again_and_given_to_nobody(daemon, client):
    client.ask("acquire", gpu=FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    daemon.nvml.failing = True
    assert kind(client.ask("release", gpu=FIRST)) == "device"
    assert daemon.journals() == [FIRST] and client.ask("status")["ok"]["leases"][FIRST] == {
        "unrestored": True, "why": "nvmlDeviceResetGpuLockedClocks: the driver fails"
    }  # fmt: skip
    other = daemon.connect(user=1001)
    other.ask("hello")
    assert kind(other.ask("acquire", gpu=FIRST)) == "device"
    daemon.pass_time(5.0)
    assert daemon.nvml.changed(0)
    daemon.nvml.failing = False
    daemon.pass_time(1.1)
    assert not daemon.nvml.changed(0) and daemon.journals() == []
    assert kind(other.ask("acquire", gpu=FIRST)) == "ok"


def test_why_a_gpu_cannot_be_restored_is_told_shown_and_logged_once_a_minute(daemon, client):
    client.ask("acquire", gpu=FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    call = daemon.nvml.call

    def refuses(function, *arguments):
        if function == "nvmlDeviceResetGpuLockedClocks":
            raise NotSupportedError(f"{function}: this GPU does not accept the arguments")
        return call(function, *arguments)

    daemon.nvml.call = refuses
    daemon.pass_time(10.1)  # of silence
    why = "does not accept the arguments"
    told = client.ask("set", gpu=FIRST, core_mhz=900)
    assert kind(told) == "lost" and "could not be restored yet" in told["text"] and why in told["text"]
    shown = client.ask("status")["ok"]["leases"][FIRST]
    assert shown["unrestored"] and why in shown["why"] and daemon.nvml.changed(0)
    assert why in journal.read(daemon.state / f"{FIRST}.json").failed
    other = daemon.connect(user=1001)
    other.ask("hello")
    assert why in other.ask("acquire", gpu=FIRST)["text"]
    for _ in range(90):
        daemon.pass_time(1.0)
    assert [event for event, _ in daemon.events].count("cannot restore") == 2
    daemon.nvml.call = call
    daemon.pass_time(1.1)
    assert not daemon.nvml.changed(0) and daemon.journals() == []


def test_a_folder_that_cannot_be_written_any_more_ends_no_other_lease(daemon, client, monkeypatch):
    other = daemon.connect(user=1001)
    other.ask("hello")
    client.ask("acquire", gpu=FIRST)
    other.ask("acquire", gpu=SECOND)
    client.ask("set", gpu=FIRST, core_mhz=900)

    def read_only(path, missing_ok=False):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(type(daemon.state), "unlink", read_only)
    assert kind(client.ask("release", gpu=FIRST)) == "device" and not daemon.nvml.changed(0)
    assert kind(other.ask("set", gpu=SECOND, core_mhz=900)) == "ok"
    monkeypatch.undo()
    daemon.pass_time(1.1)
    assert daemon.journals() == [SECOND]


def test_a_journal_that_cannot_be_understood_stops_nobody_but_is_told(daemon, client):
    (daemon.state).mkdir(exist_ok=True)
    (daemon.state / "GPU-x.json").write_text("?")
    daemon.pass_time(6.0)
    assert daemon.events[-1][0] == "cannot restore" and "GPU-x.json" in str(daemon.events[-1][1]["error"])
    assert "GPU-x.json" in client.ask("status")["ok"]["leases"]["GPU-x"]["why"]
    assert kind(client.ask("acquire", gpu=FIRST)) == "ok"
    daemon.nvml.core[1] = (300, 600)
    (daemon.state / f"{SECOND}.json").write_text("?")
    daemon.pass_time(6.0)
    assert not daemon.nvml.changed(1) and (daemon.state / f"{SECOND}.unreadable").exists()


def test_a_full_disk_changes_nothing(daemon, client, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused = client.ask("acquire", gpu=FIRST)
    assert "No space left" in refused["text"] and "not changed without it" in refused["text"] and not daemon.nvml.changed(0)
    monkeypatch.undo()
    assert daemon.journals() == []


def test_another_policy_ends_the_leases_that_it_does_not_allow(daemon, client):
    client.ask("acquire", gpu=FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    other = daemon.connect(user=1001)
    other.ask("hello")
    other.ask("acquire", gpu=SECOND)
    daemon.take_policy(Policy(POLICY.rules[1:]))
    assert not daemon.nvml.changed(0) and daemon.journals() == [SECOND]
    assert "policy has changed" in client.ask("set", gpu=FIRST, core_mhz=900)["text"]


@pytest.mark.parametrize("claim", [True, False])
def test_what_is_set_is_brought_within_tighter_bounds_at_once(daemon, client, claim):
    client.ask("acquire", gpu=FIRST, claim=claim)
    client.ask("set", gpu=FIRST, core_mhz=1200, power_limit_w=600)
    [rule] = POLICY.rules[:1]

    def take(core, limit):
        daemon.take_policy(Policy((Rule(rule.users, rule.groups, rule.gpus, Bounds(core, None, limit, 100.0)),)))

    take((600.0, 950.0), (300.0, 500.0))
    assert daemon.nvml.core[0] == (300, 900) and daemon.nvml.limit_mw[0] == 500_000
    take((1200.0, 1200.0), (550.0, 600.0))
    assert daemon.nvml.core[0] == (300, 1200) and daemon.nvml.limit_mw[0] == 550_000
    take((600.0, 950.0), None)
    assert daemon.nvml.core[0] == (300, 900) and daemon.nvml.limit_mw[0] == DEFAULT_MW
    take(None, None)
    assert not daemon.nvml.changed(0) and daemon.journals() == [FIRST]
    assert [event for event, _ in daemon.events].count("bounded") == 4
    client.ask("release", gpu=FIRST)
    assert not daemon.nvml.changed(0) and daemon.journals() == []


@pytest.mark.parametrize("claim", [True, False])
@pytest.mark.parametrize(
    ("setting", "bounds"),
    [
        ({"power_limit_w": 600}, Bounds(None, None, (100.0, 150.0))),
        ({"core_mhz": 900}, Bounds((100.0, 250.0))),
        ({"core_mhz": 900, "power_limit_w": 600}, Bounds((100.0, 250.0), None, (100.0, 150.0))),
    ],
)
def test_what_no_bound_can_hold_is_restored_at_once(daemon, setting, bounds, claim):
    daemon.nvml.clocks = {1000: (200,), 2000: (300, 900)}  # the lowest core clock is only there with the other memory clock
    client = daemon.connect(user=1001)
    client.ask("hello")
    client.ask("acquire", gpu=FIRST, claim=claim)
    assert kind(client.ask("set", gpu=FIRST, **setting)) == "ok"
    daemon.take_policy(Policy((Rule(frozenset({1001}), frozenset(), None, bounds),)))
    ceiling = (200, 200) if claim and bounds.core_mhz else None  # of auto in a claim
    assert (daemon.nvml.core[0], daemon.nvml.limit_mw[0]) == (ceiling, DEFAULT_MW) and daemon.journals() == [FIRST]
    assert kind(client.ask("set", gpu=FIRST, **setting)) == "policy"
    client.ask("release", gpu=FIRST)
    assert not daemon.nvml.changed(0) and daemon.journals() == []


def test_a_gpu_that_lists_no_clocks_is_brought_within_tighter_bounds_too(daemon):
    daemon.nvml.clocks = {}
    client = daemon.connect(user=1001)
    client.ask("hello")
    client.ask("acquire", gpu=FIRST)
    assert kind(client.ask("set", gpu=FIRST, power_limit_w=600)) == "ok"
    bounds = Bounds(power_limit_w=(300.0, 500.0))
    daemon.take_policy(Policy((Rule(frozenset({1001}), frozenset(), None, bounds),)))
    assert daemon.nvml.limit_mw[0] == 500_000 and daemon.journals() == [FIRST]


def test_a_lease_that_cannot_be_brought_within_bounds_ends_and_no_other_does(daemon, client, monkeypatch):
    other = daemon.connect(user=1001)
    other.ask("hello")
    for each, gpu in ((client, FIRST), (other, SECOND)):
        each.ask("acquire", gpu=gpu)
        each.ask("set", gpu=gpu, core_mhz=900)
    rules = [
        Rule(frozenset({user}), frozenset(), None, Bounds((600.0, high))) for user, high in ((1000, 950.0), (1001, 800.0))
    ]
    within = leases_module.within_bounds

    def fail(setting, bounds, setter):
        if setter.unique_id == FIRST:
            raise ValueError("no clocks")
        return within(setting, bounds, setter)

    monkeypatch.setattr(leases_module, "within_bounds", fail)
    daemon.take_policy(Policy(tuple(rules)))
    assert not daemon.nvml.changed(0) and daemon.nvml.core[1] == (300, 600) and daemon.journals() == [SECOND]
    ((_, ended),) = [event for event in daemon.events if event[0] == "end of lease"]
    assert ended["gpu"] == FIRST and "no clocks" in ended["why"]
    assert "the policy has changed, and no clocks" in client.ask("set", gpu=FIRST, core_mhz=900)["text"]


def test_auto_is_brought_within_tighter_bounds_too(daemon):
    client = daemon.connect(user=1001)
    client.ask("hello")
    client.ask("acquire", gpu=FIRST, claim=True)
    client.ask("set", gpu=FIRST)
    assert not daemon.nvml.changed(0)
    daemon.take_policy(Policy((Rule(frozenset({1001}), frozenset(), None, Bounds((300.0, 950.0))),)))
    assert daemon.nvml.core[0] == (300, 900)
    client.close()
    assert not daemon.nvml.changed(0)


def test_what_a_wider_policy_lets_a_lease_change_is_restored_too(daemon, client, monkeypatch):
    client.ask("acquire", gpu=FIRST)
    assert kind(client.ask("set", gpu=FIRST, memory_mhz=1000)) == "policy"
    [rule] = POLICY.rules[:1]
    daemon.take_policy(Policy((Rule(rule.users, rule.groups, rule.gpus, Bounds()),)))
    assert kind(client.ask("set", gpu=FIRST, memory_mhz=1000)) == "ok"
    assert journal.read(daemon.state / f"{FIRST}.json").kept == {"profile"}  # of which it lists none
    monkeypatch.setattr(journal.process_lock, "is_taken", lambda path: False)
    monkeypatch.setattr(journal.process_lock, "take", lambda path: True)
    daemon.search()
    assert not daemon.nvml.changed(0)


def test_a_new_bound_holds_at_once(daemon, client):
    client.ask("acquire", gpu=FIRST)
    [rule] = POLICY.rules[:1]
    tight = Rule(rule.users, rule.groups, rule.gpus, Bounds((600.0, 800.0), longest_lease_s=5.0))
    daemon.take_policy(Policy((tight,)))
    assert kind(client.ask("set", gpu=FIRST, core_mhz=900)) == "policy"
    daemon.pass_time(5.1)
    assert daemon.journals() == []


# ---- what clients may cost ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\0", b"\xff\xfe", b"{", b"[]", b"null", b"1", b'"hello"', b"{}", b'{"wastenot": "1"}', b'{"wastenot": true}',
        b'{"wastenot": 1}', b'{"wastenot": 1, "ask": 3}', b'{"wastenot": 1, "ask": "hello", "ask": "hello"}',
        b'{"wastenot": 1, "ask": "set", "gpu": "' + FIRST.encode() + b'", "core_mhz": NaN}',
        b'{"wastenot": 1, "ask": "hello", "x": -Infinity}', b'{"wastenot": 1, "x": ' + b"9" * 4000 + b"}",
        b"[" * 2000, b'{"wastenot": 1, "a": ' + b"[" * 1900, b'{"wastenot": 1, "ask": "hello"} {}', b"GET / HTTP/1.1",
    ],
)  # fmt: skip
def test_what_is_no_request_is_answered_once_and_hung_up_on(daemon, client, line):
    bystander = daemon.connect(user=1001)
    client.ask("acquire", gpu=FIRST)
    client.send(line + b"\n")
    assert kind(client.reply()) == "message" and client.hung_up()
    assert daemon.journals() == []  # its lease went with it
    assert kind(bystander.ask("hello")) == "ok"


@pytest.mark.parametrize(
    "value", [True, "900", [900], {}, -1, 0, 1e6, 10**300, -(10**30), 1e308], ids=lambda value: str(value)[:12]
)
@pytest.mark.parametrize("field", ["core_mhz", "memory_mhz", "power_limit_w"])
def test_a_value_that_is_no_plausible_number_is_no_request(daemon, client, field, value):
    client.ask("acquire", gpu=FIRST)
    assert kind(client.ask("set", gpu=FIRST, **{field: value})) == "message" and daemon.nvml.limit_mw[0] == DEFAULT_MW


@pytest.mark.parametrize("gpu", [None, 0, "", "GPU-x", "../../etc/passwd", [FIRST]])
def test_a_gpu_that_is_not_there_is_no_request(client, gpu):
    assert kind(client.ask("acquire", gpu=gpu)) == "message"


def test_another_version_is_refused_clearly(daemon, client):
    client.send(b'{"wastenot": 2, "ask": "hello", "more": [[[]]]}\n')
    told = client.reply()
    assert kind(told) == "version" and "speaks version 1" in told["text"] and client.hung_up()


def test_one_minor_version_back_is_understood(daemon, monkeypatch):
    assert daemon.connect().ask("hello")["ok"]["minor"] == daemon_protocol.MINOR == 1  # who says none has 0
    monkeypatch.setattr(daemon_protocol, "MINOR", 2)
    for minor, answer in (
        (1, "ok"),
        (2, "ok"),
        (7, "ok"),
        (0, "version"),
        (None, "version"),
        (True, "version"),
        ("2", "version"),
    ):
        assert kind(daemon.connect(user=2000 + len(daemon.events)).ask("hello", minor=minor)) == answer
    old = daemon.connect()
    assert "install the same wastenot" in old.ask("hello")["text"] and old.hung_up()


def test_hello_comes_first_and_soon(daemon):
    rude, shy, slow = daemon.connect(), daemon.connect(), daemon.connect()
    assert kind(rude.ask("status")) == "message" and rude.hung_up()
    daemon.pass_time(4.9)
    slow.send(b'{"wastenot": 1, ')
    assert not shy.hung_up() and not slow.hung_up()
    daemon.pass_time(0.2)
    assert shy.hung_up() and not slow.hung_up()
    daemon.pass_time(5.0)
    assert slow.hung_up()


def test_who_is_idle_without_a_lease_is_hung_up_on(daemon, client):
    daemon.pass_time(59.0)
    client.ask("status")
    daemon.pass_time(59.0)
    assert not client.hung_up()
    daemon.pass_time(2.0)
    assert client.hung_up()


def test_half_a_line_is_not_waited_for_long(daemon, client):
    client.send(b"{")
    daemon.pass_time(5.1)
    assert client.hung_up()


def test_a_line_may_come_in_bytes(client):
    for byte in b'{"wastenot": 1, "ask": "beat"}\n':
        client.send(bytes([byte]))
    assert kind(client.reply()) == "ok"


def test_lines_may_come_together(client):
    client.send(b'{"wastenot": 1, "ask": "beat"}\n' * 50)
    assert [kind(client.reply()) for _ in range(50)] == ["ok"] * 50 and client.reply() is None


def test_a_line_without_end_is_cut_off(daemon, client):
    client.send(b"x" * 4096)
    client.send(b"x" * 4096)
    assert kind(client.reply()) == "message" and client.hung_up()


def test_who_does_not_read_is_not_waited_for(daemon, client):
    client.ask("acquire", gpu=FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    daemon.server.leases.policy = Policy(POLICY.rules, heartbeat_s=10.0, requests_per_s=1e9)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    line = b'{"wastenot": 1, "ask": "hello"}\n'
    for _ in range(2000):
        try:
            client.socket.send(line * 100)
        except BlockingIOError:
            break
        daemon.go(1)
    bystander = daemon.connect(user=1001)
    assert kind(bystander.ask("hello")) == "ok"
    assert daemon.nvml.changed(0)
    daemon.pass_time(5.1)
    assert not daemon.nvml.changed(0)  # hung up on, long before its heartbeat was due
    assert kind(bystander.ask("status")) == "ok"


def test_descriptors_sent_along_are_not_kept(daemon, client):
    before = len(os.listdir("/proc/self/fd"))
    reading, writing = os.pipe()
    for _ in range(20):
        socket.send_fds(client.socket, [b'{"wastenot": 1, "ask": "beat"}\n'], [writing] * 10)
        daemon.go()
        assert kind(client.reply()) == "ok"
    os.close(writing)
    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b""  # nobody holds the other end any more
    os.close(reading)
    assert len(os.listdir("/proc/self/fd")) == before
    client.socket.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])


def test_a_user_has_so_many_connections_and_others_theirs(daemon, client):
    more = [daemon.connect() for _ in range(3)]
    refused = daemon.connect()
    told = refused.reply()
    assert kind(told) == "busy" and refused.hung_up()
    assert kind(daemon.connect(user=1001).ask("hello")) == "ok"
    more[0].close()
    assert kind(daemon.connect().ask("hello")) == "ok"


def test_one_users_connections_do_not_starve_anothers(daemon, monkeypatch):
    """More users than there is room for: all that one may have are served, and who comes late gets his share too."""
    daemon.take_policy(Policy(POLICY.rules, connections_per_user=8))
    monkeypatch.setattr("wastenot.devices.clockd.server._CONNECTIONS", 48)
    first = [daemon.connect(user=2000 + user) for _ in range(8) for user in range(4)]
    assert all(kind(each.ask("hello")) == "ok" for each in first)
    more = [daemon.connect(user=3000 + user) for _ in range(5) for user in range(4)]
    assert all(kind(each.ask("hello")) == "ok" for each in more)
    late = daemon.connect(user=4000)
    assert kind(late.ask("hello")) == "ok" and not late.hung_up()


def test_a_connection_with_a_lease_makes_no_room(daemon, monkeypatch):
    monkeypatch.setattr(server_module, "_CONNECTIONS", 4)
    holders = [daemon.connect(user=1001) for _ in range(4)]
    for each, gpu in zip(holders, (FIRST, SECOND, None, None), strict=True):
        each.ask("hello")
        if gpu:
            each.ask("acquire", gpu=gpu)
    others = [daemon.connect(user=user) for user in (7, 8, 9)]
    assert [kind(each.ask("hello")) for each in others] == ["ok", "ok", "busy"]
    assert daemon.journals() == [FIRST, SECOND]


def test_who_asks_too_often_waits_and_others_do_not(daemon, client):
    daemon.server.leases.policy = Policy(POLICY.rules, requests_per_s=10.0)
    second, bystander = daemon.connect(), daemon.connect(user=1001)
    second.ask("hello")
    client.send(b'{"wastenot": 1, "ask": "beat"}\n' * 40)

    def replies():
        count = 0
        while client.reply() is not None:
            count += 1
        return count

    assert 5 <= replies() <= 10
    assert second.ask("beat") is None  # of the same user
    assert kind(bystander.ask("hello")) == "ok"
    daemon.pass_time(0.5)
    served = 0
    for _ in range(100):
        daemon.pass_time(0.1)
        served += replies()
    assert served >= 30 and not client.hung_up()


def test_refusals_do_not_fill_the_log(daemon, client):
    for _ in range(200):
        client.ask("acquire", gpu=SECOND)
    for _ in range(50):
        garbage = daemon.connect()
        garbage.send(b"x\n")
        garbage.close()
    assert len([event for event, _ in daemon.events if event == "refused"]) == 1
    daemon.pass_time(1.1)
    client.ask("acquire", gpu=SECOND)
    assert len([event for event, _ in daemon.events if event == "refused"]) == 2


def test_many_settings_do_not_fill_the_log(daemon):
    client = daemon.connect(user=1001)
    client.ask("hello")
    client.ask("acquire", gpu=FIRST)
    for turn in range(300):
        client.ask("set", gpu=FIRST, power_limit_w=200.0 + turn)
    client.close()
    logged = [fields for event, fields in daemon.events if event == "set"]
    assert len(logged) == 100 and daemon.events[-1][1]["requests"] == 300
