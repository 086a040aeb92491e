"""A power profile: the power of a kernel, and every reading that it rests on."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field, GetPydanticSchema
from pydantic_core import core_schema

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.documents import Count, Finite, Name, NotNegative, Part, Positive
from wastenot.core.errors import DeviceError
from wastenot.core.origin import Origin
from wastenot.core.result import HasPage, by_name
from wastenot.devices.instrument import Channel

INTERRUPTED = "interrupted"
"""Why a profile stopped early if its user interrupted it."""


# The types of fields say what a file of a profile may hold in them, where it has lists for arrays and null for NaN.


def _made(kind: Any, make: Callable[[Any], object]) -> GetPydanticSchema:
    """Read from a file as ``kind`` and made into the field's own type."""
    return GetPydanticSchema(lambda _, handler: core_schema.no_info_after_validator_function(make, handler(kind)))


Numbers = Annotated[FloatArray, _made(list[Finite], np.array)]
Errors = Annotated[FloatArray, _made(list[NotNegative], np.array)]
Times = Annotated[FloatArray, _made(list[Positive], np.array)]
TimesOrNan = Annotated[FloatArray, _made(list[Positive | None], lambda read: np.array(read, dtype=float))]
Fractions = Annotated[FloatArray, _made(list[Annotated[float, Field(ge=0, le=1)]], np.array)]
Clocked = Annotated[FloatArray | None, _made(list[Positive] | None, lambda read: None if read is None else np.array(read))]
OrNan = BeforeValidator(lambda value: math.nan if value is None else value)
FromOne = Annotated[int, Field(ge=1)]


class _ChannelInFile(Part):
    name: Name
    period_s: Positive
    window_s: NotNegative
    delay_s: Finite
    gain: Positive
    noise_w: NotNegative | None
    source: str
    lag_s: NotNegative
    delay_error_s: NotNegative
    delay_drift: Finite
    delay_at_s: Finite
    sample_s: NotNegative


@dataclass(frozen=True, slots=True, eq=False)
class UnitPower:
    """Power of one channel inside one unit.

    Attributes:
        mean_w: over the unit.
        mean_error_w: its standard error.
        share: middles of equal intervals, as fractions of the unit; shape (intervals,).
        power_w: in each interval; shape (intervals,).
        error_w: standard error of each; shape (intervals,).
        trend_w: coefficients, constant first, of the polynomial of degree four through the readings of interest
            (FinGraV §V-B); empty if there are too few.
        readings: number of readings of interest, those taken within the unit.
        resolved: whether the shape is known; if not, only the mean and the band mean anything.
    """

    mean_w: Finite
    mean_error_w: NotNegative
    share: Fractions
    power_w: Numbers
    error_w: Errors
    trend_w: tuple[Finite, ...]
    readings: Count
    resolved: bool

    def __post_init__(self) -> None:
        if not len(self.share) == len(self.power_w) == len(self.error_w):
            raise ValueError(f"{len(self.share)} shares, {len(self.power_w)} powers and {len(self.error_w)} errors")


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A unit that the profile is about.

    Attributes:
        name: ``SSE``, ``SSP``, or ``in context`` after other kernels.
        unit: its number in the run, from 1.
        time_s: median over golden runs.
        channels: by name.
    """

    name: str
    unit: int
    time_s: float
    channels: Mapping[str, UnitPower]

    @property
    def energy_j(self) -> float:
        """Energy of the unit, from its mean total power."""
        return self.time_s * self.channels["total"].mean_w


class _StateInFile(Part):
    name: Name
    unit: FromOne
    time_s: Positive
    energy_j: Finite | None
    channels: dict[str, UnitPower]

    def value(self) -> State:
        return State(self.name, self.unit, self.time_s, self.channels)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelProfile:
    """The power of one channel over the run.

    Attributes:
        channel: with the response that was used.
        idle_w: at rest.
        noise_w: standard deviation of a reading about the fitted power.
        mean_w: of each unit of a run; shape (units,).
        error_w: standard error of each; shape (units,).
        steady_w: mean power in the end of the longest runs.
    """

    channel: Annotated[Channel, _made(_ChannelInFile, lambda one: Channel(**one.model_dump()))]
    idle_w: Annotated[float, OrNan]
    noise_w: Annotated[float, OrNan]
    steady_w: Annotated[float, OrNan]
    mean_w: Numbers
    error_w: Errors

    def __post_init__(self) -> None:
        if len(self.mean_w) != len(self.error_w):
            raise ValueError(f"{len(self.mean_w)} means and {len(self.error_w)} errors")


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """Readings of all runs, one row each; arrays of shape (readings,).

    Attributes:
        channel: index into the profile's channels.
        run: index of the run.
        golden: whether the run is golden.
        moment_s: middle of the reading's window, from the first execution's begin.
        unsynchronised_s: the same without synchronising the clocks.
        unit: that the middle lies in, from 1; 0 for none.
        share: fraction of that unit, from 0 to 1.
        power_w: the reading.
    """

    channel: IndexArray
    run: IndexArray
    golden: IndexArray
    moment_s: FloatArray
    unsynchronised_s: FloatArray
    unit: IndexArray
    share: FloatArray
    power_w: FloatArray


@dataclass(frozen=True, slots=True)
class CounterCheck:
    """The profile compared with the energy counter, over a run that it was not made from.

    Attributes:
        counter_w: mean power by the counter.
        profile_w: the same by the profile.
        seconds: between the steps.
    """

    counter_w: Finite
    profile_w: Finite
    seconds: Positive

    @property
    def difference(self) -> float:
        """The profile relative to the counter, minus 1."""
        return self.profile_w / self.counter_w - 1.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """How the GPU's clock was synchronised with the host's.

    Attributes:
        drift_ppm: by which the GPU's clock runs faster.
        delay_s: from asking for the GPU's clock to its being read.
        error_s: standard error of converted moments.
    """

    drift_ppm: Finite
    delay_s: NotNegative
    error_s: NotNegative


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Profile(HasPage):
    """A kernel's power over executions and inside them.

    Attributes:
        kernel: its name.
        before: what ran before it in each run, such as ``40 × gemv-4096``; empty for nothing.
        alternating: whether that and the kernel alternate until power is steady.
        device: as studies label it.
        model: of the GPU.
        driver: or version of the simulator.
        group: executions in a unit.
        runs, golden_runs: collected, and those in the bin.
        margin: width of the bin, as a fraction.
        bin_rank: 0 for the fullest bin, 1 for the next, ...
        readings_wanted: of interest in each state, by the guidance.
        unit_begin_s: median begin of each unit from the first execution's; shape (units,).
        unit_time_s: median time of each; shape (units,).
        execution_time_s: time of the last state's unit in every run, golden or not, NaN where a run ended before; shape
            (runs,).
        channels: in the order of ``logged``.
        counter: comparison with the energy counter; ``None`` if there is none.
        complete: whether everything asked for was reached.
        stopped: why no more was collected: :data:`INTERRUPTED`, or what the device failed with; empty if it ran to its end.
        notes: what a reader should know.
        unit_counted_mhz: cycles that multiprocessors counted per microsecond of each unit, median over golden runs: the SM
            clock less the cycles that the chip skips under load; shape (units,), or ``None`` where they are not counted.
    """

    drawn_by: ClassVar[str] = "wastenot.profiles.page.page:one_profile_page"

    kernel: Name
    before: str
    alternating: bool
    device: Name
    model: str
    driver: str
    origin: Origin
    group: FromOne
    runs: FromOne
    golden_runs: Count
    margin: Positive
    bin_rank: Count
    readings_wanted: Count
    unit_begin_s: Numbers
    unit_time_s: Times
    execution_time_s: TimesOrNan
    states: Annotated[tuple[Annotated[State, _made(_StateInFile, _StateInFile.value)], ...], Field(min_length=1)]
    channels: Annotated[tuple[ChannelProfile, ...], Field(min_length=1)]
    logged: Logged
    clocks: Clocks
    counter: CounterCheck | None
    complete: bool
    stopped: str
    notes: tuple[str, ...]
    unit_counted_mhz: Clocked = None

    def __repr__(self) -> str:
        channels = ", ".join(channel.channel.name for channel in self.channels)
        runs = f"{self.runs} runs, {self.golden_runs} golden"
        return f"Profile({self.kernel!r} on {self.device!r}, {self.origin}: {runs}; {channels})"

    def state(self, name: str) -> State:
        """The state of this name.

        Raises:
            KeyError: the profile is not about it.
        """
        for state in self.states:
            if state.name == name:
                return state
        raise KeyError(name)

    def counted_mhz(self, state: State) -> float | None:
        """Cycles counted per microsecond in a state; ``None`` where they were not counted."""
        return None if self.unit_counted_mhz is None else float(self.unit_counted_mhz[state.unit - 1])

    def write(self, path: str | os.PathLike[str], *, command: str = "") -> None:
        """Write the profile; see :func:`wastenot.write_profile`."""
        by_name("wastenot.profiles.profile_file:write_profile")(self, path, command=command)

    def raise_if_stopped(self) -> None:
        """Raise what stopped it early, if anything did; for callers that need all of it, or have kept what there is.

        Raises:
            KeyboardInterrupt: its user interrupted it.
            DeviceError: the device failed.
        """
        if self.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        if self.stopped:
            raise DeviceError(f"profile of {self.kernel}: stopped early: {self.stopped}")
