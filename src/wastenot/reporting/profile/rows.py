"""What the figures of power profiles have in common: readings as rows, units of time, colours, channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import TOTAL
from wastenot.profiling.result import Profile
from wastenot.reporting.figure import Figure
from wastenot.reporting.optional_imports import load
from wastenot.reporting.profile.words import runs_words, subject

WIDTH = 935
BLUE, RED, FAINT = "#2f6fde", "#d6483b", "#7a8699"
FOUND_COLOR = "#e08a00"
# Total is blue everywhere; components take the theme's other categories, in the order of the device's channels.
_COLORS = ("#2f6fde", "#e08a00", "#0f9b8e", "#b04bb8", "#d6483b", "#8a9a00", "#7c5cff")
MOST_POINTS = 2400
_ROOM = 0.07  # of a run's time, shown before and after it


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of time that suits a figure: ``factor`` of it are a second."""

    name: str
    factor: float

    @classmethod
    def of(cls, span_s: float) -> TimeUnit:
        """Milliseconds, or microseconds where that is long."""
        return cls("µs", 1e6) if span_s < 1e-3 else cls("ms", 1e3) if span_s < 1.0 else cls("s", 1.0)


def color_of(name: str, names: tuple[str, ...]) -> str:
    """The colour of a channel."""
    return _COLORS[names.index(name) % len(_COLORS)]


def figure_of(profile: Profile, name: str, title: str, note: str, chart: Any | None) -> Figure:
    """A figure of one profile; its subtitle says of what, and where the numbers come from."""
    subtitle = f"{subject(profile)} on {profile.device} · {runs_words(profile)} · {profile.origin} numbers"
    return Figure(name, title, subtitle, note, specification_of(chart))


def specification_of(chart: Any | None) -> dict[str, Any] | None:
    """The specification of an Altair chart, without colours of its own."""
    if chart is None:
        return None
    specification: dict[str, Any] = chart.to_dict()
    specification.pop("config", None)
    return specification


def span_of(profile: Profile) -> tuple[float, float]:
    """Time that is drawn of a run: with some before and after, or what a sensor's window reaches."""
    end_s = float(profile.unit_begin_s[-1] + profile.unit_time_s[-1])
    window_s = max((found.channel.span_s for found in profile.channels if len(found.mean_w)), default=0.0)
    before_s = max(_ROOM * end_s, 0.5 * window_s)
    return -before_s, end_s + before_s


def chosen_rows(
    profile: Profile, name: str, span_s: tuple[float, float], *, unsynchronised: bool = False, most: int = MOST_POINTS
) -> tuple[IndexArray, int]:
    """Readings of a channel within some time, and how many there are of it: whole runs are left out if they are too many."""
    logged = profile.logged
    index = next(place for place, found in enumerate(profile.channels) if found.channel.name == name)
    moment = logged.unsynchronised_s if unsynchronised else logged.moment_s
    rows = np.flatnonzero((logged.channel == index) & (moment >= span_s[0]) & (moment <= span_s[1]))
    found = len(rows)
    if found > most:
        rows = rows[_spread(logged.run[rows], found, most)]
    return rows, found


def _spread(run: IndexArray, found: int, most: int) -> FloatArray:
    """Every so-manieth run: the same share of each stretch of the session."""
    share = most / found
    return np.asarray(np.floor((run + 1) * share) > np.floor(run * share))


def trend(share: FloatArray, power_w: FloatArray, at: FloatArray, degree: int = 4) -> FloatArray | None:
    """The line of degree four through readings (FinGraV §V-B); ``None`` where they are too few."""
    if len(share) <= 2 * degree:
        return None
    return np.asarray(np.polynomial.Polynomial.fit(share, power_w, degree)(at))


def marks(rows: int, largest: int) -> dict[str, float]:
    """Size and opacity of points: the more there are, the smaller."""
    return {"size": 26.0, "opacity": 0.85} if rows < largest // 6 else {"size": 16.0, "opacity": 0.7}


def power_axis(alt: Any, title: str, low_w: float, high_w: float) -> Any:
    """The axis of power, from near the lowest to near the highest."""
    room = 0.06 * max(high_w - low_w, 1.0)
    return alt.Scale(domain=[max(low_w - room, 0.0), high_w + room], nice=True)


def total_of(profile: Profile) -> bool:
    """Whether total power may be drawn over time."""
    return any(found.channel.name == TOTAL and len(found.mean_w) for found in profile.channels)


def altair() -> Any:
    """Altair."""
    return load("altair")
