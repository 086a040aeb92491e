"""What annotations of pods ask for, and whose a process is."""

from types import SimpleNamespace

import pytest

import wastenot as wn
from testbed.small_sweeps import make_sweep
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.devices.pods.api import Pod
from wastenot.devices.pods.owners import pod_of
from wastenot.devices.pods.wish import Wish, wish_of

DYNAMO = "dynamo.nvidia.com/gpu-power-limit"
UID = "3f2a6b1c-0d4e-4f5a-9b8c-7d6e5f4a3b2c"
ROWS = [
    ("a", None, None, 1.0, 100.0), ("a", 1500.0, None, 1.0, 80.0), ("a", 900.0, None, 2.0, 70.0),
    ("b", None, None, 1.0, 100.0), ("b", 1500.0, None, 1.3, 95.0), ("b", 900.0, None, 1.0, 60.0),
]  # fmt: skip


def wished(plans, dynamo=None, **annotations):
    named = {f"wastenot.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return wish_of(Pod("ml/train", named | ({} if dynamo is None else {DYNAMO: dynamo}) | {"team": "red"}, 1), plans)


def clocks(limits_w=(300.0, 700.0), cores=(600.0, 1395.0, 1410.0)):
    return SimpleNamespace(supported_clocks=lambda: {1593.0: cores[:1], 2619.0: cores}, power_limits_w=lambda: limits_w)


@pytest.mark.parametrize(
    ("groups", "uid"),
    [
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-1.scope",
            UID,
        ),
        (f"11:pids:/kubepods/burstable/pod{UID}/0a1b\n1:name=systemd:/kubepods/burstable/pod{UID}/0a1b", UID),
        (f"0::/../../kubepods-besteffort-pod{UID.replace('-', '_')}.slice/cri-containerd-0a1b.scope", UID),
        (f"0::/../../pod{UID}/0a1b/pod{'0' * 8}{UID[8:]}", UID),  # a group that a pod has made in its own
        ("0::/user.slice/user-1000.slice/session-1.scope", ""),
        (f"0::/machine.slice/libpod-{UID}.scope", ""),
        ("", ""),
    ],
)
def test_the_control_groups_of_a_process_name_its_pod(tmp_path, groups, uid):
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "cgroup").write_text(groups)
    assert pod_of(17, tmp_path) == uid and pod_of(18, tmp_path) is None


def test_annotations_are_a_ceiling_and_a_budget(tmp_path):
    assert wished(tmp_path) is None
    assert wished(tmp_path, core_mhz="1410.5", memory_mhz="2619") == Wish(Setting(1410.5, 2619.0))
    profiled = wished(tmp_path, profile="max-q", core_mhz="1400")
    assert profiled.setting(clocks(), 1) == Setting(1395.0, profile="max-q")
    wish = wished(tmp_path, core_mhz="1400", budget_w="2800")
    assert wish.setting(clocks(), 8) == Setting(1395.0, None, 350.0)
    assert wish.setting(clocks(), 2) == Setting(1395.0, None, 700.0)  # no GPU can take more
    with pytest.raises(BadInputError, match="280 W each; the lowest here is 300 W"):
        wish.setting(clocks(), 10)
    with pytest.raises(BadInputError, match="none may be set here"):
        wish.setting(clocks(None), 8)
    with pytest.raises(BadInputError, match="500 MHz: the lowest here is 600 MHz"):
        wished(tmp_path, core_mhz="500").setting(clocks(), 1)
    with pytest.raises(BadInputError, match="none may be set here"):
        wished(tmp_path, core_mhz="500").setting(clocks(cores=()), 1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("core_mhz", "0", "not a positive number"), ("core_mhz", "-5", "not a positive"), ("core_mhz", "1e3", "not a pos"),
        ("budget_w", "nan", "not a positive number"), ("core_mhz", "1" * 400, "not a positive number"),
        ("core_hz", "5", "there is no such annotation; write core-mhz"), ("plan", "../etc/x", "not the name of a plan"),
        ("plan", "absent", "absent.json"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused(tmp_path, name, value, text):
    with pytest.raises(BadInputError, match=text):
        wished(tmp_path, **{name: value})


def test_a_plan_of_one_setting_is_one_and_others_are_for_programs(tmp_path):
    sweep = make_sweep(ROWS)
    wn.plan(sweep, max_slowdown=0.2, granularity="iteration", as_measured=True).write(tmp_path / "one.json")
    wn.plan(sweep, max_slowdown=0.0, granularity="kernel", as_measured=True).write(tmp_path / "two.json")
    assert wished(tmp_path, plan="one") == Wish(Setting(1500.0))
    with pytest.raises(BadInputError, match="only a program can switch its 2 settings"):
        wished(tmp_path, plan="two")
    with pytest.raises(BadInputError, match="leave out core-mhz"):
        wished(tmp_path, plan="one", core_mhz="900")


def test_dynamos_annotation_has_the_power_limit(tmp_path):
    assert wished(tmp_path, dynamo="500") is None
    assert wished(tmp_path, dynamo="500", core_mhz="900") == Wish(Setting(900.0))
    wish = wished(tmp_path, dynamo="500", core_mhz="900", budget_w="400")
    assert wish == Wish(Setting(900.0), note=f"the power limit is left to {DYNAMO}")
