r"""The role that shows when a switch takes effect: tiny iterations back to back, each with its time and core clock.

    host        │ request ──────────────▶│
    iterations  ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▯▯▯▯▯▯▯▯▯▯▯▯▯▯    tens of microseconds each, without a gap
    core clock  ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\_____________    by counting cycles in each

    with tracer.start("core", seconds=0.5) as run:      # iterations run from here on
        asked_s = device.time.now_s()
        device.clocks.request(Setting(1200.0))
        device.time.sleep(0.2)
    run.trace.bounds_s                                   # when iterations began and ended, on the clock of device.time

Code that measures latencies uses only this protocol.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import DeviceError

Load = Literal["core", "memory", "power_limit"]
"""What the time of iterations depends on: the core clock, the memory clock, or, as they draw much power, the power limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Iterations one after another.

    Attributes:
        bounds_s: beginnings of the iterations and the end of the last, on the host's clock; shape (iterations + 1,).
        core_mhz: mean core clock counted in each; shape (iterations,).
        clock_error_s: standard error of the relation between the clocks of host and GPU.
    """

    bounds_s: FloatArray
    core_mhz: FloatArray
    clock_error_s: float

    @property
    def seconds(self) -> FloatArray:
        """Time of each iteration."""
        return self.bounds_s[1:] - self.bounds_s[:-1]


class TracedRun:
    """Iterations that run; whoever runs them sets :attr:`ended` in the end."""

    ended: Trace | None = None

    @property
    def trace(self) -> Trace:
        """What was seen of them; available once the run has ended."""
        if self.ended is None:
            raise DeviceError("a trace is only available once the run has ended")
        return self.ended


class Tracer(Protocol):
    """Runs tiny iterations on a device."""

    def start(self, load: Load, seconds: float) -> AbstractContextManager[TracedRun]:
        """Run iterations until the context exits, and for some time at least.

        Args:
            load: what their time depends on.
            seconds: for how long, by the device's time; leaving the context earlier may have to wait until then.

        Raises:
            CannotRunError: the device cannot run such iterations.
            DeviceError: the device failed.
        """
