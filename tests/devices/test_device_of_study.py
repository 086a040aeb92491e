"""Which device a study was taken on, as far as its label says how to open it."""

from __future__ import annotations

import pytest

from wastenot.core.errors import BadInputError
from wastenot.devices.open import device_of_study


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("sim:h200", "sim:h200"),
        ("sim:/a b/my.toml", "sim:/a b/my.toml"),
        ("NVIDIA H200 GPU-1234abcd-00ff-1234-5678-abcdefabcdef", "nvidia:GPU-1234abcd-00ff-1234-5678-abcdefabcdef"),
    ],
)
def test_the_name_that_opens_it(label, name):
    assert device_of_study("s.db", label) == name


@pytest.mark.parametrize("label", ["unknown", "RTX 3080 Ti", "sim:", "GPU", "lab: card 3"])
def test_others_have_to_be_named(label):
    with pytest.raises(BadInputError, match="give the device to measure, such as device nvidia:0"):
        device_of_study("s.db", label)
