"""What others have measured of the power sensors of NVIDIA's architectures, and published.

From Yang, Adamek, Armour, "Accurate and Convenient Energy Measurements for GPUs: A Detailed Study of NVIDIA GPU's
Built-In Power Sensor", SC 2024, and its data (GPU_Power_Benchmark, commit 4b5c944). That memory's power is a mean over a
second is said in nvml.h.
"""

from __future__ import annotations

from dataclasses import dataclass

ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell",
}  # fmt: skip
"""Names of NVML's numbers of architectures."""


@dataclass(frozen=True, slots=True)
class PublishedSensor:
    """A power reading.

    Attributes:
        period_s: between new values.
        window_s: that a value is the mean over.
        delay_s: from the window's end until the value can be read; 0 where it was not looked for.
        source: who says so.
        lag_s: time constant of the first-order lag that a value is, in place of a mean; 0 for a mean.
        delay_error_s: by which the delay may be off.
        sample_s: between the sensor's samples, of which a value is the latest; 0 where a value is made when it is due.
    """

    period_s: float
    window_s: float
    delay_s: float = 0.0
    source: str = "published"
    lag_s: float = 0.0
    delay_error_s: float = 0.0
    sample_s: float = 0.0


MEMORY = PublishedSensor(0.1, 1.0)
"""Memory's power, where a GPU tells it."""

_INSTANT = {
    "Pascal": PublishedSensor(0.02, 0.01),
    "Volta": PublishedSensor(0.02, 0.01),
    "Turing": PublishedSensor(0.1, 0.1),
    "Ampere": PublishedSensor(0.1, 0.1),
    "Ada": PublishedSensor(0.1, 0.1),
    # Published as a mean over 25 ms; four H200s answered bursts of 4 to 56 ms as first-order lags of 12 to 13 ms do (2 to
    # 11 W left over, against 20 to 56 W of the best mean). They were 2 to 22 ms late: the delay grows by 0.2 ms each second
    # and jumps back by 20 ms, as that of the latest of samples taken each 20 ms by another clock does.
    "Hopper": PublishedSensor(
        0.1, 0.025, 0.012, "window published; lag, delay and samples measured on four H200", 0.0125, 0.006, 0.02
    ),
}
# The big Ampere chip is another one than that of cards for graphics, under the same number.
_BIG_AMPERE = ("A100", "A800", "A30")
_BIG_AMPERE_INSTANT = PublishedSensor(0.1, 0.025)
_AVERAGED = ("Ampere", "Ada", "Hopper", "Blackwell")  # whose older reading is a mean over a second
_AVERAGE = PublishedSensor(0.1, 1.0)


def power_sensor(architecture: str | None, model: str, *, instant: bool = True) -> PublishedSensor | None:
    """The reading of a whole GPU's power; ``None`` where nothing was published.

    Args:
        architecture: name of it; ``None`` where unknown.
        model: of the GPU, as NVML has it, such as ``NVIDIA A100-SXM4-80GB``.
        instant: whether it is that of instantaneous power; otherwise the older one.
    """
    if architecture == "Ampere" and any(word in _BIG_AMPERE for word in model.replace("-", " ").split()):
        return _BIG_AMPERE_INSTANT
    if not instant and architecture in _AVERAGED:
        return _AVERAGE
    return _INSTANT.get(architecture or "")
