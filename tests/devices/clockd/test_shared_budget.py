"""A budget in the daemon: the GPUs keep their shares under whatever lease, and are given back."""

import json
import signal

import pytest

from testbed.daemon_in_process import LIMITS_MW, UUIDS, running
from testbed.daemon_process import ROOT, until
from wastenot.control.told_frontier import tell_frontier, watts_and_times
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.devices.clockd.policy import Bounds, Policy, Rule
from wastenot.devices.common import journal
from wastenot.devices.open import open_gpu

FIRST, SECOND = UUIDS
ANYBODY = Rule(frozenset({1000}), frozenset(), None, Bounds())
SHARED = Policy((ANYBODY,), budgets=((None, 800.0),))
FREE = Policy((ANYBODY,))


@pytest.fixture
def inside():
    with running(SHARED) as inside:
        inside.leases.recover()
        inside.leases.shares.take_policy(SHARED)
        yield inside
        assert inside.mistakes() == []


def settle(inside, seconds=6):
    for _ in range(seconds):
        inside.pass_time(1.0)
        assert sum(inside.nvml.limit_mw) <= 800_000 or inside.now < 1003.0
    return [watts / 1000 for watts in inside.nvml.limit_mw]


def busy(inside, *watts):
    inside.nvml.drawn_mw[:] = [round(1000 * each) for each in watts]


def client_of(inside, uuid):
    client = inside.connect()
    client.ask("hello")
    assert client.ask("acquire", gpu=uuid) is not None
    return client


def test_gpus_share_and_an_idle_one_gives_its_watts(inside):
    assert settle(inside) == pytest.approx([400.0, 400.0], rel=0.02)
    busy(inside, 395.0, 80.0)
    assert settle(inside) == pytest.approx([600.0, 200.0], rel=0.02)
    assert inside.journals() == sorted(UUIDS)


def test_a_lease_stays_within_the_share_and_its_end_changes_nothing_of_it(inside):
    settle(inside)
    client = client_of(inside, FIRST)
    assert "ok" in client.ask("set", gpu=FIRST, core_mhz=900, power_limit_w=700)
    assert inside.nvml.limit_mw[0] == pytest.approx(400_000, rel=0.02) and inside.nvml.core[0] == (300, 900)
    assert "ok" in client.ask("set", gpu=FIRST, core_mhz=900, power_limit_w=250)
    assert settle(inside)[0] == 250.0
    assert "ok" in client.ask("release", gpu=FIRST)
    assert inside.nvml.limit_mw[0] == pytest.approx(400_000, rel=0.02) and inside.nvml.core[0] is None
    found = json.loads((inside.state / f"{FIRST}.json").read_text())
    assert found["restore"]["power_limit_w"] == 700.0 and found["kept"] == ["core", "memory", "profile"]


def test_a_claim_at_auto_and_a_hung_up_client_leave_the_share(inside):
    settle(inside)
    client = inside.connect()
    client.ask("hello"), client.ask("acquire", gpu=FIRST, claim=True)
    client.ask("set", gpu=FIRST, core_mhz=600, power_limit_w=300), client.ask("set", gpu=FIRST)
    assert inside.nvml.limit_mw[0] == pytest.approx(400_000, rel=0.02) and inside.nvml.core[0] is None
    client.ask("set", gpu=FIRST, core_mhz=600, power_limit_w=300)
    client.close()
    assert inside.nvml.limit_mw[0] == pytest.approx(400_000, rel=0.02) and inside.nvml.core[0] is None


def test_a_driver_that_fails_while_a_lease_sets_or_ends_leaves_the_share(inside):
    settle(inside)
    client = client_of(inside, FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    inside.nvml.failing = True
    assert client.ask("set", gpu=FIRST, core_mhz=600)["error"] == "device"
    client.close()
    inside.nvml.failing = False
    settle(inside)
    assert inside.nvml.limit_mw[0] == pytest.approx(400_000, rel=0.02) and inside.nvml.core[0] is None
    assert inside.leases.status() == {}


def test_who_told_a_flat_frontier_gives_way_as_long_as_it_has_the_lease(inside):
    busy(inside, 700.0, 700.0)
    inside.nvml.drawn_mw = Following(inside.nvml)
    assert settle(inside) == pytest.approx([400.0, 400.0], rel=0.02)
    client = client_of(inside, FIRST)
    assert client.ask("frontier", gpu=FIRST, watts=[250, 700], times=[1.01, 1.0])["ok"] == {}
    assert settle(inside) == pytest.approx([250.0, 550.0], rel=0.02)
    text = client.ask("metrics")["ok"]["text"]
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("wastenotd_gpu_gives"))
    assert float(found[f'wastenotd_gpu_gives_watts{{gpu="{FIRST}"}}']) == pytest.approx(150.0, rel=0.05)
    assert 'wastenotd_budget_watts{budget="1"} 800' in text and f'wastenotd_gpu_power_watts{{gpu="{FIRST}"}} 2' in text
    client.ask("release", gpu=FIRST)
    assert settle(inside) == pytest.approx([400.0, 400.0], rel=0.02)


class Following:
    """Draws of GPUs that take whatever they may."""

    def __init__(self, nvml):
        self.nvml = nvml

    def __getitem__(self, index):
        return round(0.985 * self.nvml.limit_mw[index])


@pytest.mark.parametrize(
    "told",
    [
        {}, {"watts": [300], "times": [1.0]}, {"watts": [300, 400], "times": [1.0]}, {"watts": [400, 300], "times": [2, 1]},
        {"watts": [300, 400], "times": [1, 2]}, {"watts": [True, 400], "times": [2, 1]},
        {"watts": [0, 400], "times": [2, 1]},
        {"watts": ["a", 400], "times": [2, 1]}, {"watts": [*range(1, 40)], "times": [1] * 39}, {"watts": 3, "times": 4},
    ],
)  # fmt: skip
def test_a_frontier_without_sense_is_refused(inside, told):
    client = client_of(inside, FIRST)
    assert client.ask("frontier", gpu=FIRST, **told)["error"] == "message"
    assert inside.connect().ask("frontier", gpu=FIRST, watts=[300, 400], times=[2, 1])["error"] == "message"  # no hello


def test_only_who_has_the_lease_tells_a_frontier(inside):
    other = inside.connect()
    other.ask("hello")
    assert other.ask("frontier", gpu=FIRST, watts=[300, 400], times=[2, 1])["error"] == "lost"


def test_a_gpu_that_cannot_be_limited_leaves_less_to_the_other(inside):
    refused = {0}
    call = inside.nvml.call

    def refuse(function, *arguments):
        if function == "nvmlDeviceSetPowerManagementLimit" and arguments[0] in refused:
            raise RuntimeError("not here")
        return call(function, *arguments)

    inside.nvml.call = refuse
    inside.pass_time(1.0), [inside.pass_time(1.0) for _ in range(5)]
    assert inside.nvml.limit_mw == [700_000, 200_000]
    assert any(event == "cannot limit" for event, _ in inside.events)
    assert any(event == "budget cannot be kept" for event, _ in inside.events)
    refused.clear()
    for _ in range(70):
        inside.pass_time(1.0)
    assert settle(inside) == pytest.approx([400.0, 400.0], rel=0.02)


def test_a_hung_driver_keeps_its_watts_until_it_returns(inside):
    settle(inside)
    busy(inside, 395.0, 80.0)
    inside.nvml.hangs.add(1)
    for _ in range(8):
        inside.now += 1.0
        inside.go()
    assert sum(inside.nvml.limit_mw) <= 800_000
    inside.nvml.answer(1)
    assert settle(inside, 70) == pytest.approx([600.0, 200.0], rel=0.02)


def test_a_policy_without_it_gives_the_limits_back_and_another_number_holds_at_once(inside):
    settle(inside)
    client = client_of(inside, FIRST)
    client.ask("set", gpu=FIRST, core_mhz=900)
    inside.leases.shares.take_policy(Policy((ANYBODY,), budgets=((None, 600.0),)))
    assert sum(settle(inside)) <= 600.0
    inside.leases.shares.take_policy(FREE), inside.take_policy(FREE)
    assert inside.nvml.limit_mw == [700_000, 700_000] and inside.nvml.core[0] == (300, 900)
    client.ask("release", gpu=FIRST)
    assert not inside.nvml.changed(0) and not inside.nvml.changed(1) and inside.journals() == []


def test_everything_is_given_back_at_the_end(inside):
    settle(inside)
    client_of(inside, SECOND).ask("set", gpu=SECOND, core_mhz=900, power_limit_w=300)
    inside.server.close()
    assert inside.leases.end_all(60.0) == (True, [])
    assert not inside.nvml.changed(0) and not inside.nvml.changed(1) and inside.journals() == []


def test_a_budget_that_cannot_be_kept_or_is_told_twice_is_refused(inside):
    least_w = 2 * LIMITS_MW[0] / 1000
    with pytest.raises(BadInputError, match=f"budget_w 399: its 2 GPUs cannot be kept below {least_w:g} W"):
        inside.leases.shares.take_policy(Policy((ANYBODY,), budgets=((None, 399.0),)))
    with pytest.raises(BadInputError, match=r"GPU 1 .* is in more than one"):
        inside.leases.shares.take_policy(Policy((ANYBODY,), budgets=((None, 900.0), (frozenset({1}), 300.0))))
    assert [budget.budget_w for budget in inside.leases.shares.budgets.values()] == [800.0]


# ---- the daemon as a process, on the stand-in for NVML --------------------------------------------------------------

BUDGET = ROOT + "[[budget]]\nbudget_w = 700\n"


def limits(stand_in):
    return [stand_in.control.state(index).power_limit_w for index in range(2)]


def test_it_is_in_force_while_the_daemon_runs_and_given_back_when_it_ends_or_starts_again(stand_in, daemon):
    daemon.start(BUDGET)
    assert until(lambda: sum(limits(stand_in)) <= 700.0)
    assert daemon.stop() == 0
    assert all(stand_in.control.state(index).untouched for index in range(2)) and journal.journals() == ()
    daemon.start(BUDGET)
    assert until(lambda: sum(limits(stand_in)) <= 700.0)
    daemon.kill()
    assert sum(limits(stand_in)) <= 700.0 and len(journal.journals()) == 2
    daemon.start(ROOT)
    assert all(stand_in.control.state(index).untouched for index in range(2)) and journal.journals() == ()


def test_a_program_tells_its_frontier_through_the_daemon(stand_in, daemon):
    daemon.start(BUDGET)
    gpu = open_gpu("nvidia:0", allow_clock_control=True)
    gpu.clocks.request(Setting(1200.0))
    tell_frontier(Schedule(((1.0, 600.0), (1.02, 400.0))), [gpu])
    assert limits(stand_in)[0] <= 700.0
    client = daemon.connect()
    assert until(lambda: 'wastenotd_requests_total{ask="frontier",result="ok"} 1' in client.ask("metrics")["ok"]["text"])
    client.close()
    gpu.clocks.release()


class Schedule:
    def __init__(self, ways):
        self.rungs = [type("Rung", (), {"time_s": time_s, "energy_j": energy_j}) for time_s, energy_j in ways]


def test_what_a_plan_tells_is_the_power_of_each_gpu():
    assert watts_and_times(Schedule(((1.0, 600.0), (1.25, 500.0), (1.1, 900.0))), measured=2) == [
        (200.0, 1.25),
        (300.0, 1.0),
    ]


def test_a_budget_below_what_the_gpus_can_be_limited_to_keeps_the_daemon_from_starting_but_not_from_running(
    stand_in, daemon
):
    daemon.start(BUDGET.replace("700", "399"), ready=False)
    assert daemon.process.wait(60.0) == 2 and "budget_w 399: its 2 GPUs cannot be kept below 400 W" in daemon.said()
    daemon.start(BUDGET)
    daemon.policy.write_text(BUDGET.replace("700", "399"))
    daemon.signal(signal.SIGHUP)
    assert until(lambda: "the previous budgets" in daemon.said())
    assert until(lambda: 400.0 <= sum(limits(stand_in)) <= 700.0)
