"""Power while waiting."""

import pytest

from wastenot.core.errors import BadInputError
from wastenot.devices.open import open_device
from wastenot.devices.simulated import model
from wastenot.pipelines.model.waiting import waiting_power


@pytest.mark.parametrize("preset", ["rtx-3080-ti", "rtx-a4000", "v100", "h200", "h100", "a100", "b200", "mi300x"])
def test_simulated_gpus_wait_at_what_their_model_draws_without_a_kernel(preset):
    found = open_device(f"sim:{preset}").engine.physics.preset
    parameters = found.parameters
    volts = float(model.voltage(parameters, found.clocks.boost_mhz))
    awake_w = parameters.base_w[-1] + parameters.leakage_w * (volts**model.LEAKAGE_VOLTAGE_EXPONENT - 1.0)
    assert waiting_power(f"sim:{preset}").watts == pytest.approx(max(awake_w, found.idle_w), abs=0.01)


def test_real_gpus_are_known_by_name_or_not_at_all():
    assert waiting_power("NVIDIA H200 GPU-12ab").watts == 123.0
    assert waiting_power("anything", 88.0).source == "given"
    with pytest.raises(BadInputError, match="waiting_w: it is not known what Tesla K80"):
        waiting_power("Tesla K80")
