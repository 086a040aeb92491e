"""The numbers that a plan is known by: measured again where it was validated, else promised, else as measured."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from wastenot.core.documents import Finite, NotNegative, Part

if TYPE_CHECKING:
    from wastenot.planning.plan import Plan

LEVEL = 0.95
"""Probability that a true change is within its interval."""

Interval = Annotated[tuple[Finite, Finite], Field(strict=False)]
HeadlineSource = Literal["validation", "promise", "measurements"]
Verdict = Literal["kept", "undecided", "missed"]


class Headline(Part):
    """Energy and time change of a plan, and whether its slowdown was kept.

    Attributes:
        source: ``validation``: measured again, interleaved with auto; ``promise``: expected, corrected for noise and the
            luck of choosing among noisy numbers; ``measurements``: the numbers that the plan was chosen by, as measured.
        energy_change_interval: that holds the true change with 95 %; ``None`` where nothing says how noisy the numbers are.
        time_change_interval: likewise.
        verdict: of a validation, whether the slowdown was kept: ``kept``, the whole interval is within the limit;
            ``missed``, none of it is; ``undecided``, the limit lies in the interval. ``None`` without a validation or limit.
        missed_by: by how much of the baseline's time the mean is over the limit, where missed.
    """

    source: HeadlineSource
    energy_change: Finite
    energy_change_interval: Interval | None
    time_change: Finite
    time_change_interval: Interval | None
    verdict: Verdict | None = None
    missed_by: NotNegative | None = None


def headline_of(plan: Plan) -> Headline:
    """The headline of a plan."""
    validation, expected, predicted = plan.validation, plan.expected, plan.predicted
    source: HeadlineSource = "measurements"
    verdict: Verdict | None = None
    missed_by = None
    energy, time = predicted.energy_change, predicted.time_change
    intervals = _interval(energy, predicted.energy_change_se), _interval(time, predicted.time_change_se)
    if validation is not None:
        source, limit = "validation", plan.objective.max_slowdown
        energy, time = validation.energy_change.mean, validation.time_change.mean
        intervals = validation.energy_change.interval, validation.time_change.interval
        if limit is not None:
            verdict = _verdict(intervals[1], limit, all(row.setting.is_auto for row in plan.assignments))
            missed_by = time - limit if verdict == "missed" else None
    elif expected is not None and plan.objective.corrected:
        source, energy, time = "promise", expected.energy_change, expected.time_change
        intervals = expected.energy_change_interval, expected.time_change_interval
    return Headline(
        source=source,
        energy_change=energy,
        energy_change_interval=intervals[0],
        time_change=time,
        time_change_interval=intervals[1],
        verdict=verdict,
        missed_by=missed_by,
    )


def _verdict(interval: tuple[float, float], limit: float, defaults: bool) -> Verdict:
    """Whether a limit was kept; the default clocks are no slower than themselves, whatever the noise of measuring twice."""
    low, high = interval
    if high <= limit or (defaults and limit >= 0.0):
        return "kept"
    return "missed" if low > limit else "undecided"


def _interval(value: float, error: float | None) -> tuple[float, float] | None:
    if error is None:
        return None
    reach = NormalDist().inv_cdf(0.5 + 0.5 * LEVEL) * error
    return value - reach, value + reach
