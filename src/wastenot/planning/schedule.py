"""A schedule: when an iteration changes its setting, given that a setting takes effect late and must stay a while.

    iteration   |forward                      |loss|backward                              |optimizer|
    setting     |A                                |B                                    |C          |A
    requested                                 ^ `early_s` before                   ^ likewise

A plan carries its schedule and, as further *rungs*, ever faster ones down to the default clocks: a running job that turns
out slower than planned steps along them.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from wastenot.core.documents import Finite, Name, NotNegative, Part, Positive, SparsePart
from wastenot.core.setting import Setting
from wastenot.planning.headline import Interval
from wastenot.planning.switching import SwitchTime


class Segment(SparsePart):
    """A stretch of an iteration at one setting; ``None`` is auto.

    Attributes:
        begins: the marker of the job that it begins at or after: ``iteration``, a pass such as ``backward``, or a layer's
            turn in a pass, in order of execution from 0, such as ``backward:11``.
        offset_s: how long after that marker it begins, at this rung's settings.
        core_mhz: core clock.
        memory_mhz: memory clock.
        power_limit_w: power limit.
        early_s: its setting is requested so long before it begins.
        time_s: that it is expected to last.
        energy_j: that it is expected to use.
    """

    begins: Name
    offset_s: NotNegative
    core_mhz: Positive | None
    memory_mhz: Positive | None
    power_limit_w: Positive | None
    early_s: NotNegative
    time_s: Positive
    energy_j: Positive
    profile: Name | None = None

    @property
    def setting(self) -> Setting:
        """The setting as a value."""
        return Setting(self.core_mhz, self.memory_mhz, self.power_limit_w, self.profile)


class Rung(SparsePart):
    """One way to run the iteration, and what is expected of it with its switches; changes are against the default clocks.

    Attributes:
        segments: in order of execution; the first begins with the iteration, at or after its first marker.
        time_s: of an iteration.
        energy_j: of an iteration.
        time_change: T/T_auto − 1.
        energy_change: E/E_auto − 1, negative is saved.
        time_change_interval: that holds the true change with 95 %; of the first rung of plans corrected for noise.
        energy_change_interval: likewise.
    """

    segments: Annotated[tuple[Segment, ...], Field(min_length=1, strict=False)]
    time_s: Positive
    energy_j: Positive
    time_change: Finite
    energy_change: Finite
    time_change_interval: Interval | None = None
    energy_change_interval: Interval | None = None

    @property
    def switches(self) -> int:
        """How often the setting changes in an iteration, iterations following each other."""
        settings = [segment.setting for segment in self.segments]
        return sum(setting != settings[index - 1] for index, setting in enumerate(settings))

    @property
    def shortest_stay_s(self) -> float | None:
        """The shortest stay at a setting between two changes, iterations following each other; ``None`` if none changes."""
        stays: list[tuple[Setting, float]] = []
        for segment in self.segments:
            before = stays.pop()[1] if stays and stays[-1][0] == segment.setting else 0.0
            stays.append((segment.setting, before + segment.time_s))
        if len(stays) > 1 and stays[0][0] == stays[-1][0]:
            stays[0] = (stays[0][0], stays[0][1] + stays.pop()[1])
        return min(seconds for _, seconds in stays) if len(stays) > 1 else None

    @property
    def is_default(self) -> bool:
        """Whether everything is left to the driver."""
        return all(segment.setting.is_auto for segment in self.segments)


class MarkerTime(Part):
    """When a job at the default clocks reaches a marker, from the start of its iteration."""

    name: Name
    after_s: NotNegative


class Schedule(Part):
    """What a plan comes to on a device that takes time to switch.

    Attributes:
        switching: how long the device takes.
        min_dwell_s: the least time between two requests.
        max_slowdown: what a running job must keep; for objectives without one, the slowdown that was expected.
            Less than 0 is a speed-up.
        markers: of an iteration, in order of execution.
        rungs: the schedule itself, then ever faster ones; the last is the default clocks.
        lower_bound_j: no schedule within the slowdown uses less energy in an iteration.
        gap: (energy of the schedule − bound) / energy of the schedule.
    """

    switching: SwitchTime
    min_dwell_s: NotNegative
    max_slowdown: Finite
    markers: Annotated[tuple[MarkerTime, ...], Field(min_length=1, strict=False)]
    rungs: Annotated[tuple[Rung, ...], Field(min_length=1, strict=False)]
    lower_bound_j: Positive
    gap: NotNegative

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = {marker.name for marker in self.markers}
        for index, rung in enumerate(self.rungs):
            unknown = next((each.begins for each in rung.segments if each.begins not in names), None)
            if unknown is not None:
                raise ValueError(f"rung {index} begins a segment at '{unknown}', which is not a marker of the schedule")
        if not self.rungs[-1].is_default:
            raise ValueError("the last rung must be the default clocks")
        return self
