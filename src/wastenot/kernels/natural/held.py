"""The mean power that a regulator holds kernels to, from kernels by themselves.

    power     ▇▇▇▇▇▇▇▇▂▅▆▇▇▇▇▇▇▂▅▆▇▇▇▇      of a kernel that would draw more than the limit
    mean                ‾‾‾‾‾‾‾‾‾‾‾‾‾‾      over the time that the regulator looks at

The clock dips about once a second, as soon as the mean over about that time is above the limit. A mean over any other time
depends on how many dips it happens to contain; the moving mean over that time does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wastenot.core.errors import BadInputError
from wastenot.kernels.natural.curves import KernelCurve
from wastenot.kernels.natural.seen import Recorded
from wastenot.kernels.natural.storage import unpacked_timeline
from wastenot.planning.power_limit import REGULATED_S
from wastenot.study.store import Study
from wastenot.study.sweep import Kernel

HELD_SD = 0.003
"""Relative standard error of what :func:`held_in_runs` finds, from one simulated card to another."""

_BEGINS_S = 1.0  # until when the slow limit has not acted yet
_MOMENTS = 200


def held_in_runs(curves: Sequence[KernelCurve], runs: Sequence[Recorded]) -> float | None:
    """The power that limited kernels are held to, a median over phases of one kernel that last long enough.

    Args:
        curves: power by clock; kernels that are not limited by themselves do not count.
        runs: as recorded; the first subject of each is the kernel of interest.

    Returns:
        Watts; ``None`` where no phase lasts long enough.
    """
    limited = {curve.kernel: curve for curve in curves if curve.auto.limited}
    found = []
    for run in runs:
        curve, timeline = limited.get(run.subjects[0][0]), run.timeline
        if curve is None or run.subjects[0][1] != "random":
            continue
        for phase in np.unique(timeline.phase[timeline.subject == 0]):
            of = timeline.phase == phase
            seconds = (timeline.end_s - timeline.begin_s)[of]
            if seconds.sum() < _BEGINS_S + REGULATED_S:
                continue
            clocks = np.clip(timeline.core_mhz[of], curve.core_mhz[0], curve.core_mhz[-1])
            moment_s = np.concatenate([[0.0], np.cumsum(seconds)])
            energy_j = np.concatenate([[0.0], np.cumsum(curve.power_at(clocks) * seconds)])
            at_s = np.linspace(_BEGINS_S, moment_s[-1], _MOMENTS)
            used_j = np.interp(at_s, moment_s, energy_j) - np.interp(at_s - REGULATED_S, moment_s, energy_j)
            found.append(float(used_j.mean()) / REGULATED_S)
    return float(np.median(found)) if found else None


def held_in_study(study: Study, workload: str, curves: Sequence[KernelCurve]) -> float | None:
    """As :func:`held_in_runs`, from the runs of a workload that a study keeps."""
    kept = study.timelines(workload, granularity="kernel")
    return held_in_runs(curves, [unpacked_timeline(each.content) for each in kept])


def held_power_w(kernels: Sequence[Kernel], curves: Sequence[KernelCurve]) -> float:
    """The mean power that the regulator holds kernels to, by those that it limits when they run by themselves.

    It may be a little less than the limit that the card states. Half of the time of these kernels is spent at less power,
    half at more, so that a kernel whose clock something else holds down does not count.

    Args:
        kernels: of an iteration.
        curves: of these kernels, in the same order.

    Raises:
        BadInputError: none of them is limited.
    """
    weights = np.array([
        kernel.count * curve.auto.time_s * curve.auto.limited for kernel, curve in zip(kernels, curves, strict=True)
    ])  # fmt: skip
    if not weights.any():
        raise BadInputError(
            "no kernel is held by the power limit when it runs on its own, so the limit is unknown; give `power_limit_w`"
        )
    power_w = np.array([curve.auto.power_w for curve in curves])
    order = np.argsort(power_w)
    half = np.searchsorted(np.cumsum(weights[order]), 0.5 * weights.sum())
    return float(power_w[order[half]])
