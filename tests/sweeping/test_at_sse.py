"""SSE energies against the executions of a simulated GPU as they truly are."""

from dataclasses import replace

import pytest

from testbed.true_executions import true_executions
from wastenot.core.errors import BadInputError, DeviceError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.instrument import Burst
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.instrument import SimulatedInstrument
from wastenot.meters.tasks import WorkloadTasks, find_tasks
from wastenot.study.store import open_study
from wastenot.sweeping.measure import measure_sweep
from wastenot.sweeping.point import PointOptions
from wastenot.sweeping.states import check_state, measure_at_sse
from wastenot.workloads.identity import WorkloadKey

DEVICE = "sim:mi300x"
UNITS = find_tasks("gpt3-small", DEVICE)
LOW = Setting(1300.0, 1300.0)
NAMES = [kernel.name for kernel in UNITS.kernels]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setting"), [("softmax", LOW), ("cross_entropy", AUTO)])
def test_energy_is_that_of_the_first_execution_at_full_speed(name, setting):
    device = open_device(DEVICE, seed=4)
    task = UNITS.tasks[NAMES.index(name)]
    found = measure_at_sse(device, task, setting, PointOptions())
    true = true_executions(device.instrument(), Burst(((task.steps[0][0], 8),)))
    sse = true[3]  # three come before it that are slower
    assert found.time_s == pytest.approx(sse.time_s, rel=0.01)
    assert found.energy_j == pytest.approx(sse.time_s * sse.mean_w["total"], rel=0.02)
    steady = device.truth(task, setting, device.engine.temperature_c)
    assert found.energy_j < 0.99 * steady.time_s * steady.power_w  # power has not risen yet
    assert found.how == "SSE is execution 4 of a run"


@pytest.mark.slow
def test_a_sweep_keeps_it_as_a_state_of_its_own(tmp_path):
    device = open_device(DEVICE, seed=4)
    index = NAMES.index("qkv_gemm")
    part = WorkloadTasks("part", UNITS.kernels[index : index + 1], UNITS.tasks[index : index + 1])
    study = open_study(tmp_path / "s.db", create=True)
    outcome = measure_sweep(device, replace(part, state="sse"), study, ())
    assert outcome.measured == 1 and study.workloads() == (WorkloadKey("part", "sse"),)
    assert study.read().state == "sse"  # the only state there is
    (stored,) = study.measurements()
    assert stored.stopped.endswith("golden")
    sse = true_executions(device.instrument(), Burst(((UNITS.tasks[index].steps[0][0], 8),)))[3]
    assert stored.time_s == pytest.approx(sse.time_s, rel=0.01)
    assert stored.energy_j == pytest.approx(sse.time_s * sse.mean_w["total"], rel=0.02)


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), DeviceError("sim:mi300x: the GPU is lost")])
def test_what_ends_a_profile_early_ends_the_measurement(monkeypatch, ending):
    left = iter(range(40))

    def failing(instrument, burst, rest_s, run=SimulatedInstrument._run):
        if next(left, None) is None:
            raise ending
        return run(instrument, burst, rest_s)

    monkeypatch.setattr(SimulatedInstrument, "_run", failing)
    with pytest.raises(type(ending)):
        measure_at_sse(open_device(DEVICE), UNITS.tasks[NAMES.index("softmax")], AUTO, PointOptions())


def test_several_kernels_and_devices_without_an_instrument_are_refused():
    passes = find_tasks("gpt3-small", DEVICE, granularity="pass", state="sse")
    with pytest.raises(BadInputError, match=r"granularity.*use 'kernel'"):
        check_state(open_device(DEVICE), passes)
    with pytest.raises(BadInputError, match=r"granularity.*use 'kernel'"):
        measure_at_sse(
            open_device(DEVICE), Task("two", tuple((task.steps[0][0], 1) for task in UNITS.tasks[:2])), AUTO, PointOptions()
        )


def test_a_recording_has_no_instrument(tmp_path):
    study = open_study(tmp_path / "s.db", create=True)
    part = WorkloadTasks("part", UNITS.kernels[:2], UNITS.tasks[:2])
    measure_sweep(open_device(DEVICE), part, study, (), options=PointOptions(0.2, 0.5), rounds=1)
    recorded = f"recorded:{study.path}"
    with pytest.raises(BadInputError, match="recording"):
        check_state(open_device(recorded), find_tasks("part", recorded, state="sse"))
