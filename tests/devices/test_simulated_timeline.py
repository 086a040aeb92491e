"""Timelines of the simulated H200: its clock under products and in their wake, and its truth."""

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device, simulated_device
from wastenot.devices.protocol import Task
from wastenot.devices.recorded import recorded_device
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.preset import find_preset
from wastenot.devices.timeline import Phase, Subject
from wastenot.study.sweep_file import read_sweep
from wastenot.workloads.build import build_workload
from wastenot.workloads.primitives import primitive

KERNELS = {kernel.name: kernel for kernel in build_workload("gpt3-xl").kernels}
PRODUCT, LIGHT = Subject(KERNELS["up_gemm"]), Subject(KERNELS["permute_qkv"])


def clock_after_products(device, milliseconds):
    """The clock so long after products end, a mean over four wakes."""
    with device.timelines().prepare([PRODUCT, LIGHT]) as ready:
        found = ready.run([Phase(0, 0.26), Phase(1, 0.19)] * 4)
    wakes = []
    for phase in range(1, 8, 2):
        of = found.phase == phase
        wakes.append(np.interp(milliseconds, 1e3 * (found.begin_s[of] - found.begin_s[of][0]), found.core_mhz[of]))
    return np.mean(wakes, axis=0)


def test_the_clock_in_the_wake_of_products():
    held, risen, free = clock_after_products(open_device("sim:h200", seed=2), [10.0, 60.0, 150.0])
    assert 1400 < held < 1560 and held + 200 < risen < 1920 and free > 1940


def test_a_gpu_without_a_regulator_recovers_at_once():
    device = simulated_device(find_preset("h200").model_copy(update={"regulator": None}), "sim:h200", seed=2)
    clocks = clock_after_products(device, [10.0, 60.0, 150.0])
    assert clocks == pytest.approx(device.truth(Task.of_kernel(LIGHT.kernel), AUTO).core_mhz, rel=1e-3)


def test_steady_products_meet_the_power_limit_on_average():
    device = open_device("sim:h200", seed=3)
    with device.timelines().prepare([PRODUCT]) as ready:
        found = ready.run([Phase(0, 8.0)])
    of = found.begin_s > found.begin_s[0] + 3.0
    expected = device.truth(Task.of_kernel(PRODUCT.kernel), AUTO, device.engine.temperature_c)
    assert (found.end_s - found.begin_s)[of].sum() / found.calls[of].sum() == pytest.approx(expected.time_s, rel=0.005)
    log = found.readings["total"]
    assert log.power_w[30:-5].mean() == pytest.approx(expected.power_w, rel=0.01)
    assert np.ptp(found.core_mhz[of]) > 60.0


def test_mixtures_meet_the_power_limit_on_average():
    """As a whole iteration does: on an H200 it drew 691.6 W, and products by themselves 690 W (data/h200, run 3)."""
    device = open_device("sim:h200", seed=3)
    with device.timelines().prepare([PRODUCT, LIGHT]) as ready:
        found = ready.run([Phase(0, 0.009), Phase(1, 0.004)] * 500)
    log = found.readings["total"]
    late = log.moment_s > log.moment_s[0] + 2.0
    assert log.power_w[late][:-5].mean() == pytest.approx(700.0, rel=0.01)
    assert found.core_mhz[found.subject == 1][-200:].mean() < 1700


def test_time_by_clock_is_the_truth():
    device = open_device("sim:h200", seed=4)
    with device.timelines().prepare([PRODUCT, LIGHT]) as ready:
        found = ready.run([Phase(0, 0.26), Phase(1, 0.19)] * 3)
    of = (found.subject == 1) & (found.phase > 1)
    true_s = [device.truth_at(LIGHT.kernel, core_mhz).time_s for core_mhz in found.core_mhz[of]]
    assert np.ptp(found.core_mhz[of]) > 400.0
    assert found.call_s[of] == pytest.approx(np.array(true_s), rel=0.015)


def test_cycles_are_skipped_in_products_only_and_time_is_by_the_clock_in_effect():
    device = open_device("sim:h200", seed=5)
    with device.timelines().prepare([PRODUCT, LIGHT]) as ready:
        found = ready.run([Phase(0, 0.26), Phase(1, 0.19)])
    product, light = found.subject == 0, found.subject == 1
    assert found.counted_mhz is not None
    assert found.counted_mhz[light] == pytest.approx(found.core_mhz[light], rel=1e-9)
    counted = found.counted_mhz[product] / found.core_mhz[product]
    high = found.core_mhz[product] > 1900
    assert high.any() and counted[high].mean() == pytest.approx(0.8, abs=0.02)
    assert counted[~high].mean() == pytest.approx(0.9, abs=0.02)


def test_a_clock_that_was_set_is_a_ceiling():
    device = open_device("sim:h200", seed=7)
    device.clocks.request(Setting(1605.0, None))
    device.time.sleep(0.5)
    with device.timelines().prepare([PRODUCT, LIGHT]) as ready:
        found = ready.run([Phase(1, 0.1), Phase(0, 0.2), Phase(1, 0.3)])
    alone, after = (found.core_mhz[found.phase == phase] for phase in (0, 2))
    assert alone == pytest.approx(1605.0, rel=1e-3)
    assert after.min() < 1560 and after[-20:] == pytest.approx(1605.0, rel=1e-3) and found.core_mhz.max() < 1620


@pytest.mark.parametrize("name", preset_names())
def test_by_itself_a_kernel_is_where_a_task_of_it_alone_is(name):
    device = open_device(f"sim:{name}")
    physics = device.engine.physics
    for kernel in KERNELS.values():
        task = physics.operating_point(Task.of_kernel(kernel), AUTO, 60.0)
        response = physics.response(kernel, physics.core_mhz, AUTO)
        alone = physics.steady_point(response, AUTO, physics.ceiling_mhz(kernel, AUTO, "random"), 60.0)
        assert (alone.core_mhz, alone.time_s, alone.power_w) == pytest.approx((task.core_mhz, task.time_s, task.power_w))
        if task.core_mhz == physics.core_mhz[-1]:
            assert device.truth_at(kernel, task.core_mhz, temperature_c=60.0).power_w == pytest.approx(task.power_w)


def test_products_from_rest_take_as_long_as_on_cards():
    """1,373 µs on an H200 until its regulator acts (docs/fingrav.md), not the 1,208 that fewer skipped cycles would give."""
    point = open_device("sim:h200").truth_at(primitive("gemm:8192")[0], 1980.0)
    assert point.time_s == pytest.approx(1373e-6, rel=0.08)


def test_products_of_zeros_reach_the_clock_that_they_reached_below_the_power_limit():
    device = open_device("sim:h200", seed=6)
    square = primitive("gemm:8192")[0]
    with device.timelines().prepare([Subject(square, "zeros")]) as ready:
        found = ready.run([Phase(0, 1.5)])
    late = found.begin_s > found.begin_s[0] + 0.5
    assert found.core_mhz[late].mean() == pytest.approx(1740, rel=0.005)
    assert found.readings["total"].power_w[8:-4].mean() == pytest.approx(455, rel=0.05)


def test_zeros_draw_less_and_take_as_long_at_the_same_clock():
    device = open_device("sim:h200")
    random, zeros = (device.truth_at(PRODUCT.kernel, 1600.0, data) for data in ("random", "zeros"))
    assert zeros.time_s == random.time_s and zeros.power_w < 0.85 * random.power_w


def test_a_recording_has_no_timelines_and_neither_has_wall_time(tmp_path):
    (tmp_path / "sweep.csv").write_text("kernel,count,core_mhz,memory_mhz,time_s,energy_j\ngemm,2,,,0.01,3.0\n")
    recording = recorded_device(read_sweep(tmp_path / "sweep.csv"), "recorded:x")
    with pytest.raises(BadInputError, match="a recording has no individual executions"):
        recording.timelines()
    with pytest.raises(BadInputError, match="only simulated in virtual time"):
        open_device("sim:h200", wall_time=True).timelines()
