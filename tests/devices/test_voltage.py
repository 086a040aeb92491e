"""The voltage of simulated GPUs over their core clock."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from wastenot.devices.simulated.basis import preset_names
from wastenot.devices.simulated.model import voltage
from wastenot.devices.simulated.preset import find_preset

PARAMETERS = find_preset("h200").parameters
CURVES = [
    (each.voltage_clocks_mhz, each.voltage_ratio) for each in (find_preset(name).parameters for name in preset_names())
]


@pytest.mark.parametrize(
    ("clocks_mhz", "ratio"),
    [*CURVES, ((300.0, 900.0), (1.0, 1.2)), ((300.0, 400.0, 900.0), (1.0, 1.5, 1.5)),
     ((300.0, 700.0, 800.0, 900.0), (1.0, 1.01, 1.5, 1.6))],
)  # fmt: skip
def test_it_is_scipys_monotone_cubic_to_the_last_bit(clocks_mhz, ratio):
    device = replace(PARAMETERS, voltage_clocks_mhz=clocks_mhz, voltage_ratio=ratio)
    core_mhz = np.append(np.linspace(clocks_mhz[0] - 100.0, clocks_mhz[-1] + 100.0, 997), clocks_mhz)
    expected = PchipInterpolator(clocks_mhz, ratio)(np.clip(core_mhz, clocks_mhz[0], clocks_mhz[-1]))
    np.testing.assert_array_equal(voltage(device, core_mhz), expected)
    np.testing.assert_array_equal(voltage(device, core_mhz[:, None]), expected[:, None])
    assert voltage(device, float(core_mhz[500])) == expected[500]


def test_a_single_known_clock_has_no_curve():
    device = replace(PARAMETERS, voltage_clocks_mhz=(1500.0,), voltage_ratio=(1.0,))
    assert voltage(device, [300.0, 2000.0]).tolist() == [1.0, 1.0]
