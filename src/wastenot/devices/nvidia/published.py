"""Published measurements of the power sensors of NVIDIA's architectures.

From Yang, Adamek, Armour, "Accurate and Convenient Energy Measurements for GPUs: A Detailed Study of NVIDIA GPU's
Built-In Power Sensor", SC 2024, and its data (GPU_Power_Benchmark, commit 4b5c944). nvml.h
documents that memory power is averaged over a second.
"""

from __future__ import annotations

from dataclasses import dataclass

ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell",
}  # fmt: skip
"""NVML's architecture numbers and their names."""


@dataclass(frozen=True, slots=True)
class PublishedSensor:
    """A power reading.

    Attributes:
        period_s: time between new values.
        window_s: length of the window a value averages over.
        delay_s: time from the end of the window until the value can be read; 0 where it was not examined.
        source: where these values come from.
        lag_s: time constant where values are a first-order lag of power rather than a mean; 0 for a mean.
        delay_error_s: uncertainty of the delay.
        sample_s: interval at which the sensor samples, where a value is the latest sample; 0 where it is taken when due.
    """

    period_s: float
    window_s: float
    delay_s: float = 0.0
    source: str = "published"
    lag_s: float = 0.0
    delay_error_s: float = 0.0
    sample_s: float = 0.0


MEMORY = PublishedSensor(0.1, 1.0)
"""Memory power, where a GPU reports it."""

_INSTANT = {
    "Pascal": PublishedSensor(0.02, 0.01),
    "Volta": PublishedSensor(0.02, 0.01),
    "Turing": PublishedSensor(0.1, 0.1),
    "Ampere": PublishedSensor(0.1, 0.1),
    "Ada": PublishedSensor(0.1, 0.1),
    # Published as a mean over 25 ms. Four H200s responded to bursts of 4 to 56 ms like first-order lags of 12 to 13 ms
    # (residuals of 2 to 11 W, against 20 to 56 W for the best mean). They were 2 to 22 ms late: the delay grows by 0.2 ms
    # per second and jumps back by 20 ms, as it does for the latest of samples taken every 20 ms by another clock.
    "Hopper": PublishedSensor(
        0.1, 0.025, 0.012, "window published; lag, delay and samples measured on four H200", 0.0125, 0.006, 0.02
    ),
}
# The large Ampere chip differs from that of graphics cards but has the same architecture number.
_BIG_AMPERE = ("A100", "A800", "A30")
_BIG_AMPERE_INSTANT = PublishedSensor(0.1, 0.025)
_AVERAGED = ("Ampere", "Ada", "Hopper", "Blackwell")  # where the older reading is a mean over a second
_AVERAGE = PublishedSensor(0.1, 1.0)


def power_sensor(architecture: str | None, model: str, *, instant: bool = True) -> PublishedSensor | None:
    """The sensor of a whole GPU's power; ``None`` where nothing is published.

    Args:
        architecture: name of the architecture; ``None`` where unknown.
        model: NVML's name of the model, such as ``NVIDIA A100-SXM4-80GB``.
        instant: whether the reading is instantaneous power rather than the older, averaged one.
    """
    if architecture == "Ampere" and any(word in _BIG_AMPERE for word in model.replace("-", " ").split()):
        return _BIG_AMPERE_INSTANT
    if not instant and architecture in _AVERAGED:
        return _AVERAGE
    return _INSTANT.get(architecture or "")
