"""What late switches cost, against simulated GPUs that switch late."""

import pytest

from tests.planning.conftest import make_sweep
from wastenot.devices.open import open_device
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.engine import Engine
from wastenot.devices.simulated.hardware import Noise, Switching
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import find_preset
from wastenot.planning.applicable import LATE_TOLERANCE
from wastenot.planning.costs import combine_repeats
from wastenot.planning.lateness import lateness
from wastenot.planning.objective import Objective
from wastenot.planning.planner import plan
from wastenot.planning.switching import switch_time
from wastenot.setting import AUTO, Setting
from wastenot.tasks import find_tasks

ROUNDS, SWITCH_S = 4, 0.03
STEP_S = 1e-3


def play(preset, switch_s, stays):
    """Time and energy of alternating kernels on a simulated GPU, after a round to warm up."""
    switching = Switching(core_s=((1.0, switch_s), (5000.0, switch_s)), memory_s=switch_s)
    engine = Engine(ModelPhysics(preset), preset.thermal, switching, Noise(), 0)
    begin = 0.0, 0.0
    for each in range(ROUNDS + 1):
        if each == 1:
            begin = engine.now_s, engine.energy_at(engine.now_s)
        for task, setting, calls, call_s in stays:
            engine.request(setting)
            engine.start(task)
            while (left := calls - engine.progress()) > 1e-9:
                engine.advance(min(STEP_S, max(0.5 * left * call_s, 1e-7)))
            engine.stop([0.0])
    return engine.now_s - begin[0], engine.energy_at(engine.now_s) - begin[1]


@pytest.mark.parametrize("times", [10, 40])
@pytest.mark.parametrize("name", preset_names())
def test_late_switches_cost_what_a_simulated_gpu_says(name, times):
    device, preset = open_device(f"sim:{name}"), find_preset(name)
    tasks = {task.name: task for task in find_tasks("gpt3-xl", f"sim:{name}").tasks}
    memory, cores = max(device.clocks.supported_clocks().items())
    rows, counts = [], {}
    for kernel in ("qkv_gemm", "softmax"):
        counts[kernel] = round(times * SWITCH_S / device.truth(tasks[kernel], AUTO).time_s)
        for setting in (AUTO, *(Setting(core, memory) for core in cores[:: max(1, len(cores) // 8)])):
            true = device.truth(tasks[kernel], setting)
            rows.append((kernel, setting.core_mhz, setting.memory_mhz, true.time_s, true.time_s * true.power_w))
    sweep = make_sweep(rows, counts=counts)
    made = plan(sweep, Objective("waste", 0.02))
    assert made.switches.per_iteration == 2
    stays = [(tasks[row.kernel], row.setting, row.count, row.time_s) for row in made.assignments]
    auto = [(tasks[kernel], AUTO, counts[kernel], device.truth(tasks[kernel], AUTO).time_s) for kernel in counts]
    (auto_s, auto_j), (ideal_s, ideal_j), (late_s, late_j) = (
        play(preset, switch_s, each) for switch_s, each in ((0.0, auto), (0.0, stays), (SWITCH_S, stays))
    )
    found = lateness(combine_repeats(sweep), made.assignments, switch_time("any", SWITCH_S))
    for estimated, true in (
        (found.time_change, (late_s - ideal_s) / auto_s),
        (found.energy_change, (late_j - ideal_j) / auto_j),
    ):
        assert estimated == pytest.approx(true, rel=0.1, abs=LATE_TOLERANCE / 4)


def test_by_hand():
    # a runs 3 s at 900 and b 1 s at 1500, twice each: b would take 4 s at 900, a 2 s at 1500
    rows = [
        *(("a", core, 9501, time, energy) for core, time, energy in ((None, 2, 10), (900, 3, 6), (1500, 2, 10))),
        *(("b", core, 9501, time, energy) for core, time, energy in ((None, 1, 20), (900, 4, 22), (1500, 1, 8))),
    ]
    sweep = make_sweep(rows, counts={"a": 2, "b": 2})
    made = plan(sweep, Objective("energy"), switch_time_s=0.1)
    assert [row.core_mhz for row in made.assignments] == [900, 1500]
    row = made.applicable.rows[0]
    # for 0.1 s b runs at 900, at a quarter of its speed and 22/4 W; for 0.1 s a runs at 1500, half as fast again and at 5 W
    late_s = 0.1 * (1 - 1 / 4) + 0.1 * (1 - 3 / 2)
    late_j = 0.1 * (22 / 4 - 8 / 4) + 0.1 * (10 / 2 - 6 / 2)
    assert (row.late_time_change, row.late_energy_change) == pytest.approx((late_s / 6, late_j / 60))


def test_a_plan_that_late_switches_make_too_slow_does_not_fit():
    rows = [
        *(("a", core, 9501, time, energy) for core, time, energy in ((None, 2, 10), (900, 2, 6), (1500, 2, 10))),
        *(("b", core, 9501, time, energy) for core, time, energy in ((None, 1, 20), (900, 4, 22), (1500, 1, 8))),
    ]
    sweep = make_sweep(rows, counts={"a": 2, "b": 4})
    slow, quick = (plan(sweep, switch_time_s=time).applicable.rows[0] for time in (0.1, 0.01))
    assert slow.late_time_change == pytest.approx(0.1 * 0.75 / 8) and not slow.fits
    assert quick.late_time_change < LATE_TOLERANCE and quick.fits
    assert plan(sweep, Objective("waste", 0.02), switch_time_s=0.1).applicable.rows[0].fits
    assert plan(sweep, Objective("energy"), switch_time_s=0.1).applicable.rows[0].fits
    too_slow = plan(sweep, switch_time_s=1.0).applicable.rows[0]
    assert too_slow.late_time_change is None and not too_slow.fits
