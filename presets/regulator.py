"""The power regulator of the H200, and what data does to power, as we saw them without setting anything."""

from __future__ import annotations

import numpy as np

from wastenot.core.setting import AUTO
from wastenot.devices.simulated.dynamics import CycleClockModel
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.preset import DataTraits, Preset
from wastenot.devices.simulated.regulator import Regulator
from wastenot.devices.timeline import Data
from wastenot.workloads.primitives import primitive

H200_REGULATOR = Regulator(
    step_s=1e-3,
    sees_s=0.0125,
    exponent=1.4,
    aim=1.05,
    act_s=0.014,
    lower_by=0.65,
    raise_by=0.35,
    hold_s=0.0115,
    far=0.07,
    mean_s=0.85,
    mean=0.99,
    mean_gain=6.0,
)

H200_CYCLE_CLOCK = CycleClockModel(
    cost_s=1.6e-6,
    resolution_s=32e-9,
    multiprocessors=132,
    skipped=(
        (1220.0, 0.08),
        (1370.0, 0.09),
        (1600.0, 0.104),
        (1700.0, 0.108),
        (1750.0, 0.12),
        (1800.0, 0.139),
        (1850.0, 0.159),
        (1965.0, 0.2),
    ),
)

# A product of 8,192 x 8,192 matrices on other data: its clock, and its power there, between those of two cards.
_PRODUCTS: dict[Data, tuple[float, float]] = {
    "sparse": (1665.0, 655.0),
    "equal rows": (1665.0, 550.0),
    "zeros": (1740.0, 455.0),
}


def data_traits(preset: Preset) -> dict[Data, DataTraits]:
    """What data change on an H200, such that the product draws what it drew."""
    kernel, found = primitive("gemm:8192")[0], {}
    halved = ModelPhysics(preset.model_copy(update={"data": {"zeros": DataTraits(work=0.5)}}))
    for data, (core_mhz, power_w) in _PRODUCTS.items():
        random_w, half_w = (
            float(halved.response(kernel, np.array([core_mhz]), AUTO, which).power_w.sum()) for which in ("random", "zeros")
        )
        found[data] = DataTraits(work=1.0 - 0.5 * (random_w - power_w) / (random_w - half_w), product_mhz=core_mhz)
    return found
