"""``with wn.measure() as m:`` — time and energy of any code on any number of GPUs, without holding it up.

    with wn.measure() as m:                      @wn.measure(gpu=True)
        train_step()                             def step(batch): ...
    print(m.energy_j, "±", m.energy_se_j)        step.results[-1].energy_j

The begin and the end of a window only take the time. The energy counter, which is slow to read and moves ten times a
second, is followed by a thread of its own (:mod:`wastenot.metering.sampler`); what a window used is worked out from
the log of that when it is asked for (:mod:`wastenot.metering.window_energy` says how, with its standard error).

A simulated device is not made for two threads: whoever runs tasks on one while it is measured holds
``meter.followers[i].lock`` meanwhile.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import fields
from types import TracebackType
from typing import Any, TypeVar, cast
from weakref import ref

from wastenot.devices.protocol import Device
from wastenot.errors import DeviceError
from wastenot.metering.devices import DeviceOrName, window_devices
from wastenot.metering.gpu_timestamps import GpuClock, torch_clocks
from wastenot.metering.result import MEMORY_GAUGE_S, GpuWindow, WindowResult, gpu_window
from wastenot.metering.sampler import Sampler, shared_sampler
from wastenot.metering.step_follower import StepFollower

NOT_BRACKETED = "not seen by PyTorch: by the host's time"
POORLY_PLACED = "the GPU's events were poorly placed in time"
FORKED = "the process was forked while it was measured"

_TIMEOUT_S = 2.0  # for the counter's next steps
_POORLY_S = 0.005

_now_s = time.perf_counter
_entered: ContextVar[tuple[Window, ...]] = ContextVar("wastenot_windows", default=())

F = TypeVar("F", bound=Callable[..., Any])


class Window:
    """A stretch of time, and what GPUs used in it.

    Reading results waits until they are known: about two of the counter's steps after the end (0.2 s), half a second
    where the memory's power is told.

    Args:
        meter: that it belongs to.
        name: of the window.
    """

    __slots__ = ("__weakref__", "_ends", "_marks", "_meter", "_result", "begin_s", "end_s", "name")

    def __init__(self, meter: Meter, name: str) -> None:
        self._meter = meter
        self.name = name
        self.end_s: float | None = None
        self._result: WindowResult | None = None
        self._marks: tuple[Any, ...] = ()
        self._ends: tuple[Any, ...] = ()
        self.begin_s = _now_s()
        sampler = meter.sampler
        if not sampler.forked:
            sampler.open[id(self)] = ref(self)
            if not sampler.awake:
                sampler.wake()
        if meter.gpu_clocks:
            self._marks = tuple(clock and clock.mark() for clock in meter.gpu_clocks)
        self.begin_s = _now_s()

    def end(self) -> None:
        """End it; what comes later is not in it. Ending twice changes nothing."""
        if self.end_s is None:
            self.end_s = _now_s()
            if self._marks:
                self._ends = tuple(clock and clock.mark() for clock in self._meter.gpu_clocks)

    def settle(self) -> None:
        """Work the result out if all that it needs is known, and nothing of the GPU need be waited for."""
        if self._result is None and self.end_s is not None and not self._marks:
            self.result(0.0)

    @property
    def followers(self) -> tuple[StepFollower, ...]:
        """Of the devices measured."""
        return self._meter.followers

    def result(self, timeout_s: float = _TIMEOUT_S) -> WindowResult:
        """What was used.

        Args:
            timeout_s: for which to wait for each device's next steps; what is not known by then is estimated and flagged.

        Raises:
            DeviceError: the window has not ended.
        """
        if self._result is None:
            if self.end_s is None:
                raise DeviceError(f"window '{self.name}' has not ended: read it after the with block, or so_far() in it")
            self._result = self._concluded(self.end_s, timeout_s)
            self._meter.sampler.open.pop(id(self), None)
        return self._result

    def so_far(self) -> WindowResult | None:
        """What was used up to the last step seen of each counter, without waiting; ``None`` before there are any."""
        gpus = []
        for follower in self.followers:
            last = follower.log.last_step_s() if follower.has_counter else follower.log.last_sample_s()
            if last is None or last <= self.begin_s:
                return None
            end = last if self.end_s is None else min(last, self.end_s)
            gpus.append(_gpu(follower, self.begin_s, end, ()))
        return WindowResult.of(self.name, max(gpu.time_s for gpu in gpus), tuple(gpus))

    def _concluded(self, end_s: float, timeout_s: float) -> WindowResult:
        if self._meter.sampler.forked:
            return WindowResult.of(self.name, end_s - self.begin_s, tuple(map(self._unknown, self.followers)))
        gpus = []
        for index, follower in enumerate(self.followers):
            begin, end, flags = self._moments(index, end_s)
            after = end + (0.5 * MEMORY_GAUGE_S if follower.memory_gauge and end - begin >= MEMORY_GAUGE_S else 0.0)
            follower.log.wait(None if follower.has_counter is False else end, after, max(timeout_s, after - _now_s()))
            gpus.append(_gpu(follower, begin, end, flags))
        return WindowResult.of(self.name, max(gpu.time_s for gpu in gpus), tuple(gpus))

    def _moments(self, index: int, end_s: float) -> tuple[float, float, tuple[str, ...]]:
        if not self._marks:
            return self.begin_s, end_s, ()
        clock = self._meter.gpu_clocks[index]
        if clock is None:
            return self.begin_s, end_s, (NOT_BRACKETED,)
        begin, end, width = clock.moments(self._marks[index], self._ends[index])
        return begin, end, (POORLY_PLACED,) if width > _POORLY_S else ()

    def _unknown(self, follower: StepFollower) -> GpuWindow:
        end = self.begin_s if self.end_s is None else self.end_s
        who = follower.device.identity
        return GpuWindow(
            device=who.name, unique_id=who.unique_id, model=who.model, origin=who.origin, time_s=end - self.begin_s,
            energy_j=None, energy_se_j=None, mean_power_w=None, memory_energy_j=None, core_mhz=None, memory_mhz=None,
            temperature_c=None, throttled_share=None, flags=(FORKED,),
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        """Every attribute of the result: ``energy_j``, ``energy_se_j``, ``time_s``, ``gpus``, …."""
        known = [field.name for field in fields(WindowResult)]
        if name in known:
            return getattr(self.result(), name)
        raise AttributeError(f"a window has no '{name}'; it has {', '.join(known)}")

    def __repr__(self) -> str:
        state = "open" if self.end_s is None else "ended" if self._result is None else repr(self._result)
        return f"<Window '{self.name}': {state}>"


class Meter:
    """Measures windows: ``with meter as window:`` as often as wanted, nested and from several threads; or a decorator.

    Args:
        devices: to measure.
        gpu: bracket the GPU's own work with events.
        name: of the windows.
        sampler: that follows the devices.
    """

    def __init__(self, devices: tuple[Device, ...], *, gpu: bool, name: str | None, sampler: Sampler) -> None:
        self.sampler = sampler
        self.name = name
        self.gpu_clocks: tuple[GpuClock | None, ...] = ()
        if gpu:
            self.gpu_clocks = torch_clocks(tuple(device.identity.unique_id for device in devices))
        self.followers = sampler.follow(devices)

    def begin(self, name: str | None = None) -> Window:
        """Begin a window; :meth:`Window.end` ends it."""
        return Window(self, name or self.name or "window")

    def __enter__(self) -> Window:
        window = Window(self, self.name or "window")
        _entered.set((*_entered.get(), window))
        return window

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = _entered.get()
        if entered and entered[-1]._meter is self:
            entered[-1].end()
            _entered.set(entered[:-1])
            return
        # Left in another order than entered, as generators may.
        for place in range(len(entered) - 1, -1, -1):
            if entered[place]._meter is self:
                entered[place].end()
                _entered.set((*entered[:place], *entered[place + 1 :]))
                return

    def __call__(self, function: F) -> F:
        """Measure each call of a function, or coroutine function; its windows are in its attribute ``results``."""
        name = self.name or getattr(function, "__qualname__", "call")
        results: list[Window] = []

        @functools.wraps(function)
        def measured(*arguments: Any, **named: Any) -> Any:
            window = self.begin(name)
            results.append(window)
            try:
                return function(*arguments, **named)
            finally:
                window.end()

        @functools.wraps(function)
        async def measured_later(*arguments: Any, **named: Any) -> Any:
            window = self.begin(name)
            results.append(window)
            try:
                return await cast("Awaitable[Any]", function(*arguments, **named))
            finally:
                window.end()

        wrapper: Any = measured_later if inspect.iscoroutinefunction(function) else measured
        wrapper.results = results
        return cast("F", wrapper)


def measure(
    devices: DeviceOrName | Iterable[DeviceOrName] | None = None, *, gpu: bool = False, name: str | None = None
) -> Meter:
    """Measure time and energy of the code in a ``with`` block, or of each call of a function as its decorator.

    The first call in a process opens the devices and begins to follow their sensors; that takes a while, windows themselves
    take microseconds. Keep what it returns to measure often.

    Args:
        devices: names such as ``nvidia:0``, devices, or nothing for all NVIDIA GPUs that this process may use.
        gpu: bracket the GPU's own work with CUDA events on the current stream, instead of the host's time; nothing is
            waited for until results are read. Needs PyTorch.
        name: of the windows.

    Raises:
        BadInputError: there is no such device, or it cannot be measured in real time.
        DeviceError: there is no driver or no GPU.
        MissingExtraError: a package is missing.
    """
    return Meter(window_devices(devices), gpu=gpu, name=name, sampler=shared_sampler())


def _gpu(follower: StepFollower, begin_s: float, end_s: float, flags: tuple[str, ...]) -> GpuWindow:
    return gpu_window(follower.device.identity, follower.log, bool(follower.has_counter), begin_s, end_s, flags)
