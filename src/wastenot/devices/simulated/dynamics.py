"""A simulated GPU's behaviour within and between executions, as presets describe it: all that steady means leave out."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from wastenot.core.arrays import FloatArray
from wastenot.core.documents import NotNegative, Positive
from wastenot.devices.simulated.hardware import GaugeModel, PresetPart


class Firmware(PresetPart):
    """How firmware responds to heavy kernels.

    Attributes:
        heavy_w: steady power of a kernel from which it responds.
        boost: fraction by which power above idle exceeds steady power until the firmware responds.
        reaction_s: time from the first heavy execution to the response.
        drop: fraction by which it then lowers power.
        recover_s: time constant with which that decays.
    """

    heavy_w: Positive
    boost: NotNegative
    reaction_s: NotNegative
    drop: Annotated[float, Field(ge=0, lt=1)]
    recover_s: Positive


class Shape(PresetPart):
    """How power above idle varies over an execution, at equally spaced moments; scaled to a mean of 1.

    Attributes:
        core: power of arithmetic and on-chip traffic.
        memory: power of device memory.
    """

    core: Annotated[tuple[NotNegative, ...], Field(min_length=2)]
    memory: Annotated[tuple[NotNegative, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _not_nothing(self) -> Self:
        if not (sum(self.core) > 0 and sum(self.memory) > 0):
            raise ValueError("a shape must not be 0 everywhere")
        return self


DEFAULT_SHAPE = Shape(core=(0.75, 1.0, 1.1, 1.1, 1.05, 0.95, 0.7), memory=(1.2, 1.05, 1.0, 1.0, 1.0, 0.95, 0.9))


class Component(PresetPart):
    """A component's fraction of each part of the power; see :class:`Parts`."""

    base: NotNegative
    core: NotNegative
    memory: NotNegative


class GpuClockModel(PresetPart):
    """The GPU's clock against the host's: gpu = offset + (1 + drift) · host, and the cost of reading it.

    Attributes:
        offset_s: GPU time at host time 0.
        drift_ppm: how much faster it runs, in parts per million.
        read_s: minimum time of a round trip.
        read_jitter_s: mean of the exponentially distributed additional time, half of it each way.
        resolution_s: resolution of its readings.
    """

    offset_s: float = 0.0
    drift_ppm: Annotated[float, Field(gt=-1e5, lt=1e5)] = 0.0
    read_s: NotNegative = 0.0
    read_jitter_s: NotNegative = 0.0
    resolution_s: NotNegative = 0.0

    def at(self, host_s: FloatArray | float) -> FloatArray:
        """Its readings at moments of the host's clock."""
        gpu_s = self.offset_s + (1.0 + 1e-6 * self.drift_ppm) * np.asarray(host_s, dtype=float)
        return np.asarray(np.floor(gpu_s / self.resolution_s) * self.resolution_s if self.resolution_s else gpu_s)


class CycleClockModel(PresetPart):
    """Counting the core clock's cycles in the stream of kernels.

    Attributes:
        cost_s: time that a stamp takes.
        resolution_s: resolution of the GPU's timer that stamps are read beside.
        multiprocessors: number of multiprocessors whose cycles are counted.
        skipped: (core clock, fraction of its cycles that the chip skips under heavy kernels on tensor cores), by ascending
            clock, interpolated in between; lighter kernels there skip the fraction at the lowest one at every clock; empty
            for none.
        heavy: power, relative to the limit, beyond which a kernel is heavy, by what it would draw at the highest clock.
        traits_mhz: clock up to which kernels' times have the skipped cycles in them; beyond, more of them make heavy kernels
            slower than their traits say.
        look_s: time over which the clock in effect is then looked at, between groups of calls.
    """

    cost_s: NotNegative = 1.6e-6
    resolution_s: Positive = 32e-9
    multiprocessors: Annotated[int, Field(ge=1)] = 1
    skipped: tuple[tuple[Positive, Annotated[float, Field(ge=0, lt=1)]], ...] = ()
    heavy: Positive = 1.4
    traits_mhz: Positive = 1700.0
    look_s: Positive = 8e-6

    def counted(self, core_mhz: FloatArray, *, heavy: bool) -> FloatArray:
        """Fraction of cycles that is left while tensor cores work, by core clock.

        Args:
            core_mhz: core clocks in effect.
            heavy: whether the kernel is heavy.
        """
        if not self.skipped:
            return np.ones_like(core_mhz)
        clocks_mhz, fractions = zip(*self.skipped, strict=True)
        return np.asarray(
            1.0 - np.interp(core_mhz if heavy else np.full_like(core_mhz, clocks_mhz[0]), clocks_mhz, fractions)
        )

    def left_of_traits(self, core_mhz: FloatArray) -> FloatArray:
        """Ratio of the clock that a heavy kernel runs at to that which its traits are applied at, by core clock."""
        settled = self.counted(np.array([self.traits_mhz]), heavy=True)
        return np.minimum(self.counted(core_mhz, heavy=True) / settled, 1.0)


class Dynamics(PresetPart):
    """Everything about executions that steady means leave out.

    Attributes:
        fast_s, slow_s: time constants of the two lags.
        slow_share: fraction of power that follows the slow one.
        warm_up: fractions by which the first executions from rest take longer, whichever kernel they run (FinGraV §IV-A).
        jitter: standard deviation of the logarithm of an execution's time.
        run_jitter: the same for what all executions of a run have in common.
        outlier_chance: probability that a run is slower.
        outlier_slower: by which fraction.
        carry_over_share: fraction of the preceding kernel's higher power that a lighter kernel draws on top of its own.
        carry_over_s: time constant with which that decays.
        firmware: its response to heavy kernels; ``None`` for none.
        shapes: by operation; ``default`` for the others.
        components: by name; empty for a GPU that reports only its total power.
        logger: a channel for total power with the GPU's own timestamps; ``None`` where the power gauge is polled.
        memory: the gauge of memory power; ``None`` for none.
        gpu_clock: the GPU's clock.
        cycle_clock: how cycles of the core clock are counted.
    """

    fast_s: Positive = 20e-6
    slow_s: Positive = 1e-3
    slow_share: Annotated[float, Field(ge=0, le=1)] = 0.3
    warm_up: tuple[NotNegative, ...] = (0.30, 0.12, 0.05)
    jitter: NotNegative = 0.002
    run_jitter: NotNegative = 0.004
    outlier_chance: Annotated[float, Field(ge=0, lt=1)] = 0.1
    outlier_slower: NotNegative = 0.12
    carry_over_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    carry_over_s: Positive = 1e-3
    firmware: Firmware | None = None
    shapes: dict[str, Shape] = Field(default_factory=lambda: {"default": DEFAULT_SHAPE})
    components: dict[str, Component] = Field(default_factory=dict)
    logger: GaugeModel | None = None
    memory: GaugeModel | None = None
    gpu_clock: GpuClockModel = GpuClockModel(
        offset_s=1234.5, drift_ppm=20.0, read_s=8e-6, read_jitter_s=3e-6, resolution_s=1e-6
    )
    cycle_clock: CycleClockModel = CycleClockModel()

    @model_validator(mode="after")
    def _default_shape(self) -> Self:
        if "default" not in self.shapes:
            raise ValueError("shapes: 'default' is missing")
        return self

    def shape_of(self, op: str) -> Shape:
        """The shape of an operation."""
        return self.shapes.get(op, self.shapes["default"])

    def quiet(self) -> Dynamics:
        """The same without randomness."""
        return self.model_copy(update={"jitter": 0.0, "run_jitter": 0.0, "outlier_chance": 0.0})
