"""Published measurements of the power sensors of NVIDIA's architectures.

From Yang, Adamek, Armour, "Accurate and Convenient Energy Measurements for GPUs: A Detailed Study of NVIDIA GPU's
Built-In Power Sensor", SC 2024, and its data (GPU_Power_Benchmark, commit 4b5c944). nvml.h
documents that memory power is averaged over a second.
"""

from __future__ import annotations

from wastenot.devices.instrument import TOTAL, Channel

ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper", 10: "Blackwell",
}  # fmt: skip
"""NVML's architecture numbers and their names."""


def _published(period_s: float, window_s: float, name: str = TOTAL) -> Channel:
    return Channel(name, period_s, window_s, source="published")


MEMORY = _published(0.1, 1.0, "memory")
"""Memory power, where a GPU reports it."""

_INSTANT = {  # by architecture
    "Pascal": _published(0.02, 0.01),
    "Volta": _published(0.02, 0.01),
    "Turing": _published(0.1, 0.1),
    "Ampere": _published(0.1, 0.1),
    "Ada": _published(0.1, 0.1),
    # Published as a mean over 25 ms. Four H200s responded to bursts of 4 to 56 ms like first-order lags of 12 to 13 ms
    # (residuals of 2 to 11 W, against 20 to 56 W for the best mean). They were 2 to 22 ms late: the delay grows by 0.2 ms
    # per second and jumps back by 20 ms, as it does for the latest of samples taken every 20 ms by another clock.
    "Hopper": Channel(
        TOTAL, 0.1, 0.025, 0.012, source="window published; lag, delay and samples measured on four H200",
        lag_s=0.0125, delay_error_s=0.006, sample_s=0.02,
    ),
}  # fmt: skip
# The large Ampere chip differs from that of graphics cards but has the same architecture number.
_BIG_AMPERE = ("A100", "A800", "A30")
_BIG_AMPERE_INSTANT = _published(0.1, 0.025)
_AVERAGED = ("Ampere", "Ada", "Hopper", "Blackwell")  # where the older reading is a mean over a second
_AVERAGE = _published(0.1, 1.0)


def power_sensor(architecture: str | None, model: str, *, instant: bool = True) -> Channel | None:
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
