"""How long a switch of clocks lasts on a device of which only the name is known.

`wastenot device latency` measures it. Until then simulated GPUs state their latencies; of real ones the few that were
published are assumed, and for all others a round number between those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from wastenot.core.documents import Finite, NotNegative, Part, Positive, SparsePart
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.core.vendors import VENDORS, words_of

# Latencies of the presets in devices/simulated/presets: core clocks with the latency to each, and the memory clock's, in
# seconds. All state the same jitter, and no stall. A test compares them.
_SIMULATED: dict[str, tuple[tuple[tuple[float, float], ...], float]] = {
    "rtx-3080-ti": (((210.0, 0.02), (2100.0, 0.03)), 0.1),
    "rtx-a4000": (((210.0, 0.02), (2100.0, 0.03)), 0.1),
    "v100": (((802.5, 0.02), (1380.0, 0.03)), 0.0),
    "h200": (((345.0, 0.015), (1980.0, 0.0225)), 1.0),
    "h100": (((345.0, 0.015), (1980.0, 0.0225)), 1.0),
    "a100": (((210.0, 0.02), (1410.0, 0.03)), 0.0),
    "b200": (((120.0, 0.02), (1965.0, 0.03)), 0.0),
    "mi300x": (((500.0, 0.02), (2100.0, 0.03)), 0.0),
}
_SIMULATED_JITTER = 0.3

SLOW_SWITCH_S = 0.5
"""A clock that takes this long to change is set once for a run, not from kernel to kernel or pass to pass."""

_PAPER = "Velička et al., IPDPSW 2025"
_UNKNOWN_S = 0.1  # between an A100's and a Quadro RTX 6000's


PROFILE_S = 1.0
"""To change a workload power profile: assumed, as nothing is published, and long enough that none is changed by kernel."""


class TargetTime(Part):
    """How long a change to one clock takes."""

    mhz: Positive
    seconds: NotNegative


class SwitchTime(SparsePart):
    """How long a device takes from a request until it runs at other clocks, and what else a switch costs.

    Times are medians: half of the switches take longer, and ``jitter`` says by how much.

    Attributes:
        core_s: to change the core clock, to the slowest target.
        memory_s: to change the memory clock, likewise.
        basis: ``measured`` by ``wastenot device latency``, ``stated`` by the device, ``given`` by the user, or ``assumed``
            until it is measured.
        source: where the seconds come from.
        core_by_target: to change the core clock, by target in ascending order and interpolated in between; auto counts as
            the highest. Empty where they are not told apart.
        memory_by_target: the same of memory clocks.
        power_limit_s: to change the power limit alone; ``None`` where it is taken to be as of the core clock.
        jitter: standard deviation of the logarithm of these times.
        stall_s: for so long kernels pause when the core clock changes.
        memory_stall_s: the same when the memory clock changes.
        energy_j: that a switch uses beyond what kernels use at the clocks in effect.
    """

    core_s: NotNegative
    memory_s: NotNegative
    basis: Literal["measured", "stated", "given", "assumed"]
    source: str
    core_by_target: Annotated[tuple[TargetTime, ...], Field(strict=False)] = ()
    memory_by_target: Annotated[tuple[TargetTime, ...], Field(strict=False)] = ()
    power_limit_s: NotNegative | None = None
    jitter: NotNegative = 0.0
    stall_s: NotNegative = 0.0
    memory_stall_s: NotNegative = 0.0
    energy_j: Finite = 0.0

    @property
    def known(self) -> str:
        """How the times are known, in words."""
        return {
            "given": "as given",
            "measured": "as measured",
            "stated": "as stated by the device",
            "assumed": "assumed; give yours with --switch-time",
        }[self.basis]

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for name in ("core_by_target", "memory_by_target"):
            clocks = [target.mhz for target in getattr(self, name)]
            if clocks != sorted(set(clocks)):
                raise ValueError(f"{name}: must be ascending by clock")
        return self

    def latency_s(self, before: Setting, after: Setting) -> float:
        """How long it takes from the request of a setting until it is in effect; 0 where it is the same.

        Parts change side by side: the slowest counts.
        """
        times = [0.0]
        if before.core_mhz != after.core_mhz:
            times.append(_at(self.core_by_target, after.core_mhz, self.core_s))
        if before.memory_mhz != after.memory_mhz:
            times.append(_at(self.memory_by_target, after.memory_mhz, self.memory_s))
        if before.power_limit_w != after.power_limit_w:
            as_core_s = _at(self.core_by_target, after.core_mhz, self.core_s)
            times.append(as_core_s if self.power_limit_s is None else self.power_limit_s)
        if before.profile != after.profile:
            times.append(PROFILE_S)
        return max(times)

    def pause_s(self, before: Setting, after: Setting) -> float:
        """For how long kernels pause when one setting changes to another."""
        core = self.stall_s if before.core_mhz != after.core_mhz else 0.0
        memory = self.memory_stall_s if before.memory_mhz != after.memory_mhz else 0.0
        return max(core, memory)


def switch_time(device: str, seconds: float | None = None) -> SwitchTime:
    """How long a device takes to switch clocks.

    Args:
        device: its name in studies and plans, such as ``sim:h200`` or ``RTX 3080 Ti``.
        seconds: what it takes, where that is known better.

    Raises:
        BadInputError: the seconds are no duration.
    """
    if seconds is not None:
        if not 0.0 <= seconds < math.inf:
            raise BadInputError(f"`switch_time_s` {seconds}: must be a number of seconds, such as 0.03")
        return SwitchTime(core_s=seconds, memory_s=seconds, basis="given", source="given")
    simulated = _SIMULATED.get(device.removeprefix("sim:")) if device.startswith("sim:") else None
    if simulated is not None:
        by_target, memory_s = simulated
        core_s = max(seconds for _, seconds in by_target)
        return SwitchTime(
            core_s=core_s,
            memory_s=max(memory_s, core_s),
            basis="stated",
            source=f"the simulated GPU {device}",
            core_by_target=tuple(TargetTime(mhz=mhz, seconds=seconds) for mhz, seconds in by_target),
            jitter=_SIMULATED_JITTER,
        )
    words = words_of(device)
    for card in (card for vendor in VENDORS for card in vendor.switching):
        if card.words <= words:
            source = f"{_PAPER}: {card.found}"
            return SwitchTime(core_s=card.core_s, memory_s=card.memory_s, basis="assumed", source=source)
    source = f"nothing is published of this device; {_PAPER} found 4 to 350 ms on others"
    return SwitchTime(core_s=_UNKNOWN_S, memory_s=_UNKNOWN_S, basis="assumed", source=source)


def _at(by_target: Sequence[TargetTime], mhz: float | None, otherwise_s: float) -> float:
    """Time to reach a clock, interpolated between those known; auto counts as the highest."""
    if not by_target:
        return otherwise_s
    if mhz is None or mhz >= by_target[-1].mhz:
        return by_target[-1].seconds
    above = next(index for index, target in enumerate(by_target) if target.mhz >= mhz)
    if above == 0:
        return by_target[0].seconds
    low, high = by_target[above - 1], by_target[above]
    return low.seconds + (high.seconds - low.seconds) * (mhz - low.mhz) / (high.mhz - low.mhz)
