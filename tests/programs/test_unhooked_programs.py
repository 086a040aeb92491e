"""Programs that report no iterations, under plans, on stand-ins in real time: followed by memory traffic.

How they are tuned is tested in virtual time (test_traffic_units.py): in real time it takes minutes, more on a busy machine.
"""

import json
import sys

import pytest

from testbed.applied_programs import Machine, make_plan
from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.vendors import vendor_named
from wastenot.devices.common.gpu_driver import driver_of

JOB = (sys.executable, "-m", "testbed.stand_in.unhooked_job")
SOON = ("--patience", "0.5s")
UNIT = {"STAND_IN_UNIT_S": "8"}


@pytest.fixture(params=[("h200", "nvidia:0"), ("mi300x", "amd:0")], ids=["nvidia", "amd"])
def machine(request, tmp_path, monkeypatch):
    preset, name = request.param
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    with start_stand_in(preset, wall=True) as server:
        machine = Machine(server, tmp_path)
        machine.name = name
        yield machine
        machine.end()


def plan_of(machine, monkeypatch):
    """One core clock, 30 % slower at most."""
    if machine.name == "nvidia:0":
        return str(make_plan(machine.folder, machine.server))
    machine.server.use(monkeypatch)
    label = f"AMD Instinct MI300X {driver_of(vendor_named('amd:0')).unique_id(0)}"
    return str(make_plan(machine.folder, machine.server, device=label, core_mhz=1600.0))


def untouched(machine):
    return machine.server.control.state(0).untouched and not machine.left


@pytest.mark.slow  # half a minute of real time
def test_a_program_without_hooks_is_guarded_by_its_memory_traffic(machine, monkeypatch):
    plan = plan_of(machine, monkeypatch)
    process = machine.start("apply", plan, *SOON, "--out", "summary.json", "--", *JOB, "0", **UNIT)
    seen = machine.wait_for_status(lambda status: status["proof"]["plan_iterations"] > 3)
    assert seen["proxy"]["unit_s"] >= 1.0 and seen["proxy"]["jobs"] == 0 and machine.core_mhz() in (1600.0, 1605.0)
    assert "by proxy (memory traffic, ± 1.0" in machine.run("apply", "--status")[1]
    machine.enough()
    code, out, err = machine.ended(process)
    assert code == 0 and out == "training\ntrained\n" and "no iterations were seen" not in err, err
    assert "by proxy" in err and untouched(machine)
    status = json.loads((machine.folder / "summary.json").read_text())["status"]
    assert status["proxy"]["error"] == pytest.approx(0.0095, abs=0.0005) and status["iteration"] > 8
