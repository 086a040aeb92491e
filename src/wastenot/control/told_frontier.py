"""What watts are worth to a job, told to wastenotd, so that it knows who gives way where GPUs share a budget."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from wastenot.core.errors import DeviceError
from wastenot.devices.common.daemon_clocks import DaemonClocks
from wastenot.devices.protocol import Device
from wastenot.frontiers.algebra import choice
from wastenot.planning.schedule import Schedule


def tell_frontier(schedule: Schedule, gpus: Sequence[Device], measured: int = 1) -> None:
    """Tell it, where it sets the clocks.

    Args:
        schedule: of the job: its rungs, and the default clocks, are ways to run an iteration.
        gpus: that the job runs on.
        measured: GPUs whose energy those of the rungs are.
    """
    points = watts_and_times(schedule, measured)
    for gpu in gpus if len(points) > 1 else ():
        if isinstance(gpu.clocks, DaemonClocks):
            with suppress(DeviceError):  # a lease that has ended is met where the next clock is requested
                gpu.clocks.tell_frontier(points)


def watts_and_times(schedule: Schedule, measured: int = 1) -> list[tuple[float, float]]:
    """The hull of a schedule's frontier, as the mean power of each GPU, ascending, and the time of an iteration.

    Time is convex in energy along the hull, and so it is in energy/time. The last is the fastest.
    """
    hull = choice([(rung.time_s, rung.energy_j / measured) for rung in schedule.rungs]).hull()
    return [(energy_j / time_s, time_s) for time_s, energy_j in zip(hull.time_s[::-1], hull.energy_j[::-1], strict=True)]
