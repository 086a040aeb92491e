"""What a GPU draws while it waits for another one, where nobody measured it: awake, at its clocks, with nothing to compute.

A rank that waits in a receive keeps its clocks up, and draws more than a card that has long been idle: two H200s at
1,980 MHz drew 121 to 126 W while a stream waited in a receive, and as much with nothing to do (docs/h200.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.core.errors import BadInputError

# Of presets: board, memory and leakage at the default clocks, without any kernel; a test computes them from the presets.
_SIMULATED = {
    "rtx-3080-ti": 113.85, "rtx-a4000": 29.25, "v100": 33.0, "a100": 89.45, "h100": 109.61, "h200": 124.61, "b200": 203.73,
    "mi300x": 217.44,
}  # fmt: skip
# Kareus' constants (A100, A40), and Perseus' for the A100 PCIe; of H200s ours.
_PUBLISHED = (
    ("h200", 123.0, "two H200s waiting in a receive at 1,980 MHz"),
    ("a100", 85.0, "the constant of Kareus (OSDI 2026) for an A100"),
    ("a40", 70.0, "the constant of Kareus (OSDI 2026) for an A40"),
)


@dataclass(frozen=True, slots=True)
class WaitingPower:
    """Power that a GPU draws while it waits for another one.

    Attributes:
        watts: of one GPU.
        source: where the number comes from, for a reader to check.
    """

    watts: float
    source: str


def waiting_power(device: str, given_w: float | None = None) -> WaitingPower:
    """What a device draws while it waits for another one.

    Args:
        device: its name in studies, such as ``sim:h200`` or ``NVIDIA H200 GPU-1234``.
        given_w: where it is known better.

    Raises:
        BadInputError: the power is no power, or nothing is known of the device.
    """
    if given_w is not None:
        if not 0.0 <= given_w < float("inf"):
            raise BadInputError(f"`waiting_w` {given_w:g}: must be a power in watts, such as 120")
        return WaitingPower(given_w, "given")
    preset = device.removeprefix("sim:")
    if device.startswith("sim:") and preset in _SIMULATED:
        return WaitingPower(_SIMULATED[preset], f"what {device} draws idle at its default clocks")
    words = device.lower().replace("-", " ").split()
    for word, watts, source in _PUBLISHED:
        if word in words:
            return WaitingPower(watts, source)
    raise BadInputError(f"`waiting_w`: it is not known what {device} draws while it waits for another GPU; give it in watts")
