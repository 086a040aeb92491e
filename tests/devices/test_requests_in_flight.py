"""Requests of a simulated GPU that overlap, and what kernels do while its clocks change."""

import pytest

from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device, simulated_device
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.hardware import Switching
from wastenot.devices.simulated.preset import find_preset
from wastenot.meters.tasks import find_tasks

TOY = "sim:testbed/toy.toml"


def toy(switching, seed=0):
    return simulated_device(find_preset("testbed/toy.toml"), TOY, seed=seed, switching=switching)


def history(device, seconds, step_s=1e-3):
    """Settings in effect one after another, with the time since the first."""
    engine, seen = device.engine, []
    for _ in range(round(seconds / step_s)):
        if not seen or seen[-1][1] != engine.setting:
            seen.append((engine.now_s, engine.setting))
        engine.advance(step_s)
    return seen


def test_each_request_takes_effect_after_its_own_latency():
    device = toy(Switching.of(0.05))
    asked = [Setting(clock) for clock in (600.0, 900.0, 1200.0, 1500.0)]
    for setting in asked:
        device.clocks.request(setting)
        device.engine.advance(5e-3)
    seen = history(device, 0.06)
    assert [setting for _, setting in seen] == [AUTO, *asked]  # none was cancelled by the next
    assert [moment for moment, _ in seen[1:]] == pytest.approx([0.05, 0.055, 0.06, 0.065], abs=1.1e-3)


def test_none_overtakes_an_earlier_one_for_the_same_part():
    device = toy(Switching(core_s=((600.0, 0.05), (1500.0, 0.005))))
    device.clocks.request(Setting(600.0))
    device.clocks.request(Setting(1500.0))
    device.engine.advance(0.049)
    assert device.engine.setting == AUTO
    device.engine.advance(0.002)
    assert device.engine.setting == Setting(1500.0)


def test_parts_change_independently():
    device = toy(Switching(core_s=((600.0, 0.01),), memory_s=0.1, power_limit_s=0.03))
    device.clocks.request(Setting(None, 810.0))
    device.clocks.request(Setting(600.0, 810.0))
    device.clocks.request(Setting(600.0, 810.0, 200.0))
    effects = [setting for _, setting in history(device, 0.2)]
    assert effects == [AUTO, Setting(600.0), Setting(600.0, None, 200.0), Setting(600.0, 810.0, 200.0)]


def test_kernels_pause_while_a_clock_changes():
    task = find_tasks("gpt3-small", TOY).tasks[0]
    calls, energy = {}, {}
    for stall_s in (0.0, 0.004):
        device = toy(Switching.of(0.01, stall_s=stall_s))
        with device.launcher.start(task) as run:
            run.mark()
            device.clocks.request(Setting(600.0))
            device.time.sleep(0.1)
            calls[stall_s] = device.engine.progress()
            energy[stall_s] = device.engine.energy_at(device.time.now_s())
            run.mark()
        idle_w = device.engine.physics.idle_power_w(AUTO, device.engine.temperature_c)
        assert device.engine.setting == Setting(600.0)
    fast = toy(Switching.of(0.01)).truth(task, AUTO, device.engine.temperature_c)
    assert calls[0.0] - calls[0.004] == pytest.approx(0.004 / fast.time_s, rel=0.02)
    assert energy[0.0] - energy[0.004] == pytest.approx(0.004 * (fast.power_w - idle_w), rel=0.05)


def test_some_requests_may_be_much_later():
    device = toy(Switching.of(0.01).model_copy(update={"late_chance": 0.3, "late_factor": 4.0}))
    taken = []
    for index in range(60):
        asked, setting = device.time.now_s(), Setting((600.0, 1500.0)[index % 2])
        device.clocks.request(setting)
        while device.engine.setting != setting:
            device.engine.advance(1e-3)
        taken.append(round(device.time.now_s() - asked, 3))
    assert set(taken) <= {0.01, 0.011, 0.04, 0.041} and 8 <= sum(each > 0.02 for each in taken) <= 30


@pytest.mark.parametrize("name", preset_names())
def test_a_burst_of_requests_ends_where_it_should(name):
    device = open_device(f"sim:{name}", seed=5)
    clocks = device.engine.physics.preset.clocks.core_mhz
    for index in range(40):
        device.clocks.request(Setting(clocks[index % len(clocks)]))
        device.time.sleep(3e-3)
    device.clocks.release()
    device.time.sleep(3.0)
    assert device.engine.setting == AUTO
