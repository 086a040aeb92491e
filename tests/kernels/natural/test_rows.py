"""Curves from rows of a study."""

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.kernels.natural.rows import curves_of_rows
from wastenot.study.sweep import CurveErrors, Kernel, Sweep

NAN = float("nan")


def sweep_of(rows, **changes) -> Sweep:
    """A sweep from (kernel, core, effective core, time, energy); NaN is auto or unknown."""
    names = list(dict.fromkeys(row[0] for row in rows))
    absent = np.full(len(rows), NAN)
    names_of = ("core_mhz", "effective_core_mhz", "time_s", "energy_j")
    columns = {name: np.array([row[1 + place] for row in rows], dtype=float) for place, name in enumerate(names_of)}
    empty = ("memory_mhz", "power_limit_w", "effective_memory_mhz", "calls", "temperature_c")
    errors = {"time_se_s": 0.01 * columns["time_s"], "energy_se_j": 0.05 * columns["energy_j"]}
    return Sweep(
        kernels=tuple(Kernel(name, 2) for name in names),
        kernel_index=np.array([names.index(row[0]) for row in rows]),
        **(dict.fromkeys(empty, absent) | columns | errors | changes),
        workload="w",
        device="d",
    )


SET = [
    ("product", NAN, 1490.0, 1.0, 690.0), ("product", 1980.0, 1491.0, 1.0, 690.0), ("product", 1800.0, 1489.0, 1.0, 690.0),
    ("product", 1400.0, 1400.0, 1.06, 650.0), ("light", NAN, 1980.0, 0.5, 200.0), ("light", 1400.0, 1400.0, 0.6, 180.0),
]  # fmt: skip


def test_rows_that_the_limit_held_at_one_clock_are_one_point():
    product, light = curves_of_rows(sweep_of(SET))
    assert product.core_mhz == pytest.approx([1400.0, 1490.0], abs=0.1)
    assert product.time_s == pytest.approx([1.06, 1.0])
    assert product.power_w == pytest.approx([650.0 / 1.06, 690.0])
    assert product.log_time_cov == pytest.approx(np.diag([1e-4, 1e-4 / 3]))
    assert product.log_power_cov == pytest.approx(np.diag([24e-4, 8e-4]))
    assert (product.auto.limited, product.auto.core_mhz, product.auto.power_w) == (True, 1490.0, 690.0)
    assert light.core_mhz == pytest.approx([1400.0, 1980.0])
    assert not light.auto.limited


def test_other_memory_clocks_and_power_limits_do_not_count():
    rows = [*SET, ("light", 1700.0, 1700.0, 9.0, 9.0), ("light", 1700.0, 1700.0, 9.0, 9.0)]
    memory = np.array([NAN, 3201, 3201, 3201, NAN, 3201, 2201, 3201])
    limit = np.array([NAN] * 7 + [300.0])
    light = curves_of_rows(sweep_of(rows, memory_mhz=memory, power_limit_w=limit))[1]
    assert light.core_mhz == pytest.approx([1400.0, 1980.0])


def test_without_clocks_in_effect_those_requested_count_but_auto_must_be_known():
    rows = [(name, core, NAN, time, energy) for name, core, _, time, energy in SET]
    with pytest.raises(BadInputError, match="kernel 'product': the clock it runs at by default is unknown"):
        curves_of_rows(sweep_of(rows))
    with pytest.raises(BadInputError, match="no clocks are known"):
        curves_of_rows(sweep_of([row for row in rows if np.isnan(row[1])]))


def test_natural_rows_keep_their_joint_errors():
    rows = [("light", NAN, 1975.0, 0.5, 200.0), ("light", 1600.0, NAN, 0.55, 190.0), ("light", 1450.0, NAN, 0.6, 180.0)]
    time_cov, power_cov = np.array([[2e-4, 1e-4], [1e-4, 3e-4]]), np.array([[5e-4, 4e-4], [4e-4, 6e-4]])
    errors = {"light": CurveErrors(np.array([1450.0, 1600.0]), time_cov, power_cov)}
    natural = replace(sweep_of(rows), state="natural", curve_errors=errors)
    (light,) = curves_of_rows(natural)
    assert light.core_mhz.tolist() == [1450.0, 1600.0]  # auto is no point of the curve
    assert light.time_s.tolist() == [0.6, 0.55]
    assert (light.log_time_cov.tolist(), light.log_power_cov.tolist()) == (time_cov.tolist(), power_cov.tolist())
    assert light.auto.core_mhz == 1975.0
    (alone,) = curves_of_rows(replace(natural, curve_errors={}))
    assert alone.log_time_cov == pytest.approx(np.diag([1e-4, 1e-4]))
