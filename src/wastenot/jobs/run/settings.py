"""Settings that a recurring job may run at on its GPUs: a ladder of power limits, or one of core clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from wastenot.core.errors import ClocksRefusedError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Device

Knob = Literal["limits", "clocks"]

_STEPS = 12  # of power limits
_LOWEST = 0.35  # of the greatest limit, or of the highest clock
_CLOCK_STEP = 0.05
_WHOLE_W = 5.0  # limits are multiples of this, as people write them


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
    ranges = [each for gpu in gpus if (each := gpu.clocks.power_limits_w()) is not None]
    if len(ranges) < len(gpus):
        return ()
    low, high = max(each[0] for each in ranges), min(each[1] for each in ranges)
    lowest = max(low, _LOWEST * high)
    wanted = (high - (high - lowest) * step / (_STEPS - 1) for step in range(_STEPS))
    whole = (watts if watts in (low, high) else _WHOLE_W * round(watts / _WHOLE_W) for watts in wanted)
    return tuple(Setting(power_limit_w=watts) for watts in dict.fromkeys(whole) if low <= watts <= high)


def _clocks(gpus: Sequence[Device]) -> tuple[Setting, ...]:
    common = set.intersection(*({mhz for row in gpu.clocks.supported_clocks().values() for mhz in row} for gpu in gpus))
    kept: list[float] = []
    for mhz in sorted(common, reverse=True):
        if mhz >= _LOWEST * max(common) and (not kept or kept[-1] / mhz >= 1.0 + _CLOCK_STEP):
            kept.append(mhz)
    return tuple(Setting(core_mhz=mhz) for mhz in kept)
