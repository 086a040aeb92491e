"""The cycle clock beside the driver's, with a stand-in for the stamps, and what doctor says of both."""

import contextlib
import json

import numpy as np
import pytest
import torch

from wastenot.core.errors import DeviceError, MissingExtraError
from wastenot.devices.timeline import ClockStamps
from wastenot.devices.torch import cycle_probe
from wastenot.devices.torch.cycle_clock import Stamps
from wastenot.devices.torch.cycle_probe import CycleProbe, probe_cycles

CORES = 12


class FakeGpu:
    """One thread that spins on a GPU whose multiprocessors may have clocks of their own."""

    def __init__(self, mhz):
        self.mhz, self.now_s, self.reads = np.broadcast_to(np.asarray(mhz, dtype=float), (CORES,)), 50.0, 0

    def spin(self, cycles):
        self.now_s += cycles / 1.98e9

    def query(self):
        self.reads += 1
        return self.reads % 8 == 0

    def stamps(self, device):
        return FakeStamps(self)


class FakeStamps:
    quality = ClockStamps(2.1e-6, 32e-9, CORES)
    device = None

    def __init__(self, gpu):
        self.gpu = gpu
        self.restart()

    def restart(self):
        self.at, self.recorded = [], 0

    def record(self, stream):
        self.at.append(self.gpu.now_s)
        self.recorded += 1

    def read(self):
        moment_s = np.repeat(np.array(self.at)[:, None], CORES, axis=1)
        cycles = 1e6 * self.gpu.mhz * moment_s + np.arange(CORES) * 1e9
        cycles[:, 3] = np.nan
        return Stamps(moment_s[:, 0], cycles, moment_s)


def install(monkeypatch, mhz):
    gpu = FakeGpu(mhz)
    monkeypatch.setattr(cycle_probe, "find_torch_device", torch.device)
    monkeypatch.setattr(cycle_probe, "CycleStamps", gpu.stamps)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "_sleep", gpu.spin, raising=False)
    return gpu


def test_the_counted_clock_stands_beside_the_drivers(monkeypatch):
    install(monkeypatch, 1979.5)
    readings = iter([1980.0, None, 1965.0, *[1980.0] * 20])
    found = probe_cycles("cuda:0", lambda: next(readings))
    assert found.core_mhz == pytest.approx(1979.5) and found.driver_mhz == 1980.0
    assert found.difference == pytest.approx(0.5 / 1979.5, rel=1e-3)
    assert found.lowest_mhz == pytest.approx(found.highest_mhz) and found.multiprocessors == CORES
    assert probe_cycles("cuda:0", lambda: None).driver_mhz is None


def test_multiprocessors_at_several_clocks_are_told(monkeypatch):
    install(monkeypatch, np.linspace(1500.0, 1610.0, CORES))
    found = probe_cycles("cuda:0", lambda: 1600.0)
    assert (found.lowest_mhz, found.highest_mhz) == (pytest.approx(1500.0), pytest.approx(1610.0))


def test_a_gpu_that_cannot_be_used_is_one_line(monkeypatch):
    gpu = install(monkeypatch, 1980.0)

    def fail(device):
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nlong text")

    gpu.stamps = fail
    monkeypatch.setattr(cycle_probe, "CycleStamps", fail)
    with pytest.raises(DeviceError, match=r"cuda:0: its cycles cannot be counted: .* busy or unavailable$"):
        probe_cycles("cuda:0", lambda: None)


def test_doctor_shows_it_or_says_what_is_missing(wastenot, monkeypatch):
    uuids = [gpu["uuid"] for gpu in json.loads(wastenot("doctor", "--json", "--seconds", "0.01s").stdout)["gpus"]]
    asked = []

    def count(name, read_mhz):
        asked.append((name, read_mhz()))
        if name == "cuda:1":
            raise MissingExtraError("counting cycles needs NVRTC, which is missing")
        return CycleProbe(1979.53, 1979.52, 1979.54, 132, 32e-9, 2.1e-6, 1980.0)

    monkeypatch.setattr("wastenot.devices.torch.devices.torch_device", lambda uuid: f"cuda:{uuids.index(uuid)}")
    monkeypatch.setattr(cycle_probe, "probe_cycles", count)
    text = " ".join(wastenot("doctor", "--seconds", "0.01s").stdout.split())
    assert "cycle clock 1979.53 MHz by counting cycles while one thread spins; the driver says 1980 MHz (+0.024 %)" in text
    assert "all 132 multiprocessors at one clock (within 0.001 %); the timer ticks every 32 ns; a stamp takes 2.1 µs" in text
    assert "cycle clock cannot be counted: counting cycles needs NVRTC, which is missing" in text
    found = [gpu["cycle_clock"] for gpu in json.loads(wastenot("doctor", "--json", "--seconds", "0.01s").stdout)["gpus"]]
    assert found[0]["core_mhz"] == 1979.53 and found[0]["problem"] is None
    assert found[1] == {"problem": "counting cycles needs NVRTC, which is missing"}
    assert [name for name, _ in asked] == ["cuda:0", "cuda:1"] * 2 and all(mhz is not None for _, mhz in asked)


def test_doctor_without_cuda_in_pytorch_says_so(wastenot, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    text = " ".join(wastenot("doctor", "--seconds", "0.01s").stdout.split())
    assert text.count("cycle clock cannot be counted: device 'cuda:0': PyTorch") == 2 and "built without CUDA" in text


def test_doctor_counts_nothing_on_a_gpu_in_slices(wastenot, stand_in):
    stand_in.control.mig(True)
    try:
        found = json.loads(wastenot("doctor", "--json", "--seconds", "0.01s").stdout)["gpus"][0]
        assert found["mig"] and found["cycle_clock"] == {"problem": "MIG is enabled"}
        assert "wastenot needs the whole GPU" in " ".join(wastenot("doctor", "--seconds", "0.01s").stdout.split())
    finally:
        stand_in.control.mig(False)
