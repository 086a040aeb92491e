"""A GPU's clock and cycle counters that a test turns, in place of the kernel that stamps them."""

import contextlib
import ctypes
import types

import numpy as np
import torch

from wastenot.devices.torch import cycle_clock

START_NS = 1_800_000_000_000_000_000  # the timer counts from 1970


class FakeCounters:
    """A GPU whose clock the test turns; a stamp is stored when the test says that the GPU has got there."""

    def __init__(self, multiprocessors=20, tick_ns=32):
        self.multiprocessors, self.tick_ns = multiprocessors, tick_ns
        self.offsets = np.random.default_rng(0).integers(0, 10**12, multiprocessors)
        self.now_s = self.cycles = 0.0
        self.queued, self.code = [], 0

    def run(self, seconds, mhz):
        self.now_s += seconds
        self.cycles += seconds * mhz * 1e6

    def store(self, stamps, missing=()):
        memory, place, kept = stamps
        for each in range(min(kept, self.multiprocessors)):
            if each not in missing:
                late_ns = 40 * each  # a multiprocessor after another
                memory[place, each, 0] = int(self.offsets[each] + self.cycles + 40e-3 * each * 1500)
                memory[place, each, 1] = (START_NS + round(self.now_s * 1e9) + late_ns) // self.tick_ns * self.tick_ns

    def launch(self, function, *rest):
        """As the driver's cuLaunchKernel, which reads its arguments where it is told."""
        *grid, shared, stream, arguments, extra = rest
        assert (function, grid, shared, stream.value, extra) == (77, [self.multiprocessors, 1, 1, 1, 1, 1], 0, 7, None)
        kinds = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
        pointer, place, kept = (ctypes.cast(a, ctypes.POINTER(k))[0] for a, k in zip(arguments, kinds, strict=True))
        if self.code == 0:
            size = (place + 1) * kept * 2
            memory = np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int64)), (size,))
            self.queued.append((memory.reshape(place + 1, kept, 2), place, kept))
        return self.code

    def reach(self, **how):
        for stamps in self.queued:
            self.store(stamps, **how)
        self.queued = []


def install(monkeypatch, found):
    """Let PyTorch launch the kernel that stamps on it."""
    properties = types.SimpleNamespace(multi_processor_count=found.multiprocessors)
    zeros = torch.zeros
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)

    def unpinned(shape, dtype, pin_memory):
        assert pin_memory
        return zeros(shape, dtype=dtype)

    monkeypatch.setattr(torch, "zeros", unpinned)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None, raising=False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "_compile_kernel", lambda source, name: types.SimpleNamespace(func=77), raising=False)
    library = types.SimpleNamespace(cuLaunchKernel=found.launch)
    for name in ("_get_gpu_runtime_library", "_get_cuda_library"):
        monkeypatch.setattr(torch.cuda._utils, name, lambda: library, raising=False)
    cycle_clock._compiled.cache_clear()
    return found
