"""The power that a regulator holds kernels to, from timelines whose truth is known."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from testbed.power_law_curves import curve, true_w
from wastenot.devices.timeline import Timeline
from wastenot.kernels.natural.held import held_in_runs
from wastenot.planning.power_limit import REGULATED_S


@dataclass(frozen=True)
class Run:
    """What is looked at of a recorded run."""

    timeline: Timeline
    subjects: tuple[tuple[str, str], ...]
    channels: tuple[object, ...] = ()


def dipping(kernel: str, seconds: float, subject: int = 0, data: str = "random") -> Run:
    """A kernel by itself, whose clock dips as soon as the time that the regulator looks at has passed, again and again."""
    begin_s = np.arange(0.0, seconds, 1e-3)
    core_mhz = np.where(begin_s % REGULATED_S > 0.75, 1360.0, 1460.0)
    same = np.full(len(begin_s), subject, dtype=np.intp)
    ones = np.ones(len(begin_s), dtype=np.intp)
    timeline = Timeline(ones, same, ones, begin_s, begin_s + 1e-3, core_mhz, {}, (), None)
    return Run(timeline, ((kernel, data), ("heavy", "random")))


def held_w(kernel: str) -> float:
    """True mean over one period."""
    share = 0.75 / REGULATED_S
    return float(share * true_w(kernel, 1460.0) + (1.0 - share) * true_w(kernel, 1360.0))


@pytest.mark.parametrize("seconds", [1.9, 2.1, 2.3, 2.5])
def test_it_does_not_matter_how_many_dips_there_are(seconds):
    found = held_in_runs([curve("product")], [dipping("product", seconds)])
    assert found == pytest.approx(held_w("product"), rel=1e-3)


def test_only_long_phases_of_limited_kernels_count():
    curves = [curve("product"), curve("permute")]
    long = dipping("product", 2.2)
    others = [dipping("product", 1.2), dipping("permute", 2.2), dipping("product", 2.2, subject=1),
              dipping("product", 2.2, data="zeros")]  # fmt: skip
    assert held_in_runs(curves, others) is None
    assert held_in_runs(curves, [long, *others]) == held_in_runs(curves, [long])
    free = replace(curves[0], auto=replace(curves[0].auto, limited=False))
    assert held_in_runs([free], [long]) is None
