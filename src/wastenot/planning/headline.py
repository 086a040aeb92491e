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
    if validation is not None:
        energy, time, limit = validation.energy_change, validation.time_change, plan.objective.max_slowdown
        defaults = all(row.setting.is_auto for row in plan.assignments)
        verdict = None if limit is None else _verdict(time.interval, limit, defaults)
        return Headline(
            source="validation",
            energy_change=energy.mean,
            energy_change_interval=energy.interval,
            time_change=time.mean,
            time_change_interval=time.interval,
            verdict=verdict,
            missed_by=time.mean - limit if verdict == "missed" and limit is not None else None,
        )
    if expected is not None and plan.objective.corrected:
        return Headline(
            source="promise",
            energy_change=expected.energy_change,
            energy_change_interval=expected.energy_change_interval,
            time_change=expected.time_change,
            time_change_interval=expected.time_change_interval,
        )
    return Headline(
        source="measurements",
        energy_change=predicted.energy_change,
        energy_change_interval=_interval(predicted.energy_change, predicted.energy_change_se),
        time_change=predicted.time_change,
        time_change_interval=_interval(predicted.time_change, predicted.time_change_se),
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
