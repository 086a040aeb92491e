"""What the figures of power profiles share: readings to draw, units of time, colours of channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.pages.figure import Figure, specification_of
from wastenot.pages.optional_imports import load
from wastenot.profiles.page.description import channel_names, subtitle
from wastenot.profiles.result import Profile

WIDTH = 935
BLUE, RED, FAINT = "#2f6fde", "#d6483b", "#7a8699"
FIT_COLOR = "#e08a00"
# Total power is blue everywhere; components take the other categories of the theme, in the order of the device's channels.
_COLORS = ("#2f6fde", "#e08a00", "#0f9b8e", "#b04bb8", "#d6483b", "#8a9a00", "#7c5cff")
MOST_POINTS = 2400
_DEGREE = 4  # of a trend
_MARGIN = 0.07  # of a run's time, shown before and after it


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A suitable unit of time for a figure; ``factor`` of them make a second."""

    name: str
    factor: float

    @classmethod
    def of(cls, span_s: float) -> TimeUnit:
        """Microseconds, milliseconds or seconds, by the length of the time axis."""
        return cls("µs", 1e6) if span_s < 1e-3 else cls("ms", 1e3) if span_s < 1.0 else cls("s", 1.0)


def color_of(name: str, names: tuple[str, ...]) -> str:
    """The colour of a channel."""
    return _COLORS[names.index(name) % len(_COLORS)]


def profile_figure(profile: Profile, name: str, title: str, note: str, chart: Any | None) -> Figure:
    """A figure of one profile; the subtitle says what was profiled and where the numbers come from."""
    return Figure(name, title, subtitle(profile), note, specification_of(chart))


def span_of(profile: Profile) -> tuple[float, float]:
    """The time span drawn of a run, in seconds: with a margin, or as far as a sensor's window reaches."""
    end_s = float(profile.unit_begin_s[-1] + profile.unit_time_s[-1])
    window_s = max((each.channel.span_s for each in profile.channels if len(each.mean_w)), default=0.0)
    before_s = max(_MARGIN * end_s, 0.5 * window_s)
    return -before_s, end_s + before_s


def drawn_readings(
    profile: Profile, name: str, span_s: tuple[float, float], *, unsynchronised: bool = False, most: int = MOST_POINTS
) -> tuple[IndexArray, int]:
    """Indices of a channel's readings within a time span, thinned by whole runs to ``most``, and the number of all."""
    logged = profile.logged
    index = channel_names(profile).index(name)
    moment = logged.unsynchronised_s if unsynchronised else logged.moment_s
    rows = np.flatnonzero((logged.channel == index) & (moment >= span_s[0]) & (moment <= span_s[1]))
    total = len(rows)
    if total > most:
        run, fraction = logged.run[rows], most / total  # of the runs, evenly over the session
        rows = rows[np.floor((run + 1) * fraction) > np.floor(run * fraction)]
    return rows, total


def points(
    unit: TimeUnit, moment_s: FloatArray, power_w: FloatArray, digits: int = 1, **more: Sequence[object] | IndexArray
) -> list[dict[str, object]]:
    """Rows of power over time, rounded to ``digits``; ``more`` are further columns."""
    return [
        {"t": round(float(unit.factor * t), 5), "p": round(float(p), digits), **dict(zip(more, rest, strict=True))}
        for t, p, *rest in zip(moment_s, power_w, *more.values(), strict=True)
    ]


def with_error(power: float, error: float) -> dict[str, float]:
    """A power and the ends of its error, to two digits."""
    return {name: round(float(each), 2) for name, each in (("p", power), ("low", power - error), ("high", power + error))}


def polynomial_trend(x: FloatArray, power_w: FloatArray, at: FloatArray) -> FloatArray | None:
    """A polynomial of degree 4 fitted to readings (FinGraV §V-B), evaluated at ``at``; ``None`` if there are too few."""
    if len(x) <= 2 * _DEGREE:
        return None
    return np.asarray(np.polynomial.Polynomial.fit(x, power_w, _DEGREE)(at))


def point_style(rows: int, largest: int) -> dict[str, float]:
    """Size and opacity of points: the more there are, the smaller."""
    return {"size": 26.0, "opacity": 0.85} if rows < largest // 6 else {"size": 16.0, "opacity": 0.7}


def altair() -> Any:
    """Altair."""
    return load("altair")
