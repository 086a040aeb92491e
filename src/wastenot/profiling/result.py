"""A power profile: the power of a kernel, and every reading that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.errors import DeviceError
from wastenot.origin import Origin

INTERRUPTED = "interrupted"
"""Why a profile stopped early if its user interrupted it."""


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

    mean_w: float
    mean_error_w: float
    share: FloatArray
    power_w: FloatArray
    error_w: FloatArray
    trend_w: tuple[float, ...]
    readings: int
    resolved: bool


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

    channel: Channel
    idle_w: float
    noise_w: float
    steady_w: float
    mean_w: FloatArray
    error_w: FloatArray


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

    counter_w: float
    profile_w: float
    seconds: float

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

    drift_ppm: float
    delay_s: float
    error_s: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Profile:
    """A kernel's power over executions and inside them.

    Attributes:
        kernel: its name.
        before: what ran before it in each run, such as ``40 × gemv-4096``; empty for nothing.
        device: as studies label it.
        model: of the GPU.
        driver: or version of the simulator.
        origin: ``measured`` or ``simulated``.
        group: executions in a unit.
        runs, golden_runs: collected, and those in the bin.
        margin: width of the bin, as a fraction.
        bin_rank: 0 for the fullest bin, 1 for the next, ...
        readings_wanted: of interest in each state, by the guidance.
        unit_begin_s: median begin of each unit from the first execution's; shape (units,).
        unit_time_s: median time of each; shape (units,).
        execution_time_s: time of the last state's unit in every run, golden or not; shape (runs,).
        states: what the profile is about.
        channels: in the order of ``logged``.
        logged: every reading.
        clocks: host against GPU.
        counter: comparison with the energy counter; ``None`` if there is none.
        complete: whether everything asked for was reached.
        stopped: why no more was collected: :data:`INTERRUPTED`, or what the device failed with; empty if it ran to its end.
        notes: what a reader should know.
    """

    kernel: str
    before: str
    device: str
    model: str
    driver: str
    origin: Origin
    group: int
    runs: int
    golden_runs: int
    margin: float
    bin_rank: int
    readings_wanted: int
    unit_begin_s: FloatArray
    unit_time_s: FloatArray
    execution_time_s: FloatArray
    states: tuple[State, ...]
    channels: tuple[ChannelProfile, ...]
    logged: Logged
    clocks: Clocks
    counter: CounterCheck | None
    complete: bool
    stopped: str
    notes: tuple[str, ...]

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
