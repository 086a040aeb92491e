"""What sweeps came to: their grids together, what a search leaves open, and what nobody wrote down."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from wastenot.core.setting import AUTO, Setting
from wastenot.study.coverage import Coverage, Intent, RecordedSweep, coverage_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOW, HIGH, OTHER = (Setting(clock, 9501.0) for clock in (600.0, 1500.0, 900.0))
NOT_B = frozenset({("b", LOW)})


def swept(kind, *settings, finished=True, **more):
    return RecordedSweep(Intent(kind, settings, **more), NOW, NOW if finished else None)


def points(*settings, kernels="ab"):
    return {(kernel, setting) for kernel in kernels for setting in (AUTO, *settings)}


@pytest.mark.parametrize(
    ("recorded", "measured", "found"),
    [
        ([], points(LOW), Coverage("given", 4)),
        ([swept("grid", LOW, HIGH)], points(LOW, HIGH), Coverage("grid", 6, 6, True, True)),
        (
            [swept("grid", LOW, HIGH, finished=False, command="c")],
            points(LOW) | {("a", HIGH)},
            Coverage("grid", 5, 6, False, False, "c"),
        ),
        # A point that the device cannot run is not missing; one that was measured nevertheless is there.
        ([swept("grid", LOW, excluded=NOT_B)], points(LOW) - NOT_B, Coverage("grid", 3, 3, True, True)),
        ([swept("grid", LOW, excluded=NOT_B)], points(LOW), Coverage("grid", 4, 4, True, True)),
        # A coarse grid that is done and a finer one that is not: the points of both are intended.
        (
            [swept("grid", LOW), swept("grid", LOW, HIGH, OTHER, finished=False)],
            points(LOW) | {("a", OTHER)},
            Coverage("grid", 5, 8, False, False),
        ),
        ([swept("search", LOW, HIGH)], points() | {("a", LOW)}, Coverage("search", 3, 6, False, True)),
        ([swept("search", LOW, HIGH)], points(LOW, HIGH), Coverage("search", 6, 6, True, True)),
        ([swept("search", LOW, HIGH), swept("grid", LOW)], points(LOW), Coverage("grid", 4, 6, False, True)),
        ([swept("auto")], points(), Coverage("auto", 2, 2, True, True)),
        # The finalists measured again add nothing to what was intended, and take nothing from it.
        (
            [swept("grid", LOW, HIGH), swept("refine", OTHER, finished=False)],
            points(LOW, HIGH) | {("a", OTHER)},
            Coverage("grid", 7, 7, True, True),
        ),
        ([swept("refine", LOW)], points() | {("a", LOW)}, Coverage("refine", 3, finished=True)),
        # Points that no recorded sweep brought: a file, or a sweep of an earlier version.
        ([swept("refine", LOW)], points(LOW, HIGH), Coverage("given", 6)),
        ([swept("auto")], points(LOW), Coverage("given", 4)),
    ],
)  # fmt: skip
def test_coverage(recorded, measured, found):
    assert coverage_of(recorded, "ab", measured) == found


@pytest.mark.parametrize(
    ("coverage", "shares"),
    [
        (Coverage("grid", 5, 6, False, False), True),
        (Coverage("search", 5, 6, False, True), False),
        (Coverage("search", 6, 6, True, True), True),
        (Coverage("refine", 5), False),
        (Coverage("given", 5), True),
        (Coverage("auto", 2, 2, True, True), True),
    ],
)
def test_kernels_share_settings_unless_each_was_measured_at_its_own(coverage, shares):
    assert coverage.shares_settings is shares
