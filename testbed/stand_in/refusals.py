"""What NVML refuses, and with which error."""

import pytest


def refused(nvml, error, function, *arguments):
    with pytest.raises(nvml.NVMLError) as caught:
        getattr(nvml, function)(*arguments)
    assert caught.value.value == getattr(nvml, f"NVML_ERROR_{error}")
    assert type(caught.value) is nvml.NVMLError._valClassMapping[caught.value.value]
