"""A meter on another machine: what it serves, what was used between two moments, and all that can go wrong with it."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pytest

import wastenot as wn
from testbed.stand_in_meter import DCGM, ENERGY, served
from wastenot.core.errors import BadInputError
from wastenot.serving.bench.remote_meter import _Readings, chosen_series, gpu_series, open_meter


def counter(power_w, step_s, begin_mj=1e9):
    """An energy counter in mJ that moves in steps."""
    begin_s = time.perf_counter()
    return lambda: begin_mj + 1e3 * power_w * step_s * ((time.perf_counter() - begin_s) // step_s)


def test_the_counter_of_energy_counts_before_the_gauge_of_power():
    (first, second) = gpu_series(DCGM.format(power=650.0) + ENERGY.format(energy=123456))
    assert (first.key, first.number, first.model, first.quantity) == ("GPU-a", "0", "NVIDIA H100 80GB HBM3", "energy")
    assert (first.value, second.value) == pytest.approx((123.456, 5.0))
    assert [each.quantity for each in gpu_series(DCGM.format(power=650.0))] == ["power", "power"]
    # DCGM's blank values, and what is no number, are nothing known.
    assert gpu_series(ENERGY.format(energy=9223372036854775794).replace(" 5000", " nan")) == []
    assert gpu_series("vllm:num_requests_running 3\n") == []


@pytest.mark.parametrize("step_s", [0.1, 0.5])
def test_energy_between_two_moments_is_power_times_time(step_s):
    energy = counter(600.0, step_s)
    with served(lambda: ENERGY.format(energy=energy())) as url:
        meter = open_meter(url, ["0"])
        assert (meter.gpu, meter.gpus, meter.evidence) == ("NVIDIA H100 80GB HBM3", 1, "measured")
        with meter.watch() as watch:
            time.sleep(3.0 * step_s + 0.4)
            begin_s = time.perf_counter()
            time.sleep(2.5)
            end_s = time.perf_counter()
            used = watch.used(begin_s, end_s)
    assert used.energy_se_j is not None
    assert abs(used.energy_j - 600.0 * (end_s - begin_s)) < 4.0 * used.energy_se_j


def test_a_gauge_of_power_is_integrated_and_says_so():
    with served(lambda: DCGM.format(power=500.0)) as url, open_meter(url, ["GPU-a", "1"]).watch() as watch:
        time.sleep(0.6)
        begin_s = time.perf_counter()
        time.sleep(1.0)
        used = watch.used(begin_s, begin_s + 1.0)
    assert used.energy_j == pytest.approx(570.5, rel=0.02)
    assert any("no counter of energy" in note for note in used.notes)


def test_a_meter_that_stops_or_starts_anew_gives_no_energy_but_a_reason():
    energy, alive = counter(600.0, 0.1), [True]

    def says():
        return ENERGY.format(energy=energy()) if alive[0] else None

    with served(says) as url, open_meter(url, ["0"]).watch() as watch:
        alive[0] = False
        time.sleep(0.5)
        begin_s = time.perf_counter()
        used = watch.used(begin_s - 0.2, begin_s)
    assert used.energy_j is None and any("503" in note for note in used.notes)
    values = iter([1e6, 1e6, 2e6, 3e6, 4e6, 10.0, 1e3, *[2e3] * 1000])
    with served(lambda: ENERGY.format(energy=next(values))) as url, open_meter(url, ["0"]).watch() as watch:
        time.sleep(2.0)
        used = watch.used(time.perf_counter() - 1.0, time.perf_counter() - 0.9)
    assert used.energy_j is None and any("was restarted" in note for note in used.notes)


def test_what_cannot_be_a_meter_is_refused_in_one_line():
    with pytest.raises(BadInputError, match=r"refused; is an exporter of GPU metrics running there\?"):
        open_meter("http://127.0.0.1:9")
    with served(lambda: "up 1\n") as url, pytest.raises(BadInputError, match="serves no GPU energy"):
        open_meter(url)
    with served(lambda: ENERGY.format(energy=1)) as url:
        with pytest.raises(
            BadInputError,
            match=r"has 2 GPUs; say which ones serve the model with meter_gpus: 0 \(NVIDIA H100 80GB HBM3\), 1",
        ):
            open_meter(url)
        with pytest.raises(BadInputError, match="meter_gpus 7"):
            open_meter(url, ["7"])
    with served(lambda: None) as url, pytest.raises(BadInputError, match="answers 503"):
        open_meter(url)
    twice = ENERGY.replace("GPU-a", "GPU-c").replace("GPU-b", "GPU-d")
    with served(lambda: (ENERGY + twice).format(energy=1)) as url:
        with pytest.raises(BadInputError, match=r"several GPUs of .* have this number; give the UUID: GPU-a, GPU-c"):
            open_meter(url, ["0"])
        assert [each.key for each in chosen_series(url, ["GPU-c", "GPU-b"])[1]] == ["GPU-c", "GPU-b"]
    with socket.create_server(("127.0.0.1", 0)) as raw:

        def greet():
            connection, _ = raw.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            connection.close()

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(BadInputError, match="does not speak HTTP"):
            open_meter(f"127.0.0.1:{raw.getsockname()[1]}")
    with pytest.raises(BadInputError, match="meter http://nowhere"):
        open_meter("nowhere.invalid:9400")


def test_a_measurement_of_wastenot_is_a_meter_for_other_machines():
    from wastenot.control.metrics import serve_registry, window_registry

    with wn.measure("sim:h200") as window:
        time.sleep(0.3)
        with serve_registry(0, window_registry(window)) as port:
            meter = open_meter(f"http://127.0.0.1:{port}/metrics")
            assert (meter.gpu, meter.evidence) == ("NVIDIA H200", "simulated")
            with meter.watch() as watch:
                time.sleep(0.5)
                begin_s = time.perf_counter()
                time.sleep(2.0)
                end_s = time.perf_counter()
                used = watch.used(begin_s, end_s)
                power_w = window.so_far().mean_power_w
    # A busy machine reads late and seldom; the stated error covers that.
    assert abs(used.energy_j - power_w * (end_s - begin_s)) < 4.0 * used.energy_se_j


def readings(rng, step_s, steady_s):
    """What is read of a counter from when a load begins, the steady state in it, and its energy: 600 W, then 80 W."""
    read = _Readings("http://node/metrics", ("GPU-a",), "energy")
    log = read._logs["GPU-a"]
    begin_s = rng.uniform(2.0, 15.0)
    end_s = begin_s + steady_s
    over_s, phase_s = end_s + rng.uniform(0.5, 8.0), rng.uniform(0.0, step_s)
    now_s = 0.0
    while now_s < end_s + 2.0 * step_s + 3.0:
        stepped_s = np.floor((now_s - phase_s) / step_s) * step_s + phase_s
        log.counted(1e6 + 600.0 * min(stepped_s, over_s) + 80.0 * max(stepped_s - over_s, 0.0), now_s)
        now_s += 0.2 + rng.uniform(0.0, 0.02)
    return read._of(log, begin_s, end_s), 600.0 * steady_s


@pytest.mark.parametrize("step_s", [0.1, 1.0, 5.0, 10.0, 30.0])
def test_the_error_of_a_slow_meter_is_stated_or_no_energy_is(step_s):
    rng = np.random.default_rng(7)
    found = [readings(rng, step_s, steady_s) for steady_s in (20.0, 90.0) for _ in range(60)]
    known = [(used.energy_j - energy_j) / used.energy_se_j for used, energy_j in found if used.energy_j is not None]
    assert np.mean(np.abs(known) < 2.0) > 0.85 and np.max(np.abs(known)) < 5.0
    for used, energy_j in found:
        assert used.energy_j == pytest.approx(energy_j, rel=0.05) or used.energy_j is None
    unknown = [used for used, _ in found[:60] if used.energy_j is None]  # of 20 s
    assert len(unknown) == {0.1: 0, 1.0: 0, 5.0: 0, 30.0: 60}.get(step_s, len(unknown))
    assert all("no whole update interval of the meter lies within the steady state" in used.notes[0] for used in unknown)
    assert all(used.energy_j is not None for used, _ in found[60:])  # of 90 s
