"""What a session of profiling has collected and decided, before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.devices.clock_fit import ClockFit
from wastenot.devices.instrument import Channel
from wastenot.devices.protocol import Identity
from wastenot.profiling.collect import TimedRun
from wastenot.profiling.guidance import Guidance


@dataclass(frozen=True, slots=True)
class Stretch:
    """Units of a run that a state is about: one, or all from one on where power swings in steady state.

    Attributes:
        name: of the state.
        first: unit, from 0.
        until: the unit after the last.
    """

    name: str
    first: int
    until: int

    @classmethod
    def at(cls, name: str, unit: int) -> Stretch:
        """One unit."""
        return cls(name, unit, unit + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """Runs and what they are to be taken as.

    Attributes:
        identity: of the device.
        kernel: profiled.
        before: what ran before it, for a person.
        own: its index among the kernels of a run.
        kernels: in a run.
        runs: by the host's clock.
        kinds: of each run, a number; what readings scatter by is told for each kind by itself.
        unsynchronised: the same, as who does not synchronise would take them.
        channels: as they are taken to be, total first.
        clocks: how they were told together.
        guidance: what was called for.
        bin_rank: of the bin that counts.
        group: executions in a unit.
        merged: whether units count as executions in the runs, since what is inside is beyond the sensor.
        units: in a run that was made for the profile; long runs in steady state have more.
        states: that the profile is about.
        notes: what a reader should know.
        complete: whether everything asked for was reached.
        stopped: why no more was collected; empty where it ran to its end.
    """

    identity: Identity
    kernel: str
    before: str
    own: int
    kernels: int
    runs: tuple[TimedRun, ...]
    kinds: tuple[int, ...]
    unsynchronised: tuple[TimedRun, ...]
    channels: tuple[Channel, ...]
    clocks: ClockFit
    guidance: Guidance
    bin_rank: int
    group: int
    merged: bool
    units: int
    states: tuple[Stretch, ...]
    notes: tuple[str, ...]
    complete: bool
    stopped: str

    @property
    def each(self) -> int:
        """Executions in a unit, as runs have them."""
        return 1 if self.merged else self.group
