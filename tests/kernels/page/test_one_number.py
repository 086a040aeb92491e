"""Plan, comparison, curve and page of one study agree to the last digit, and say the same of a strict plan."""

import numpy as np
import pytest

from testbed.small_sweeps import make_sweep
from wastenot.kernels.page.story import story_of
from wastenot.kernels.page.summary import strictness_note
from wastenot.kernels.page.verdict import is_default
from wastenot.kernels.plan.overview import make_overview
from wastenot.pages.formatting import percent
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner, plan
from wastenot.study.sweep import Sweep

CLOCKS = (600, 900, 1200, 1500, 1800, 2000)


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    """Ten kernels between compute and memory bound, two readings of 0.3 % noise at seven settings."""
    rng = np.random.default_rng(11)
    rows = []
    for index, share in enumerate(np.linspace(0.05, 1.0, 10)):
        for clock in (None, *CLOCKS):
            ghz = (clock or 2000) / 2000
            time = 1e-3 * (share / ghz + (1 - share))
            power = 100 + 250 * ghz**2 * (0.4 + 0.6 * share)
            for _ in range(2):
                noisy = time * (1 + 0.003 * rng.standard_normal())
                rows.append((f"k{index}", clock, None, noisy, noisy * power * (1 + 0.003 * rng.standard_normal())))
    return make_sweep(rows)


@pytest.mark.parametrize("slowdown", [0.01, pytest.param(0.05, marks=pytest.mark.slow)])
def test_one_number_in_every_place(sweep, slowdown):
    made = plan(sweep, max_slowdown=slowdown)
    assert made.headline.source == "promise"
    headline = made.headline.energy_change, made.headline.time_change
    assert headline == (made.expected.energy_change, made.expected.time_change)
    assert headline == (made.applicable.rows[0].energy_change, made.applicable.rows[0].time_change)
    overview = make_overview(sweep, made)
    rows = [
        row
        for row in overview.comparison.rows
        if (row.granularity, row.scope, row.objective.max_slowdown, row.objective.kind)
        == ("kernel", "global", slowdown, "waste")
    ]
    assert [(row.energy_change, row.time_change) for row in rows] == [headline]
    curve = next(each for each in overview.curves if (each.granularity, each.scope) == ("kernel", "global"))
    at = [point for point in curve.points if point.max_slowdown == pytest.approx(slowdown)]
    assert [point.energy_change for point in at] == [pytest.approx(headline[0], abs=1e-12)]
    story = story_of(made, None)
    today = made.today
    first = f"save {percent(-today.energy_change)} of the energy" if today.sets_something else "Nothing to apply today"
    assert first in story.sentence and f"{percent(-headline[0])} saved" in story.bound


def test_as_measured_is_the_optimum_of_the_numbers_and_promises_nothing(sweep):
    raw = plan(sweep, max_slowdown=0.02, as_measured=True)
    assert (raw.headline.source, raw.objective.confidence, raw.certificate.gap) == ("measurements", None, 0.0)
    promised = plan(sweep, max_slowdown=0.02)
    assert promised.potential.energy_change == raw.predicted.energy_change
    assert raw.predicted.energy_change <= promised.predicted.energy_change
    assert promised.expected.probability_within_budget >= 0.95 - 1e-9
    assert "promise nothing" in story_of(raw, None).bound


def test_a_strict_plan_says_what_a_tolerance_gives(sweep):
    strict = plan(sweep)
    tolerant = Planner(sweep).plan(Objective("waste", strict.tolerance.max_slowdown))
    assert strict.tolerance.energy_change == pytest.approx(tolerant.expected.energy_change)
    if strict.tolerance.energy_change < strict.headline.energy_change - 0.005:
        note = strictness_note(strict)  # of the default clocks alone the story says enough
        assert note is None if is_default(strict) else f"--max-slowdown {strict.tolerance.max_slowdown:g}" in note
    auto = plan(make_sweep([(f"k{k}", clock, None, 1.0 + (clock is not None), 1.0 + (clock is not None))
                            for k in range(2) for clock in (None, 900) for _ in range(6)]))  # fmt: skip
    assert all(row.setting.is_auto for row in auto.assignments)
    story = story_of(auto, None)
    assert story.effect == "Nothing to set, the default clocks stay"
    assert [panel.value for panel in story.panels[1:]] == ["nothing to set", "a slowdown"]
