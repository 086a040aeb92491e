"""What every timeline recorder must do. One suite; the simulated GPU is the reference."""

import numpy as np
import pytest

from wastenot.core.errors import CannotRunError
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import TOTAL
from wastenot.devices.open import open_device
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.timeline import REST, Phase, Subject
from wastenot.meters.tasks import find_tasks
from wastenot.workloads.build import build_workload
from wastenot.workloads.kernel import KernelSpec

RECORDERS = {"sim:testbed/toy.toml": None, **{f"sim:{name}": None for name in preset_names()}}


@pytest.fixture(params=list(RECORDERS))
def recorder(request):
    return open_device(request.param, seed=5).timelines()


@pytest.fixture(scope="module")
def kernels() -> dict[str, KernelSpec]:
    return {kernel.name: kernel for kernel in build_workload("gpt3-xl").kernels}


@pytest.fixture
def timeline(recorder, kernels):
    """Products, a rest, and a light kernel on zeros."""
    subjects = [Subject(kernels["up_gemm"]), Subject(kernels["residual_1"], "zeros")]
    with recorder.prepare(subjects) as ready:
        assert len(ready.call_s) == 2 and all(call_s > 0.0 for call_s in ready.call_s)
        return ready.run([Phase(0, 0.2), Phase(REST, 0.05), Phase(1, 0.1)])


def test_it_says_which_it_is_and_how_well_it_counts(recorder):
    assert recorder.identity.name and recorder.channels[0].name == TOTAL
    stamps = recorder.stamps
    assert 0.0 <= stamps.cost_s < 1e-3 and 0.0 < stamps.resolution_s < 1e-3 and stamps.multiprocessors >= 1
    assert stamps.relative_error(1e-3) < 0.01


def test_groups_come_in_order_and_take_as_long_as_their_phases(timeline):
    assert (np.diff(timeline.phase) >= 0).all() and set(timeline.phase.tolist()) == {0, 2}
    assert (timeline.subject == timeline.phase // 2).all()
    assert (timeline.calls >= 1).all()
    assert (timeline.end_s > timeline.begin_s).all() and (timeline.begin_s[1:] >= timeline.end_s[:-1]).all()
    for phase, seconds in ((0, 0.2), (2, 0.1)):
        of = timeline.phase == phase
        assert timeline.end_s[of][-1] - timeline.begin_s[of][0] == pytest.approx(seconds, rel=0.5)
    first, last = np.flatnonzero(timeline.phase == 0)[-1], np.flatnonzero(timeline.phase == 2)[0]
    assert 0.05 <= timeline.begin_s[last] - timeline.end_s[first] < 0.2


def test_groups_take_about_a_millisecond_or_one_call(recorder, kernels):
    for group_s in (2e-4, 1e-3):
        with recorder.prepare([Subject(kernels["residual_1"])], group_s=group_s) as ready:
            found = ready.run([Phase(0, 0.03)])
        length_s = np.median(found.end_s - found.begin_s)
        assert (found.calls == 1).all() or length_s == pytest.approx(group_s, rel=0.5)
        assert np.median(found.call_s) == pytest.approx(ready.call_s[0], rel=0.2)


def test_a_phase_of_no_length_is_one_group(recorder, kernels):
    with recorder.prepare([Subject(kernels["residual_1"])]) as ready:
        found = ready.run([Phase(0, 0.0), Phase(0, 0.0)])
    assert found.phase.tolist() == [0, 1]


def test_clocks_are_those_of_a_gpu_and_agree_with_time(timeline):
    assert ((timeline.core_mhz > 100.0) & (timeline.core_mhz < 4000.0)).all()
    if timeline.counted_mhz is not None:
        assert (timeline.counted_mhz < 1.02 * timeline.core_mhz).all()


def test_readings_cover_the_groups_on_the_clock_of_the_host(recorder, timeline):
    host = fit_clocks(timeline.round_trips)
    begin_s, end_s = host.host(timeline.begin_s[[0, -1]])[0], host.host(timeline.end_s[[0, -1]])[1]
    trips = [trip.before_s for trip in timeline.round_trips] + [trip.after_s for trip in timeline.round_trips]
    assert min(trips) <= begin_s and end_s <= max(trips)
    assert set(timeline.readings) == {channel.name for channel in recorder.channels}
    channel, log = recorder.channels[0], timeline.readings[TOTAL]
    assert (np.diff(log.moment_s) > 0.0).all() and np.isfinite(log.power_w).all()
    assert log.moment_s[0] <= begin_s + channel.period_s
    assert log.moment_s[-1] >= end_s + channel.delay_s
    busy = (log.moment_s > begin_s + channel.reach_s + channel.delay_s) & (log.moment_s < begin_s + 0.2)
    idle_w = log.power_w[-1]
    assert not busy.any() or log.power_w[busy].mean() > idle_w


def test_timelines_follow_each_other(recorder, kernels):
    with recorder.prepare([Subject(kernels["residual_1"])]) as ready:
        first, second = ready.run([Phase(0, 0.05)]), ready.run([Phase(0, 0.05)])
    assert second.begin_s[0] > first.end_s[-1]
    assert second.temperature_c is None or second.temperature_c[0] == pytest.approx(first.temperature_c[1], abs=3.0)
    assert not first.shared


def test_a_kernel_it_does_not_know_is_refused():
    kernel = find_tasks("gpt3-small", "sim:h200").tasks[0].steps[0][0]
    unknown = KernelSpec("mystery", "", "other", (), 0.0, 0.0, 0.0, "forward", None, 1)
    recorder = open_device("sim:h200").timelines()
    with pytest.raises(CannotRunError), recorder.prepare([Subject(kernel), Subject(unknown)]):
        pass
