"""What a run emits on a grid whose carbon intensity changes over the day, and the files that say how it does.

A run that begins at a time of day and takes L at the default clocks takes (1 + s)·L with a plan of slowdown s. Its power is
taken to be even, as that of the same iteration again and again is, so that it emits

    grams  =  energy in kWh · mean intensity from the start until (1 + s)·L later

    g/kWh  ▂▂▂▂▂▂▃▃▃▃▇▇▇▇▇▃▃▂▂
           |--- default ---|         less energy, but more of it in the evening:
           |----- slower -----|      what the slowdown saves may be emitted again

Where nothing is said of when the run begins, it may begin at any time alike, and what counts is the mean of the day: then
the plan that emits least is the one of least energy, as it is at a constant intensity. The clocks of a plan are the same at
all hours. What the GPU draws before and after the run is not counted, nor is anything but this GPU.
"""

from __future__ import annotations

import math
import os
from datetime import datetime, time
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from wastenot.core.documents import Finite, NotNegative, Part, Positive, first_problem
from wastenot.core.errors import BadInputError
from wastenot.planning.headline import Headline, Interval
from wastenot.planning.tariff import DAY_S, J_PER_KWH, Tariff, csv_rows

if TYPE_CHECKING:
    from wastenot.planning.plan import Total

_MINUTES = 24 * 60
_MOST_DAYS = 366
_MOST_G_PER_KWH = 5_000.0  # the dirtiest coal emits 1,500
_LEAST_G_PER_KWH = 1.0  # by its mean, no grid does; who writes less means kilograms
_LOOKED_AT = 9  # slowdowns within an interval at which emissions are looked at
_COLUMNS = ("time", "g_per_kwh")
_REMEDY = "give a number, or a CSV with the columns time (HH:MM, or a date with a time) and g_per_kwh"


class CarbonIntensity(Part):
    """Grams of CO2e for a kilowatt-hour over the day, and when the run is that is to emit little.

    Attributes:
        at_s: times of day at which a value begins, in seconds, ascending from 0; the last holds until midnight.
        g_per_kwh: these values.
        start_s: time of day at which the run begins; ``None`` for any time alike.
        run_s: that the run takes at the default clocks; given where its start is.
    """

    at_s: Annotated[tuple[NotNegative, ...], Field(strict=False, min_length=1, max_length=_MINUTES)]
    g_per_kwh: Annotated[tuple[NotNegative, ...], Field(strict=False, min_length=1, max_length=_MINUTES)]
    start_s: Annotated[float, Field(ge=0.0, lt=DAY_S)] | None = None
    run_s: Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> CarbonIntensity:
        if len(self.at_s) != len(self.g_per_kwh):
            raise ValueError("as many times as values are needed")
        if self.at_s[0] != 0.0 or self.at_s[-1] >= DAY_S or (np.diff(self.at_s) <= 0.0).any():
            raise ValueError("times of day must be ascending, from 0, and below 86,400 s")
        if (self.start_s is None) != (self.run_s is None):
            raise ValueError("start_s and run_s are only meaningful together")
        if max(self.g_per_kwh) > _MOST_G_PER_KWH:
            raise ValueError(f"{max(self.g_per_kwh):g} g/kWh is more than any grid emits; is that grams per MWh?")
        if not self.mean(0.0) > 0.0:
            raise ValueError("the grid emits nothing during the run: there is nothing to save")
        return self

    def mean(self, time_change: float) -> float:
        """Mean intensity, in g/kWh, while a run lasts that is so much slower than at the default clocks."""
        lasts_s = DAY_S if self.run_s is None else (1.0 + time_change) * self.run_s
        grid = Tariff(np.array(self.at_s), np.array(self.g_per_kwh), DAY_S, self.start_s or 0.0)
        return float(grid.mean(np.zeros(1), np.array([lasts_s]))[0])

    def change(self, time_change: float, energy_change: float) -> float:
        """Change of what a run emits, by the changes of its time and energy."""
        return (1.0 + energy_change) * self.mean(time_change) / self.mean(0.0) - 1.0

    def interval(self, time_change: Interval, energy_change: Interval) -> Interval:
        """What the change of emissions is within, where those of time and energy are within intervals of the same level.

        The errors of both are taken to go together in the worst way, so that it is rather too wide.
        """
        means = [self.mean(float(each)) / self.mean(0.0) for each in np.linspace(*time_change, _LOOKED_AT)]
        return (1.0 + energy_change[0]) * min(means) - 1.0, (1.0 + energy_change[1]) * max(means) - 1.0

    @property
    def when(self) -> str:
        """The run, in words."""
        if self.start_s is None or self.run_s is None:
            return "averaged over the day"
        hours, minutes = divmod(int(self.start_s) // 60, 60)
        return f"of a run of {self.run_s / 3600.0:.4g} h from {hours:02d}:{minutes:02d}"


class Carbon(Part):
    """What a plan's headline is worth in CO2e, with its energy beside it.

    Attributes:
        g_per_kwh: mean intensity at the default clocks, while the run lasts or over the day.
        per: what the next are of: the run, or the work that the GPU does in a day at the default clocks.
        baseline_g: of CO2e, at the default clocks.
        saved_g: of them.
        saved_g_interval: holds the true saving with 95 %; ``None`` where nothing says how noisy the numbers are.
        saved_j: energy saved.
        change: of the emissions.
        change_interval: likewise.
    """

    g_per_kwh: Positive
    per: Literal["run", "day"]
    baseline_g: Positive
    saved_g: Finite
    saved_g_interval: Interval | None
    saved_j: Finite
    change: Finite
    change_interval: Interval | None


def carbon_of(intensity: CarbonIntensity, headline: Headline, baseline: Total) -> Carbon:
    """What a plan emits and saves.

    Args:
        intensity: of the grid, and when the run is.
        headline: of the plan.
        baseline: an iteration at the default clocks.
    """
    lasts_s = DAY_S if intensity.run_s is None else intensity.run_s
    energy_j = baseline.energy_j * lasts_s / baseline.time_s
    grams = energy_j / J_PER_KWH * intensity.mean(0.0)
    change = intensity.change(headline.time_change, headline.energy_change)
    interval = None
    if headline.time_change_interval is not None and headline.energy_change_interval is not None:
        interval = intensity.interval(headline.time_change_interval, headline.energy_change_interval)
    return Carbon(
        g_per_kwh=intensity.mean(0.0),
        per="day" if intensity.run_s is None else "run",
        baseline_g=grams,
        saved_g=0.0 - change * grams,
        saved_g_interval=None if interval is None else (-interval[1] * grams, -interval[0] * grams),
        saved_j=0.0 - headline.energy_change * energy_j,
        change=change,
        change_interval=interval,
    )


def carbon_intensity(
    source: float | str | os.PathLike[str], run_at: str | None = None, run_time_s: float | None = None
) -> CarbonIntensity:
    """The carbon intensity of a grid, and when the run is that is to emit little.

    Args:
        source: grams of CO2e for a kilowatt-hour: a number, or a CSV with the columns ``time`` and ``g_per_kwh``. Each value
            holds until the next time of day, the last until the first of the next day. Of a file that has dates with its
            times, values at the same time of day are averaged.
        run_at: time of day at which the run begins, such as ``22:00``, by the clock of the file.
        run_time_s: that the run takes at the default clocks.

    Raises:
        BadInputError: the file cannot be read or makes no sense, naming the line; or so with another value.
    """
    try:
        by_minute = {0: float(source)} if not isinstance(source, os.PathLike) else read_day(source)
    except ValueError:
        by_minute = read_day(str(source))
    start_s = None if run_at is None else 60.0 * _minute(run_at, "`run_at`")[0]
    if run_time_s is not None and not 1.0 <= run_time_s <= _MOST_DAYS * DAY_S:
        raise BadInputError(f"`run_time` {run_time_s:g} s: must be from 1 s to {_MOST_DAYS} days")
    if (start_s is None) != (run_time_s is None):
        raise BadInputError(
            "`run_at` and `run_time` are only meaningful together: give both, or neither for any time of day"
        )
    if 0.0 < max(by_minute.values()) < _LEAST_G_PER_KWH:
        most = max(by_minute.values())
        raise BadInputError(
            f"`carbon_g_per_kwh` {source}: {most:g} g/kWh is less than any grid emits; kilograms? multiply by 1000"
        )
    try:
        return CarbonIntensity(
            at_s=tuple(60.0 * minute for minute in by_minute),
            g_per_kwh=tuple(by_minute.values()),
            start_s=start_s,
            run_s=run_time_s,
        )
    except ValidationError as error:
        _, problem = first_problem(error)
        raise BadInputError(f"`carbon_g_per_kwh` {source}: {problem[0].lower()}{problem[1:]}; {_REMEDY}") from error


def read_day(path: str | os.PathLike[str]) -> dict[int, float]:
    """Grams of CO2e for a kilowatt-hour by the minute of the day from which on they hold, ascending from 0.

    Raises:
        BadInputError: the file cannot be read, or a line of it makes no sense.
    """
    rows = csv_rows(path, _REMEDY)
    where, head = next(rows, (str(path), []))
    names = [each.strip().lower() for each in head]
    if missing := [each for each in _COLUMNS if each not in names]:
        raise BadInputError(f"{where}: names no column {' and no column '.join(missing)}; {_REMEDY}")
    place = [names.index(each) for each in _COLUMNS]
    values: dict[int, list[float]] = {}
    dated: bool | None = None
    for where, row in rows:
        if len(row) <= max(place):
            raise BadInputError(f"{where}: has {len(row)} fields, but the header has {len(names)}")
        text, number = (row[each].strip() for each in place)
        (minute, has_date), value = _minute(text, where), _grams(number, where)
        dated = has_date if dated is None else dated
        if dated != has_date:
            raise BadInputError(f"{where}: time '{text}': either all times have a date, or none")
        if not dated and minute in values:
            raise BadInputError(f"{where}: time '{text}': appears twice")
        values.setdefault(minute, []).append(value)
    if not values:
        raise BadInputError(f"{path}: has no values; {_REMEDY}")
    day = {minute: math.fsum(each) / len(each) for minute, each in sorted(values.items())}
    return day if 0 in day else {0: day[max(day)], **day}


def _minute(text: str, where: str) -> tuple[int, bool]:
    """The minute of the day of a time, and whether it has a date."""
    for read in (time.fromisoformat, datetime.fromisoformat):
        try:
            found = read(text)
        except ValueError:
            continue
        if ":" in text:
            return 60 * found.hour + found.minute, isinstance(found, datetime)
    raise BadInputError(f"{where}: time '{text}': must be HH:MM such as 18:30, or a date with one such as 2026-01-31T18:30")


def _grams(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= _MOST_G_PER_KWH:
        raise BadInputError(
            f"{where}: g_per_kwh '{text}': must be grams of CO2e per kWh, a number from 0 to {_MOST_G_PER_KWH:,.0f}"
        )
    return value
