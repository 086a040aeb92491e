"""Tiny iterations on a GPU with PyTorch: one kernel that runs until its time is up, and notes timer and cycles after each.

    multiprocessor 0   ▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮     notes the GPU's timer and its cycles after each iteration
    all others         ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮     the same work, without notes

Nothing is set and nothing waits meanwhile: the host is free to ask for other clocks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from wastenot.core.errors import BadInputError, DeviceError, first_line
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import RoundTrip
from wastenot.devices.torch.cycle_clock import compiled
from wastenot.devices.torch.devices import find_torch_device
from wastenot.devices.tracer import Load, Trace, TracedRun

_KERNEL = "wastenot_iterations"
# Arguments are pointers and 32-bit integers, which is what PyTorch's launcher passes.
_SOURCE = """
struct alignas(16) Note { long long cycles, nanoseconds; };

extern "C" __global__ void wastenot_iterations(
    Note* notes, int capacity, int lasts_us, int memory_bound, int work, const float4* traffic, int elements,
    float* sink, long long* count
) {
    __shared__ int goes_on[2];
    bool leads = threadIdx.x == 0, notes_down = leads && blockIdx.x == 0;
    long long began = 0, now = 0, cycles = 0, noted = 0, lasts_ns = 1000LL * lasts_us;
    if (leads) {
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    }
    if (notes_down) {
        notes[0].cycles = cycles;
        notes[0].nanoseconds = began;
        noted = 1;
    }
    float a = threadIdx.x * 1e-6f, b = a + 0.25f, c = a + 0.5f, d = a + 0.75f;
    int stride = gridDim.x * blockDim.x, at = (blockIdx.x * blockDim.x + threadIdx.x) % elements;
    for (int turn = 0;; turn ^= 1) {
        if (memory_bound) {
            for (int i = 0; i < work; ++i) {
                float4 read = __ldcs(traffic + at);
                a += read.x; b += read.y; c += read.z; d += read.w;
                at += stride;
                if (at >= elements) at -= elements;
            }
        } else {
            for (int i = 0; i < work; ++i) {
                a = fmaf(a, 0.999f, 0.001f); b = fmaf(b, 0.999f, 0.002f);
                c = fmaf(c, 0.999f, 0.003f); d = fmaf(d, 0.999f, 0.004f);
            }
        }
        if (a + b + c + d == -1.0f) sink[0] = a;
        __syncthreads();
        if (leads) {
            asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles) :: "memory");
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) :: "memory");
            goes_on[turn] = now - began < lasts_ns;
        }
        if (notes_down) {
            if (noted < capacity) {
                notes[noted].cycles = cycles;
                notes[noted].nanoseconds = now;
            }
            count[0] = ++noted;
        }
        __syncthreads();
        if (!goes_on[turn]) break;
    }
}
"""
_ITERATION_S: dict[Load, float] = {"core": 30e-6, "memory": 60e-6, "power_limit": 60e-6}
_THREADS: dict[Load, int] = {"core": 32, "memory": 512, "power_limit": 1024}
_BLOCKS: dict[Load, int] = {"core": 1, "memory": 2, "power_limit": 2}  # on each multiprocessor
_SHORTEST_S = 5e-6  # of an iteration at clocks faster than those it was tried at
_TRIED_S = 20e-3
_TRIPS = 8
_FIRST_WORK = 64
_MARGIN_S = 0.05  # by which the kernel outlasts what was asked


class TorchTracer:
    """Runs iterations on one GPU.

    Args:
        device: PyTorch's name of it, such as ``cuda:0``.
        now_s: the host's clock.

    Raises:
        MissingExtraError: PyTorch was built without CUDA, or cannot compile kernels.
        BadInputError: it is no GPU.
        DeviceError: PyTorch finds no GPU.
    """

    def __init__(self, device: str, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._device = find_torch_device(device)
        if self._device.type != "cuda":
            raise BadInputError(f"device '{device}': iterations are traced on GPUs, such as cuda:0")
        self._now_s = now_s
        self._kernel = compiled(_SOURCE, _KERNEL, str(self._device), "tracing iterations")
        properties = torch.cuda.get_device_properties(self._device)
        self._multiprocessors = int(properties.multi_processor_count)
        with torch.cuda.device(self._device):
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            elements = max(8 * int(properties.L2_cache_size), 1 << 28) // 16
            self._traffic = torch.ones((elements, 4), dtype=torch.float32, device=self._device)
            self._sink = torch.zeros(1, dtype=torch.float32, device=self._device)
            self._count = torch.zeros(1, dtype=torch.int64, device=self._device)
            torch.cuda.synchronize(self._device)
        self._work: dict[Load, int] = {}

    @contextmanager
    def start(self, load: Load, seconds: float) -> Iterator[TracedRun]:
        """Run iterations for so long; leaving the context waits until they have ended."""
        try:
            with torch.cuda.device(self._device):
                work = self._work_of(load)
                trips = [self._round_trip() for _ in range(_TRIPS)]
                capacity = math.ceil((seconds + _MARGIN_S) / _SHORTEST_S)
                notes = torch.zeros((capacity, 2), dtype=torch.int64, device=self._device)
                torch.cuda.synchronize(self._device)
                self._launch(notes, load, seconds + _MARGIN_S, work)
        except RuntimeError as error:
            raise DeviceError(f"{self._device}: iterations cannot be run: {first_line(error)}") from None
        run = TracedRun()
        try:
            yield run
        finally:
            try:
                with torch.cuda.device(self._device):
                    self._stream.synchronize()
                    found = notes[: min(int(self._count.item()), capacity)].cpu().numpy()
                    trips += [self._round_trip() for _ in range(_TRIPS)]
            except RuntimeError as error:
                raise DeviceError(f"{self._device}: iterations failed: {first_line(error)}") from None
            run.ended = _trace(found, trips)

    def _work_of(self, load: Load) -> int:
        """Steps of an iteration that lasts about as long as wanted."""
        work = self._work.get(load, _FIRST_WORK)
        for _ in range(0 if load in self._work else 3):
            notes = torch.zeros((math.ceil(_TRIED_S / _SHORTEST_S) * 4, 2), dtype=torch.int64, device=self._device)
            torch.cuda.synchronize(self._device)
            self._launch(notes, load, _TRIED_S, work)
            self._stream.synchronize()
            found = notes[: min(int(self._count.item()), len(notes)), 1].cpu().numpy()
            lasted_s = 1e-9 * float(np.median(np.diff(found[len(found) // 2 :]))) if len(found) > 4 else _TRIED_S
            work = max(round(work * _ITERATION_S[load] / max(lasted_s, 1e-7)), 1)
        self._work[load] = work
        return work

    def _launch(self, notes: torch.Tensor, load: Load, seconds: float, work: int) -> None:
        blocks = self._multiprocessors * _BLOCKS[load]
        arguments = [
            notes, len(notes), round(1e6 * seconds), int(load == "memory"), work,
            self._traffic, len(self._traffic), self._sink, self._count,
        ]  # fmt: skip
        self._kernel(grid=(blocks, 1, 1), block=(_THREADS[load], 1, 1), args=arguments, stream=self._stream)

    def _round_trip(self) -> RoundTrip:
        notes = torch.zeros((1, 2), dtype=torch.int64, device=self._device)
        torch.cuda.synchronize(self._device)
        before_s = self._now_s()
        self._launch(notes, "core", 0.0, 1)
        self._stream.synchronize()
        after_s = self._now_s()
        return RoundTrip(before_s, 1e-9 * int(notes[0, 1].item()), after_s)


def _trace(notes: Any, trips: list[RoundTrip]) -> Trace:
    if len(notes) < 2:
        raise DeviceError("no iteration was timed; is another program using the GPU?")
    # Nanoseconds since 1970 do not fit into a double: a common origin is taken off first.
    origin_s = trips[0].gpu_s
    moved = [RoundTrip(trip.before_s, trip.gpu_s - origin_s, trip.after_s) for trip in trips]
    gpu_s = 1e-9 * (notes[:, 1] - round(1e9 * origin_s)).astype(np.float64)
    fit = fit_clocks(moved)
    cycles, lasted_ns = np.diff(notes[:, 0]), np.maximum(np.diff(notes[:, 1]), 1)
    return Trace(fit.host(gpu_s), 1e3 * cycles / lasted_ns, fit.error_s)
