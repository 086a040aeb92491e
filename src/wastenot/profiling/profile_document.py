"""What a power profile's file says besides its readings (schema ``wastenot.profile/1``), read with validation."""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from wastenot.devices.instrument import Channel
from wastenot.documents import Count, Finite, Name, NotNegative, Part, Positive
from wastenot.origin import Origin
from wastenot.profiling.result import ChannelFound, Clocks, CounterCheck, Inside, Logged, Profile, State

SCHEMA: Final = "wastenot.profile/1"
_STOPPED: Final = "stopped early: "


class _Inside(Part):
    mean_w: Finite
    mean_error_w: NotNegative
    share: list[Annotated[float, Field(ge=0, le=1)]]
    power_w: list[Finite]
    error_w: list[NotNegative]
    trend_w: list[Finite]
    readings: Count
    resolved: bool

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if not len(self.share) == len(self.power_w) == len(self.error_w):
            raise ValueError(f"{len(self.share)} shares, {len(self.power_w)} powers and {len(self.error_w)} errors")
        return self

    def value(self) -> Inside:
        return Inside(
            self.mean_w, self.mean_error_w, np.array(self.share), np.array(self.power_w), np.array(self.error_w),
            tuple(self.trend_w), self.readings, self.resolved,
        )  # fmt: skip


class _State(Part):
    name: Name
    unit: Annotated[int, Field(ge=1)]
    time_s: Positive
    energy_j: Finite | None
    channels: dict[str, _Inside]

    def value(self) -> State:
        return State(self.name, self.unit, self.time_s, {name: inside.value() for name, inside in self.channels.items()})


class _Channel(Part):
    name: Name
    period_s: Positive
    window_s: NotNegative
    delay_s: Finite
    gain: Positive
    noise_w: NotNegative | None
    source: str
    lag_s: NotNegative = 0.0
    delay_error_s: NotNegative = 0.0
    delay_drift: Finite = 0.0
    delay_at_s: Finite = 0.0
    sample_s: NotNegative = 0.0


class _Found(Part):
    channel: _Channel
    idle_w: Finite | None
    noise_w: NotNegative | None
    steady_w: Finite | None
    mean_w: list[Finite]
    error_w: list[NotNegative]

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if len(self.mean_w) != len(self.error_w):
            raise ValueError(f"{len(self.mean_w)} means and {len(self.error_w)} errors")
        return self

    def value(self) -> ChannelFound:
        none = math.nan
        return ChannelFound(
            Channel(**self.channel.model_dump()),
            none if self.idle_w is None else self.idle_w,
            none if self.noise_w is None else self.noise_w,
            none if self.steady_w is None else self.steady_w,
            np.array(self.mean_w),
            np.array(self.error_w),
        )


class _Clocks(Part):
    drift_ppm: Finite
    delay_s: NotNegative
    error_s: NotNegative


class _Counter(Part):
    counter_w: Finite
    profile_w: Finite
    seconds: Positive


class _Provenance(Part):
    wastenot: str
    made_at: str
    command: str


class ProfileDocument(Part):
    """All of a profile but its readings."""

    schema_: Literal["wastenot.profile/1"] = Field(alias="schema")
    provenance: _Provenance
    kernel: Name
    before: str
    device: Name
    model: str
    driver: str
    origin: Origin
    group: Annotated[int, Field(ge=1)]
    runs: Annotated[int, Field(ge=1)]
    golden_runs: Count
    margin: Positive
    bin_rank: Count
    readings_wanted: Count
    unit_begin_s: Annotated[list[Finite], Field(min_length=1)]
    unit_time_s: list[Positive]
    execution_time_s: list[Positive]
    states: Annotated[list[_State], Field(min_length=1)]
    channels: Annotated[list[_Found], Field(min_length=1)]
    clocks: _Clocks
    counter: _Counter | None
    complete: bool
    stopped: str = ""
    notes: list[str]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.unit_begin_s) != len(self.unit_time_s):
            raise ValueError(f"{len(self.unit_begin_s)} begins of units and {len(self.unit_time_s)} times")
        names = [found.channel.name for found in self.channels]
        if len(set(names)) != len(names):
            raise ValueError("two channels have the same name")
        for state in self.states:
            if state.unit > len(self.unit_begin_s):
                raise ValueError(f"state '{state.name}' is of execution {state.unit}; there are {len(self.unit_begin_s)}")
            if unknown := set(state.channels) - set(names):
                raise ValueError(f"state '{state.name}' tells of '{min(unknown)}', which is no channel")
        return self

    def profile(self, logged: Logged) -> Profile:
        """The profile, with its readings."""
        # Files from before there was a field for it have a note of it.
        early = next((note for note in self.notes if note.startswith(_STOPPED)), _STOPPED)
        return Profile(
            kernel=self.kernel,
            before=self.before,
            device=self.device,
            model=self.model,
            driver=self.driver,
            origin=self.origin,
            group=self.group,
            runs=self.runs,
            golden_runs=self.golden_runs,
            margin=self.margin,
            bin_rank=self.bin_rank,
            readings_wanted=self.readings_wanted,
            unit_begin_s=np.array(self.unit_begin_s),
            unit_time_s=np.array(self.unit_time_s),
            execution_time_s=np.array(self.execution_time_s),
            states=tuple(state.value() for state in self.states),
            channels=tuple(found.value() for found in self.channels),
            logged=logged,
            clocks=Clocks(**self.clocks.model_dump()),
            counter=None if self.counter is None else CounterCheck(**self.counter.model_dump()),
            complete=self.complete,
            stopped=self.stopped or early.removeprefix(_STOPPED),
            notes=tuple(note for note in self.notes if note != early),
        )
