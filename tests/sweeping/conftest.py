"""The device that tests of sweeps measure on."""

from __future__ import annotations

import pytest

from testbed.toy_gpu import toy
from wastenot.devices.open import simulated_device


@pytest.fixture
def device():
    return simulated_device(toy(), "sim:toy", seed=1)
