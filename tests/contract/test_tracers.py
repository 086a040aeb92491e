"""What every device must do that shows when a switch takes effect. One suite; the simulated GPU is the reference."""

import numpy as np
import pytest

from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.errors import ClocksRefusedError, DeviceError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device, open_gpu
from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.preset import find_preset
from wastenot.kernels.latency.design import design
from wastenot.kernels.latency.measure import look_ahead, measured_latency


@pytest.fixture(scope="module")
def server():
    with start_stand_in("h200", memory_lock=True, seed=3) as found:
        yield found


@pytest.fixture
def stand_in(server, monkeypatch, tmp_path):
    server.control.reset()
    server.use(monkeypatch)
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))
    monkeypatch.delenv("WASTENOT_READ_ONLY", raising=False)
    return server


def opened(stand_in, *, allowed=True):
    return open_gpu(
        "nvidia:0",
        allow_clock_control=allowed,
        time_source=stand_in.time(),
        launcher=lambda _: stand_in.launcher(),
        tracer=lambda *_: stand_in.tracer(),
    )


@pytest.fixture(params=["nvidia:0", *(f"sim:{name}" for name in preset_names())])
def device(request):
    if request.param.startswith("sim:"):
        yield open_device(request.param, seed=3)
        return
    found = opened(request.getfixturevalue("stand_in"))
    yield found
    found.clocks.release()


@pytest.mark.parametrize("load", ["core", "memory", "power_limit"])
def test_iterations_are_tiny_without_gaps_and_on_the_clock_of_the_device(device, load):
    began_s = device.time.now_s()
    with device.tracer().start(load, 0.1) as run:
        device.time.sleep(0.1)
    trace = run.trace
    assert 1e-5 < np.median(trace.seconds) < 2e-3
    assert began_s - 1e-3 <= trace.bounds_s[0] and trace.bounds_s[-1] <= device.time.now_s() + 1e-3
    assert trace.bounds_s[-1] - trace.bounds_s[0] >= 0.095
    assert len(trace.bounds_s) == len(trace.core_mhz) + 1 and np.all(np.diff(trace.bounds_s) >= 0.0)
    assert 0.0 <= trace.clock_error_s < 1e-4


def test_the_core_clock_is_seen_to_change_where_it_was_requested(device):
    cores = device.clocks.supported_clocks()[max(device.clocks.supported_clocks())]
    low, high = cores[0], cores[len(cores) // 2]
    device.clocks.request(Setting(low))
    device.time.sleep(1.0)
    with device.tracer().start("core", 0.6) as run:
        device.time.sleep(0.1)
        asked_s = device.time.now_s()
        device.clocks.request(Setting(high))
        device.time.sleep(0.5)
    trace = run.trace
    before = trace.core_mhz[trace.bounds_s[1:] < asked_s]
    assert np.median(before) == pytest.approx(low, rel=0.01) and np.median(trace.core_mhz[-500:]) == pytest.approx(
        high, rel=0.01
    )
    changed_s = trace.bounds_s[1:][np.abs(trace.core_mhz - high) < 0.02 * high][0]
    assert 0.0 < changed_s - asked_s < 0.2


def test_there_is_no_trace_before_the_end(device):
    with device.tracer().start("core", 0.01) as run:
        if device.identity.origin == "simulated":
            with pytest.raises(DeviceError, match="once the run has ended"):
                _ = run.trace
        device.time.sleep(0.01)


def test_latency_is_measured_through_nvml_and_clocks_are_given_back(stand_in):
    device = opened(stand_in)
    planned = design(device, kinds=("core", "power_limit"), core_mhz=(345.0, 1200.0, 1980.0), error=0.03)
    found = measured_latency(device, planned)
    truth = find_preset("h200").switching
    assert (found.origin, found.device) == ("measured", device.identity.label) and found.switch_time.basis == "measured"
    for part in planned.parts:
        for each in found.of(part.what):
            true_s = truth.latency_s(AUTO, part.setting(each.target))
            assert abs(each.seconds - true_s) < 4.0 * max(each.error_s, 2e-4), each
    state = stand_in.control.state(0)
    assert (state.locked_core_mhz, state.locked_memory_mhz) == (None, None)


def test_who_may_only_read_is_told_what_is_needed_and_what_is_assumed(stand_in, monkeypatch):
    device = opened(stand_in, allowed=False)
    planned = design(device, kinds=("core",))
    with pytest.raises(ClocksRefusedError) as refusal:
        look_ahead(device, planned, None)
    for words in ("can only be measured by setting clocks", "until then plans assume 30 ms", "assumed", "GH200"):
        assert words in str(refusal.value), words
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")
    with pytest.raises(ClocksRefusedError, match="WASTENOT_READ_ONLY"):
        look_ahead(opened(stand_in), planned, None)


def test_a_driver_that_refuses_on_the_way_is_named_and_nothing_stays_set(stand_in):
    device = opened(stand_in)
    stand_in.control.fault("nvmlDeviceSet*", "NO_PERMISSION")
    with pytest.raises(ClocksRefusedError, match="until then plans assume"):
        measured_latency(device, design(device, kinds=("core",)))
    stand_in.control.clear_faults()
    assert stand_in.control.state(0).locked_core_mhz is None


@pytest.mark.slow
def test_a_memory_clock_that_the_driver_does_not_lock_is_left_out(monkeypatch, tmp_path):
    with start_stand_in("h200", seed=4) as server:  # as the real board
        server.use(monkeypatch)
        monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))
        monkeypatch.delenv("WASTENOT_READ_ONLY", raising=False)
        device = opened(server)
        found = measured_latency(device, design(device, kinds=("core", "memory"), core_mhz=(345.0, 1980.0), error=0.3))
        device.clocks.release()
    assert {each.what for each in found.targets} == {"core"}
    assert any(line.startswith("memory clock: ") for line in found.not_covered)
    assert "memory clock assumed" in found.switch_time.source
