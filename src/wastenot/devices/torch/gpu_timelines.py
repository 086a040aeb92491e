"""Timelines of a real GPU: groups of calls with counted cycles, power polled from its driver. It changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from wastenot.devices.timeline import Phase, PreparedTimeline, Subject, Timeline

if TYPE_CHECKING:
    from wastenot.devices.torch.gpu import TorchGpu
    from wastenot.devices.torch.timeline import PreparedSubjects, TorchTimelines

_LATE_S = 0.01  # by which a reading may come later than expected


class GpuTimelines:
    """Records timelines of a GPU.

    Args:
        gpu: the GPU.
        runner: runs kernels on it and counts its cycles.

    Raises:
        BadInputError: the GPU has no power sensor.
    """

    def __init__(self, gpu: TorchGpu, runner: TorchTimelines) -> None:
        self.identity, self.stamps = gpu.identity, runner.stamps
        self._runner, self._sleep, self._sensors = runner, gpu.time.sleep, gpu.sensors
        self.channels, self._poller = gpu.power_log()

    @contextmanager
    def prepare(self, subjects: Sequence[Subject], *, group_s: float = 1e-3) -> Iterator[PreparedTimeline]:
        """Prepare subjects to run, until the context exits."""
        with self._runner.prepare(subjects, group_s) as prepared:
            yield PreparedTimeline(prepared.call_s, partial(self._run, prepared), prepared.how)

    def _run(self, prepared: PreparedSubjects, phases: Sequence[Phase]) -> Timeline:
        total = self.channels[0]
        before_c = self._sensors.temperature_c()
        with self._poller.following():
            ran = prepared.run(phases)
            self._sleep(total.period_s + total.delay_s + _LATE_S)
        after_c = self._sensors.temperature_c()
        logs = dict(zip((channel.name for channel in self.channels), self._poller.readings(), strict=True))
        temperature_c = None if before_c is None or after_c is None else (before_c, after_c)
        shared = (self._sensors.processes() or 0) > 1
        return replace(ran, readings=logs, temperature_c=temperature_c, shared=shared)
