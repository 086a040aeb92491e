"""A simulated device behind the same protocol as real ones."""

from __future__ import annotations

import math
import time as wall
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from wastenot.core.errors import BadInputError, CannotRunError, ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Identity, LapsAtEnd, Task, TaskRun
from wastenot.devices.simulated.engine import Engine
from wastenot.devices.simulated.physics import OperatingPoint
from wastenot.devices.simulated.sensors import SimulatedSensors

if TYPE_CHECKING:
    from wastenot.devices.simulated.bench import Bench
    from wastenot.devices.simulated.instrument import SimulatedInstrument
    from wastenot.devices.simulated.timeline import SimulatedTimelines
    from wastenot.devices.simulated.tracer import SimulatedTracer
    from wastenot.devices.timeline import Data
    from wastenot.workloads.kernel import KernelSpec


class SimulatedDevice:
    """A device made of an engine and sensors.

    Args:
        identity: which device it is.
        engine: its event-driven core.
        sensors: its sensors.
        reference_c: default temperature of :meth:`truth`.
    """

    def __init__(self, identity: Identity, engine: Engine, sensors: SimulatedSensors, reference_c: float) -> None:
        self.identity = identity
        self.engine = engine
        self.sensors = sensors
        self.time = SimulatedTime(engine)
        self.clocks = SimulatedClocks(engine)
        self.launcher = SimulatedLauncher(engine)
        self._reference_c = reference_c
        self._bench: Bench | None = None
        self._instrument: SimulatedInstrument | None = None
        self._timelines: SimulatedTimelines | None = None
        self._tracer: SimulatedTracer | None = None

    def instrument(self) -> SimulatedInstrument:
        """The instrument that profiles power inside kernels."""
        from wastenot.devices.simulated.instrument import SimulatedInstrument

        if self._instrument is None:
            self._instrument = SimulatedInstrument(self._shared_bench("profile"))
        return self._instrument

    def timelines(self) -> SimulatedTimelines:
        """What watches kernels at the clocks that the GPU goes through by itself."""
        from wastenot.devices.simulated.timeline import SimulatedTimelines

        if self._timelines is None:
            self._timelines = SimulatedTimelines(self._shared_bench("watch kernels"))
        return self._timelines

    def tracer(self) -> SimulatedTracer:
        """What shows when a switch takes effect."""
        from wastenot.devices.simulated.model_physics import ModelPhysics
        from wastenot.devices.simulated.tracer import SimulatedTracer

        physics = self.engine.physics
        if not isinstance(physics, ModelPhysics):
            raise BadInputError(
                f"{self.identity.name}: a recording cannot switch clocks; measure on sim:NAME or nvidia:INDEX"
            )
        if self._tracer is None:
            self._tracer = SimulatedTracer(self.engine, physics.preset)
        return self._tracer

    def _shared_bench(self, doing: str) -> Bench:
        from wastenot.devices.simulated.bench import Bench
        from wastenot.devices.simulated.model_physics import ModelPhysics

        if not isinstance(self.engine.physics, ModelPhysics):
            raise BadInputError(
                f"{self.identity.name}: a recording has no individual executions; {doing} on sim:NAME or nvidia:INDEX"
            )
        if self._bench is None:
            self._bench = Bench(self.identity, self.engine, self.engine.physics)
        return self._bench

    def truth_at(
        self, kernel: KernelSpec, core_mhz: float, data: Data = "random", temperature_c: float | None = None
    ) -> OperatingPoint:
        """Exact time and power of a kernel at a core clock in effect, whatever any limit says, for tests to compare with.

        Args:
            kernel: the kernel.
            core_mhz: core clock in effect, not necessarily one that can be requested.
            data: what its inputs hold.
            temperature_c: temperature of the GPU; by default that at which the device's parameters are stated.

        Raises:
            BadInputError: the device replays a recording.
            CannotRunError: the kernel is unknown.
        """
        from wastenot.devices.simulated.model_physics import ModelPhysics

        physics = self.engine.physics
        if not isinstance(physics, ModelPhysics):
            raise BadInputError(f"{self.identity.name}: a recording has no clocks in between")
        core = np.array([core_mhz])
        response = physics.response(kernel, core, AUTO, data)
        warmer_c = 0.0 if temperature_c is None else temperature_c - self._reference_c
        power_w = float(response.power_w.sum() + physics.leakage_w_per_c(core)[0] * warmer_c)
        memory_mhz = physics.preset.clocks.memory_mhz[-1]
        return OperatingPoint(float(response.time_s[0]), power_w, core_mhz, memory_mhz, False)

    def truth(self, task: Task, setting: Setting, temperature_c: float | None = None) -> OperatingPoint:
        """Exact time and power of a task at a setting, without noise or sensors, for tests to compare with.

        Args:
            task: the task.
            setting: requested clocks.
            temperature_c: temperature of the GPU; by default that at which the device's parameters are stated.
        """
        reference = self._reference_c if temperature_c is None else temperature_c
        return self.engine.physics.operating_point(task, setting, reference)


class SimulatedTime:
    """The engine's time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def now_s(self) -> float:
        """Seconds since the device was created."""
        engine = self._engine
        if engine.on_wall_time:
            engine.advance(0.0)
        return engine.now_s

    def sleep(self, seconds: float) -> None:
        """Wait; returns at once where time is virtual."""
        if self._engine.on_wall_time:
            wall.sleep(seconds)
        self._engine.advance(seconds)

    @property
    def virtual(self) -> bool:
        """Whether time passes as fast as it can be computed; a running task then needs no new work meanwhile."""
        return not self._engine.on_wall_time


class SimulatedClocks:
    """Clock control of the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock, the core clocks that may be requested with it."""
        return self._engine.physics.supported_clocks()

    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit."""
        return self._engine.physics.power_limits_w()

    def profiles(self) -> tuple[str, ...]:
        """Names of the workload power profiles that may be requested."""
        return self._engine.physics.profiles()

    def refusal(self) -> str | None:
        """``None``: anybody may set the clocks of a simulated GPU."""
        return None

    def request(self, setting: Setting) -> None:
        """Request a setting."""
        self._engine.request(setting)

    def release(self) -> None:
        """Return to the default clocks."""
        self._engine.request(AUTO)

    def claimed(self) -> AbstractContextManager[None]:
        """Nothing: nobody else can set them."""
        return nullcontext()


class SimulatedRun(LapsAtEnd):
    """A task running on the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._marks: list[float] = []

    def feed(self) -> None:
        """Catch up with wall time; a simulated GPU never runs out of work."""
        if self._engine.on_wall_time:
            self._engine.advance(0.0)

    def mark(self) -> None:
        """End the current lap and begin the next."""
        self._engine.advance(0.0)
        self._marks.append(self._engine.progress())

    def end(self) -> None:
        """Stop the task."""
        self._laps = self._engine.stop(self._marks)

    @property
    def completed(self) -> int:
        """Whole calls since the first mark."""
        if not self._marks or self._laps is not None:
            return 0 if self._laps is None else sum(lap.calls for lap in self._laps)
        return max(0, math.floor(self._engine.progress()) - math.ceil(self._marks[0]))


class SimulatedLauncher:
    """Runs tasks on the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def can_run(self, task: Task, setting: Setting) -> bool:
        """Whether the physics covers the task at the setting."""
        try:
            self._engine.physics.check(setting)
            self._engine.physics.operating_point(task, setting, self._engine.temperature_c)
        except (CannotRunError, ClocksRefusedError):
            return False
        return True

    @contextmanager
    def start(self, task: Task) -> Iterator[TaskRun]:
        """Run a task until the context exits."""
        self._engine.start(task)
        run = SimulatedRun(self._engine)
        try:
            yield run
        finally:
            run.end()
