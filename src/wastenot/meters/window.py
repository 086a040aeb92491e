"""``with wn.measure() as m:`` — time and energy of any code on any number of GPUs, without slowing it down.

    with wn.measure() as m:                      @wn.measure(gpu=True)
        train_step()                             def step(batch): ...
    print(m.energy_j, "±", m.energy_se_j)        step.results[-1].energy_j

The beginning and the end of a window only take a timestamp and, where the program uses the GPU through PyTorch, queue a
stamp of its cycle counters (:mod:`wastenot.meters.cycle_marks`). The energy counter, which is slow to read and moves ten
times a second, is followed by a thread of its own (:mod:`wastenot.meters.sampler`); what a window used is computed from
that thread's log when it is first read (:mod:`wastenot.meters.window_energy` explains how, with its standard error).

A simulated device is not thread-safe: code that runs tasks on one while it is measured holds ``meter.followers[i].lock``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from types import TracebackType
from typing import Any, TypeVar, cast
from weakref import ref

from wastenot.core.errors import DeviceError
from wastenot.core.vendors import bare_unique_id
from wastenot.devices.protocol import Device
from wastenot.meters.counter import StepFollower
from wastenot.meters.cycle_marks import CycleMark, counted_clocks
from wastenot.meters.devices import DeviceOrName, measurable_devices
from wastenot.meters.gpu_clock import GpuClock, torch_clocks
from wastenot.meters.result import MEMORY_GAUGE_S, GpuWindow, WindowResult, gpu_window
from wastenot.meters.sampler import PROCESS_SAMPLER, Sampler

NOT_BRACKETED = "not visible to PyTorch: measured by the host's time"
POORLY_DATED = "the GPU's events could only be dated roughly"
FORKED = "the process was forked while it was measured"

_TIMEOUT_S = 2.0  # for the counter's next steps
_ROUGH_S = 0.005

# Windows entered by ``with`` in this context (thread or coroutine), innermost last.
_entered: ContextVar[tuple[Window, ...]] = ContextVar("wastenot_windows", default=())

F = TypeVar("F", bound=Callable[..., Any])


class Window:
    """An interval of time, and what GPUs used in it.

    Reading results waits until they are known: about two steps of the counter after the end (0.2 s), half a second where the
    GPU reports its memory's power.

    Args:
        meter: it belongs to.
        name: of the window.
    """

    __slots__ = ("__weakref__", "_cycles", "_ends", "_marks", "_meter", "_result", "begin_s", "end_s", "name")

    def __init__(self, meter: Meter, name: str) -> None:
        self._meter = meter
        self.name = name
        self.end_s: float | None = None
        self._result: WindowResult | None = None
        self._marks: tuple[Any, ...] = ()
        self._ends: tuple[Any, ...] = ()
        self._cycles: tuple[CycleMark | None, CycleMark | None] = (None, None)
        sampler = meter.sampler
        self.begin_s = sampler.now_s()
        if not sampler.forked:
            sampler.pending[id(self)] = ref(self)
            if not sampler.awake:
                sampler.wake()
        if meter.cycles is not None:
            self._cycles = (meter.cycles.mark(), None)
        if meter.gpu_clocks:
            self._marks = tuple(clock and clock.mark() for clock in meter.gpu_clocks)
        self.begin_s = sampler.now_s()

    def end(self) -> None:
        """End the window. Ending it again changes nothing."""
        if self.end_s is None:
            self.end_s = self._meter.sampler.now_s()
            if self._marks:
                self._ends = tuple(clock and clock.mark() for clock in self._meter.gpu_clocks)
            if self._cycles[0] is not None and self._meter.cycles is not None:
                self._cycles = (self._cycles[0], self._meter.cycles.mark())

    def evaluate_if_complete(self) -> None:
        """Evaluate it, unless the GPU would have to be waited for."""
        if self._result is None and self.end_s is not None and not self._marks:
            self.result(0.0)

    @property
    def followers(self) -> tuple[StepFollower, ...]:
        """Followers of the devices measured."""
        return self._meter.followers

    def result(self, timeout_s: float = _TIMEOUT_S) -> WindowResult:
        """Evaluate the window.

        Args:
            timeout_s: longest wait for each device's next steps; what is not known by then is estimated and flagged.

        Raises:
            DeviceError: the window has not ended.
        """
        if self._result is None:
            if self.end_s is None:
                raise DeviceError(f"window '{self.name}' has not ended: read it after the with block, or so_far() in it")
            self._result = self._evaluated(self.end_s, timeout_s)
            self._meter.sampler.pending.pop(id(self), None)
        return self._result

    def so_far(self) -> WindowResult | None:
        """The result up to the last step of each counter, without waiting; ``None`` before there is one."""
        gpus = []
        for follower in self.followers:
            last = follower.log.last_step_s() if follower.has_counter else follower.log.last_sample_s()
            if last is None or last <= self.begin_s:
                return None
            end = last if self.end_s is None else min(last, self.end_s)
            gpus.append(_gpu(follower, self.begin_s, end, ()))
        return WindowResult.of(self.name, max(gpu.time_s for gpu in gpus), tuple(gpus))

    def _evaluated(self, end_s: float, timeout_s: float) -> WindowResult:
        if self._meter.sampler.forked:
            return WindowResult.of(self.name, end_s - self.begin_s, tuple(map(self._unknown, self.followers)))
        gpus = []
        for index, follower in enumerate(self.followers):
            begin, end, flags = self._moments(index, end_s)
            after = end + (0.5 * MEMORY_GAUGE_S if follower.memory_gauge and end - begin >= MEMORY_GAUGE_S else 0.0)
            follower.log.wait(
                None if follower.has_counter is False else end, after, max(timeout_s, after - self._meter.sampler.now_s())
            )
            gpus.append(_gpu(follower, begin, end, flags))
        counted, self._cycles = counted_clocks(*self._cycles), (None, None)
        for index, gpu in enumerate(gpus):
            clock_mhz = counted.get(bare_unique_id(gpu.unique_id))
            if clock_mhz is not None:
                gpus[index] = replace(gpu, counted_mhz=clock_mhz)
        return WindowResult.of(self.name, max(gpu.time_s for gpu in gpus), tuple(gpus))

    def _moments(self, index: int, end_s: float) -> tuple[float, float, tuple[str, ...]]:
        if not self._marks:
            return self.begin_s, end_s, ()
        clock = self._meter.gpu_clocks[index]
        if clock is None:
            return self.begin_s, end_s, (NOT_BRACKETED,)
        begin, end, width = clock.moments(self._marks[index], self._ends[index])
        return begin, end, (POORLY_DATED,) if width > _ROUGH_S else ()

    def _unknown(self, follower: StepFollower) -> GpuWindow:
        end = self.begin_s if self.end_s is None else self.end_s
        identity = follower.device.identity
        return GpuWindow(
            device=identity.name, unique_id=identity.unique_id, model=identity.model, origin=identity.origin,
            time_s=end - self.begin_s, flags=(FORKED,),
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        """Any attribute of the result: ``energy_j``, ``energy_se_j``, ``time_s``, ``gpus``, …."""
        names = [field.name for field in fields(WindowResult)]
        if name in names:
            return getattr(self.result(), name)
        raise AttributeError(f"a window has no '{name}'; it has {', '.join(names)}")

    def __repr__(self) -> str:
        state = "open" if self.end_s is None else "ended" if self._result is None else repr(self._result)
        return f"<Window '{self.name}': {state}>"


class Meter:
    """Measures windows: ``with meter as window:`` any number of times, nested and from several threads; also a decorator.

    Args:
        devices: to measure.
        gpu: bracket the GPU's own work with events.
        name: of the windows.
        sampler: to follow the devices with.
        cycles: count cycles of the core clock where that is possible.
    """

    def __init__(
        self, devices: tuple[Device, ...], *, gpu: bool, name: str | None, sampler: Sampler, cycles: bool = True
    ) -> None:
        self.sampler = sampler
        self.name = name
        real = any(device.identity.origin == "measured" for device in devices)
        self.cycles = sampler.cycles if cycles and real else None
        self.gpu_clocks: tuple[GpuClock | None, ...] = ()
        if gpu:
            self.gpu_clocks = torch_clocks(tuple(device.identity.unique_id for device in devices), sampler.clocks)
        self.followers = sampler.follow(devices)

    def begin(self, name: str | None = None) -> Window:
        """Begin a window, to be ended by :meth:`Window.end`."""
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
        # Left in another order than entered, as generators may do.
        for index in range(len(entered) - 1, -1, -1):
            if entered[index]._meter is self:
                entered[index].end()
                _entered.set((*entered[:index], *entered[index + 1 :]))
                return

    def __call__(self, function: F) -> F:
        """Measure each call of a function or coroutine function, whose attribute ``results`` then lists the windows."""
        name = self.name or getattr(function, "__qualname__", "call")
        results: list[Window] = []

        @contextmanager
        def recorded() -> Iterator[None]:
            window = self.begin(name)
            results.append(window)
            try:
                yield
            finally:
                window.end()

        @functools.wraps(function)
        def measured(*arguments: Any, **named: Any) -> Any:
            with recorded():
                return function(*arguments, **named)

        @functools.wraps(function)
        async def measured_later(*arguments: Any, **named: Any) -> Any:
            with recorded():
                return await function(*arguments, **named)

        wrapper: Any = measured_later if inspect.iscoroutinefunction(function) else measured
        wrapper.results = results
        return cast("F", wrapper)


def measure(
    devices: DeviceOrName | Iterable[DeviceOrName] | None = None,
    *,
    gpu: bool = False,
    name: str | None = None,
    cycles: bool = True,
) -> Meter:
    """Measure time and energy of the code in a ``with`` block, or of each call of the function it decorates.

    The first call in a process opens the devices and starts to follow their sensors, which takes a moment; windows cost
    microseconds. To measure repeatedly, keep the returned meter.

        >>> import time, wastenot as wn
        >>> with wn.measure("sim:h200") as window:  # without a name, every GPU
        ...     time.sleep(0.05)
        >>> window.time_s >= 0.05, window.energy_j > 0
        (True, True)

    Args:
        devices: names such as ``nvidia:0``, devices, or ``None`` for all GPUs that this process may use.
        gpu: bracket the GPU's own work with CUDA events on the current stream, instead of the host's time; nothing waits
            until results are read. Needs PyTorch.
        name: of the windows.
        cycles: count cycles of the core clock between begin and end on PyTorch's current stream, where the program uses its
            current GPU already: a tiny kernel at each, outside of captured graphs. It is compiled for the first such window,
            which takes a moment. The result is ``counted_mhz``, beside the driver's ``core_mhz``, which is up to 0.1 s old.

    Raises:
        BadInputError: there is no such device, or it does not run in real time.
        DeviceError: there is no driver or no GPU.
        MissingExtraError: a package is missing.
    """
    sampler = PROCESS_SAMPLER.get()
    return Meter(measurable_devices(devices, sampler.device), gpu=gpu, name=name, sampler=sampler, cycles=cycles)


def _gpu(follower: StepFollower, begin_s: float, end_s: float, flags: tuple[str, ...]) -> GpuWindow:
    return gpu_window(follower.device.identity, follower.log, bool(follower.has_counter), begin_s, end_s, flags)
