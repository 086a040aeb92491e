"""Settings that kernels of a pass or iteration share."""

import pytest

from testbed.small_sweeps import make_sweep
from wastenot.core.errors import BadInputError
from wastenot.planning.costs import combine_repeats
from wastenot.planning.units import make_units


def options(rows, tolerance=0.0, passes=None, granularity="iteration"):
    costs = combine_repeats(make_sweep(rows, passes=passes))
    units = make_units(costs, granularity, tolerance)
    return [
        {tuple((costs.setting(row).core_mhz, costs.setting(row).memory_mhz) for row in rows) for rows in unit.rows}
        for unit in units
    ]


AUTO = ((None, None), (None, None))
ROWS = [
    ("a", None, None, 1, 1), ("a", 1950, 9501, 1, 1), ("a", 1000, 9501, 1, 1), ("a", 1000, 5001, 1, 1),
    ("b", None, None, 1, 1), ("b", 1935, 9501, 1, 1), ("b", 1000, 9501, 1, 1), ("b", 1965, 9501, 1, 1),
]  # fmt: skip


def test_without_tolerance_settings_must_be_equal():
    assert options(ROWS) == [{AUTO, ((1000, 9501), (1000, 9501))}]


def test_with_tolerance_the_nearest_row_is_taken_the_lower_on_a_tie():
    found = options(ROWS, 15)[0]
    # Around 1950 kernel b has 1935 and 1965, equally near; around 1935 and 1965 kernel a has 1950.
    assert found == {
        AUTO,
        ((1000, 9501), (1000, 9501)),
        ((1950, 9501), (1935, 9501)),
        ((1950, 9501), (1965, 9501)),
    }


def test_an_auto_clock_is_shared_with_auto_only():
    rows = [("a", None, None, 1, 1), ("a", None, 9501, 1, 1), ("b", None, None, 1, 1), ("b", None, 9501, 1, 1),
            ("b", 900, 9501, 1, 1)]  # fmt: skip
    assert options(rows, 1e6) == [{AUTO, ((None, 9501), (None, 9501))}]


def test_passes_have_their_own():
    passes = {"a": "forward", "b": "backward"}
    assert [len(unit) for unit in options(ROWS, passes=passes, granularity="pass")] == [4, 4]


def test_nothing_in_common_names_what_is_missing():
    rows = [row for row in ROWS if row[1] != 1000]
    with pytest.raises(BadInputError, match=r"within 0 MHz.*missing for 1: '[ab]'.*clock_tolerance_mhz 15 is enough"):
        options(rows)
    with pytest.raises(BadInputError, match="measure what is missing"):
        options([("a", None, None, 1, 1), ("a", 900, 810, 1, 1), ("b", None, None, 1, 1)])


def test_pass_granularity_needs_passes():
    with pytest.raises(BadInputError, match="kernel 'a' has no pass"):
        options(ROWS, granularity="pass")


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf")])
def test_tolerance_must_be_a_number(tolerance):
    with pytest.raises(BadInputError, match="clock_tolerance_mhz"):
        options(ROWS, tolerance)
