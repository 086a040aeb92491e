"""Settings that a recurring job may run at on its GPUs: a ladder of power limits, or one of core clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from wastenot.control.candidates import WHOLE_W, common_clocks, common_limits_w
from wastenot.core.errors import ClocksRefusedError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Device

Knob = Literal["limits", "clocks"]

_STEPS = 12  # of power limits
_LOWEST = 0.35  # of the greatest limit, or of the highest clock
_CLOCK_STEP = 0.05


def job_settings(gpus: Sequence[Device], knob: Knob) -> tuple[Setting, ...]:
    """What to choose among on GPUs that are to run alike, the fastest first.

    Args:
        gpus: the GPUs.
        knob: to turn.

    Raises:
        ClocksRefusedError: they report none.
    """
    found = _limits(gpus) if knob == "limits" else _clocks(gpus)
    if not found:
        names = ", ".join(gpu.identity.name for gpu in gpus)
        what = "power limits" if knob == "limits" else "core clocks"
        raise ClocksRefusedError(f'{names}: reports no {what} to choose from; leave `settings` at "none"')
    return found


def _limits(gpus: Sequence[Device]) -> tuple[Setting, ...]:
    limits = common_limits_w(gpus)
    if limits is None:
        return ()
    low, high = limits
    lowest = max(low, _LOWEST * high)
    wanted = (high - (high - lowest) * step / (_STEPS - 1) for step in range(_STEPS))
    whole = (watts if watts in (low, high) else WHOLE_W * round(watts / WHOLE_W) for watts in wanted)
    return tuple(Setting(power_limit_w=watts) for watts in dict.fromkeys(whole) if low <= watts <= high)


def _clocks(gpus: Sequence[Device]) -> tuple[Setting, ...]:
    common = common_clocks(gpus)
    kept: list[float] = []
    for mhz in reversed(common):
        if mhz >= _LOWEST * common[-1] and (not kept or kept[-1] / mhz >= 1.0 + _CLOCK_STEP):
            kept.append(mhz)
    return tuple(Setting(core_mhz=mhz) for mhz in kept)
