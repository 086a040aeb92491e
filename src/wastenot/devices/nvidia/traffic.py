"""Memory traffic of an NVIDIA GPU, by GPM: counters of the hardware that samples are taken of (Hopper and later).

NVML tells what fraction of its bandwidth the memory was used between two samples; how much was moved since the first is
added up of these. It refreshes samples every 100 ms (NVML's reference of ``nvmlGpmMetricsGet``). GPM does without the
counters that profilers claim for themselves, so that DCGM and Nsight may run beside it (NVIDIA's answer in DCGM issue 62).
"""

from __future__ import annotations

import math
from typing import Any

from wastenot.devices.nvidia.nvml import Nvml

_REFRESH_S = 0.11  # samples less apart may be one and the same
_MOST_FAILURES = 5  # in a row, of which the GPU may report its traffic after all


class NvidiaTraffic:
    """Adds up the memory traffic of a GPU.

    Args:
        nvml: access to NVML.
        handle: NVML's handle of the GPU.
    """

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._samples: tuple[Any, Any] | None = None  # the latest, and one to fill
        self._supported: bool | None = None
        self._sampled_s = 0.0
        self._failures = 0
        self._total_s = 0.0

    def seconds(self, now_s: float) -> float | None:
        """Time that all traffic since the first call would have taken at full bandwidth; ``None`` where GPM has none."""
        if self._supported is None:
            found = self._nvml.try_call("nvmlGpmQueryDeviceSupport", self._handle)
            self._supported = found is not None and bool(found.isSupportedDevice)
        if not self._supported:
            return None
        if self._samples is None:
            self._samples = self._nvml.call("nvmlGpmSampleAlloc"), self._nvml.call("nvmlGpmSampleAlloc")
            self._nvml.call("nvmlGpmSampleGet", self._handle, self._samples[0])
        elif now_s - self._sampled_s > _REFRESH_S:
            before, latest = self._samples
            self._nvml.call("nvmlGpmSampleGet", self._handle, latest)
            used = self._used(before, latest)
            self._failures = 0 if used is not None else self._failures + 1
            if used is None:
                self._supported = self._failures < _MOST_FAILURES
                return self._total_s if self._supported else None
            self._samples = latest, before
            self._total_s += used * (now_s - self._sampled_s)
        else:
            return self._total_s
        self._sampled_s = now_s
        return self._total_s

    def _used(self, before: Any, latest: Any) -> float | None:
        """Fraction of the bandwidth used between two samples."""
        library = self._nvml.library
        wanted = library.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = library.NVML_GPM_METRICS_GET_VERSION, 1
        wanted.sample1, wanted.sample2 = before, latest
        wanted.metrics[0].metricId = library.NVML_GPM_METRIC_DRAM_BW_UTIL
        found = self._nvml.try_call("nvmlGpmMetricsGet", wanted)
        if found is None or found.metrics[0].nvmlReturn != 0 or not 0.0 <= found.metrics[0].value < math.inf:
            return None
        return 0.01 * float(found.metrics[0].value)
