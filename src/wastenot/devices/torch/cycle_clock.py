"""The SM clock of a GPU by counting cycles, in stream order, with PyTorch alone and without any rights.

    stream   ▯▯▯▯▯│▯▯▯▯▯▯▯▯▯▯▯▯▯▯│▯▯▯▯▯    kernels, with a stamp between them
    stamps        ↑              ↑         every multiprocessor stores its %clock64 and the GPU's %globaltimer
    clock         └─ Δcycles / Δns ┘       the mean clock in between, however short

NVML's clock is a sample that is up to 100 ms old; this one is exact over any interval that the timer resolves.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import DeviceError, MissingExtraError, first_line
from wastenot.devices.timeline import ClockStamps

LOOK_CYCLES = 12_000  # 6 to 9 µs, of one spinning thread, whose cycles are those of the clock in effect
LEAST_SKIPPED = 0.01  # of the cycles, from which on work counts as such that the chip skips some under
MOST_SKIPPED = 0.5

_KERNEL = "wastenot_stamp"
# One store of 16 bytes, so that where two blocks meet on a multiprocessor its pair of numbers still belongs together.
_SOURCE = """
struct alignas(16) Stamp { long long cycles, nanoseconds; };
extern "C" __global__ void wastenot_stamp(Stamp* stamps, int index, int multiprocessors) {
    unsigned int multiprocessor;
    Stamp stamp;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(stamp.cycles));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(stamp.nanoseconds));
    if (multiprocessor < multiprocessors) stamps[(long long)index * multiprocessors + multiprocessor] = stamp;
}
"""

_TRIED = 256  # stamps in a row from which cost and resolution are read
_GATE_CYCLES = 20_000_000  # 10 ms: longer than queueing those takes
_COARSE_S = 0.1e-3  # resolution of a timer that tells too little about intervals of a millisecond


@dataclass(frozen=True, slots=True, eq=False)
class Stamps:
    """Stamps that were read back.

    Attributes:
        time_s: the GPU's timer, mean over multiprocessors; shape (stamps,).
        cycles: cycle counts by multiprocessor, NaN where one missed a stamp; shape (stamps, multiprocessors).
        moment_s: the timer when each was counted, same shape.
    """

    time_s: FloatArray
    cycles: FloatArray
    moment_s: FloatArray

    def clocks_mhz(self, first: Any, last: Any) -> FloatArray:
        """Mean clock of every multiprocessor between two stamps.

        Args:
            first: indices of stamps, a scalar or an array of shape (intervals,).
            last: the same, of those that end the intervals.

        Returns:
            MHz, shape (intervals, multiprocessors).
        """
        cycles = np.atleast_2d(self.cycles[last] - self.cycles[first])
        return np.asarray(1e-6 * cycles / np.atleast_2d(self.moment_s[last] - self.moment_s[first]))

    def clock_mhz(self, first: Any, last: Any) -> FloatArray:
        """Mean clock between two stamps, the median over multiprocessors; shape (intervals,)."""
        return np.asarray(np.nanmedian(self.clocks_mhz(first, last), axis=1))


class CycleStamps:
    """Stamps of the cycle counters of one GPU.

    Args:
        device: the GPU.
        capacity: number of stamps kept; later ones overwrite the oldest.

    Raises:
        MissingExtraError: this PyTorch cannot compile kernels.
        DeviceError: the GPU's timer is too coarse, or its cycles cannot be counted.

    Attributes:
        quality: cost and resolution of stamps.
        recorded: number of stamps recorded so far.
    """

    def __init__(self, device: torch.device, capacity: int = 4096) -> None:
        self.device = device
        self.multiprocessors = int(torch.cuda.get_device_properties(device).multi_processor_count)
        self.recorded = 0
        self._capacity = max(capacity, _TRIED)
        shape = (self._capacity, self.multiprocessors, 2)
        self._stamps = torch.zeros(shape, dtype=torch.int64, device=device)
        self._launch = StampLauncher(device, self._stamps, self.multiprocessors)
        self.quality = self._tried()
        self.recorded = 0

    def record(self, stream: torch.cuda.Stream | None = None) -> int:
        """Queue a stamp on a stream, by default the current one; returns its number."""
        number = self.recorded
        self._launch(number % self._capacity, (stream or torch.cuda.current_stream(self.device)).cuda_stream)
        self.recorded = number + 1
        return number

    def restart(self) -> None:
        """Count from 0 again. Nothing may be queued."""
        self._stamps.zero_()
        torch.cuda.synchronize(self.device)
        self.recorded = 0

    def read(self) -> Stamps:
        """All stamps since the last restart, once they have been counted.

        Raises:
            DeviceError: there were more than fit, or a stamp is empty.
        """
        if self.recorded > self._capacity:
            raise DeviceError(f"{self.device}: {self.recorded} timestamps were recorded, but only {self._capacity} fit")
        torch.cuda.synchronize(self.device)
        raw = self._stamps[: self.recorded].cpu().numpy()
        missing = raw[:, :, 1] == 0
        if bool(missing.all(axis=1).any()):
            raise DeviceError(
                f"{self.device}: a timestamp of the cycle counters is empty; is another program using the GPU?"
            )
        cycles = np.where(missing, np.nan, raw[:, :, 0].astype(np.float64))
        # Nanoseconds since 1970 do not fit into a double: the first stamp's are taken off as integers.
        start = int(raw[:, :, 1][~missing].min()) if len(raw) else 0
        moment_s = np.where(missing, np.nan, 1e-9 * (raw[:, :, 1] - start).astype(np.float64))
        return Stamps(np.asarray(np.nanmean(moment_s, axis=1)), cycles, moment_s)

    def round_trip(self) -> tuple[float, int, float]:
        """Record a stamp on an idle GPU: host time before, number of the stamp, host time after."""
        before_s = time.perf_counter()
        number = self.record()
        torch.cuda.current_stream(self.device).synchronize()
        return before_s, number, time.perf_counter()

    def _tried(self) -> ClockStamps:
        stream = torch.cuda.current_stream(self.device)
        try:
            for _ in range(2):  # the first time loads the kernel
                self.restart()
                torch.cuda._sleep(_GATE_CYCLES)  # type: ignore[no-untyped-call]  # so that the host is ahead
                for _ in range(_TRIED):
                    self.record(stream)
                stamps = self.read()
        except RuntimeError as error:
            raise DeviceError(f"{self.device}: its cycles cannot be counted: {first_line(error)}") from None
        after = stamps.moment_s[_TRIED // 2 :]
        steps = np.diff(np.unique(np.round(after[np.isfinite(after)] * 1e9)))
        resolution_s = 1e-9 * float(steps.min()) if len(steps) else float("inf")
        cost_s = float(np.median(np.diff(stamps.time_s[_TRIED // 2 :])))
        if not resolution_s <= _COARSE_S:
            raise DeviceError(
                f"{self.device}: its timer (%globaltimer) ticks every {1e6 * resolution_s:,.0f} µs, too coarse to "
                "count cycles against; this cannot be fixed on this GPU"
            )
        return ClockStamps(cost_s, resolution_s, self.multiprocessors)


class StampLauncher:
    """Launches the kernel with all its arguments in place: PyTorch's own call builds them again, which takes 30 µs.

    Args:
        device: the GPU.
        stamps: where the kernel writes, in memory that the GPU can reach; shape (indices, kept, 2).
        kept: number of multiprocessors, from the first, whose counts it stores.

    Raises:
        MissingExtraError: this PyTorch cannot compile kernels.
    """

    def __init__(self, device: torch.device, stamps: torch.Tensor, kept: int) -> None:
        self._kernel, self._run = _compiled(str(device))
        self._blocks = int(torch.cuda.get_device_properties(device).multi_processor_count)
        self._index = ctypes.c_int(0)
        held = ctypes.c_void_p(stamps.data_ptr()), self._index, ctypes.c_int(kept)
        self._arguments = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in held))
        self._held = held, stamps

    def __call__(self, index: int, stream: int) -> None:
        """Launch it; the driver copies the arguments.

        Args:
            index: that the stamp gets.
            stream: CUDA's handle of the stream.

        Raises:
            RuntimeError: CUDA refused.
        """
        self._index.value = index
        one, on = 1, ctypes.c_void_p(stream)
        code = self._run(self._kernel.func, self._blocks, one, one, one, one, one, 0, on, self._arguments, None)
        if code:
            raise RuntimeError(f"CUDA error {code} from cuLaunchKernel")


@lru_cache(maxsize=8)
def _compiled(device: str) -> tuple[Any, Any]:
    """The kernel compiled for a GPU, and the driver's function that launches it."""
    from torch.cuda import _utils

    library: Any = getattr(_utils, "_get_gpu_runtime_library", None) or getattr(_utils, "_get_cuda_library", None)
    kernel = compiled(_SOURCE, _KERNEL, device, "counting cycles")
    if library is None:
        raise MissingExtraError(f"counting cycles needs PyTorch's own launcher, which {torch.__version__} does not have")
    try:
        return kernel, library().cuLaunchKernel
    except (RuntimeError, OSError) as error:
        raise MissingExtraError(f"counting cycles needs CUDA's driver, which failed: {first_line(error)}") from None


def compiled(source: str, kernel: str, device: str, doing: str) -> Any:
    """A kernel of CUDA C++ compiled for a GPU by PyTorch.

    Args:
        source: of the kernel.
        kernel: its name.
        device: PyTorch's name of the GPU.
        doing: what it is needed for, for messages.

    Raises:
        MissingExtraError: this PyTorch cannot compile kernels, or not for NVIDIA's.
    """
    if torch.version.hip:
        raise MissingExtraError(f"{doing} counts cycles as NVIDIA's GPUs do; AMD's are not known to wastenot yet")
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    if compile_kernel is None:
        raise MissingExtraError(
            f"{doing} needs PyTorch 2.8 or later, which compiles small kernels itself; this is {torch.__version__}"
        )
    try:
        with torch.cuda.device(device):
            return compile_kernel(source, kernel)
    except (RuntimeError, OSError) as error:
        raise MissingExtraError(
            f"{doing} needs NVRTC, CUDA's compiler in PyTorch's wheels, which failed: {first_line(error)}"
        ) from None
