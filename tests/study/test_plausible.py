"""Powers that no card draws are pointed at, with the unit that would explain them; others pass in silence."""

from __future__ import annotations

import pytest

from testbed.sweeps import sweep_of
from wastenot.study.plausible import implausible_power, implausible_rows
from wastenot.study.sweep import Kernel
from wastenot.study.sweep_file import read_sweep

A = Kernel("a", 1)


def of(*pairs):
    return sweep_of([(A, {"time_s": time, "energy_j": energy}) for time, energy in pairs])


@pytest.mark.parametrize(
    ("time_s", "energy_j", "said"),
    [
        (0.019, 5600.0, r"5,600 J in 19 ms are 295 kW \('a' at auto\); energy_j looks like millijoules"),
        (0.019, 5.6e6, "are 295 MW .* energy_j looks like microjoules"),
        (19.0, 5.6, "5.6 J in 19 s are 295 mW .* time_s looks like milliseconds"),
        (19_000.0, 5.6, "are 295 µW .* time_s looks like microseconds"),
        (19_000_000.0, 5.6, "time_s looks like nanoseconds"),
        (50.0, 1.0, "are 20 mW .* time_s looks like milliseconds"),
    ],
)
def test_the_likely_unit_is_named(time_s, energy_j, said):
    doubt = implausible_rows(of((time_s, energy_j)))
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(doubt.text)
    assert doubt.text.startswith("every row: no card draws such power")
    assert doubt.text.endswith("import it into a new study")
    assert implausible_power(time_s, energy_j) is not None


@pytest.mark.parametrize("power_w", [1.0, 15.0, 300.0, 1400.0, 8 * 1200.0])
def test_what_cards_draw_passes(power_w):
    assert implausible_rows(of((0.01, 0.01 * power_w))) is None
    assert implausible_power(0.01, 0.01 * power_w) is None


def test_some_rows_among_many():
    doubt = implausible_rows(of((0.01, 3.0), (0.01, 2.5), (0.01, 2500.0)))
    assert (doubt.rows, doubt.power_w) == (1, 250_000.0)
    assert doubt.text.startswith("1 of 3 rows: no card draws such power: 2,500 J in 10 ms are 250 kW")


@pytest.mark.parametrize(
    "name",
    ["rtx3080ti-polybench/sweep.csv", "rtx3080ti-polybench/sweep-share.csv", "gpu-dvfs/v100.csv", "gpu-dvfs/gtx980.csv"],
)
def test_tables_that_others_measured_pass(shared_data, name):
    assert implausible_rows(read_sweep(shared_data / name)) is None


def test_a_total_of_nothing_measured_is_no_doubt():
    assert implausible_power(0.0, 0.0) is None and implausible_power(1.0, 0.0) is None
