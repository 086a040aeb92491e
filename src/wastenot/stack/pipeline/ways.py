"""The ways to run an instruction of a stage: one setting for all of its kernels, or several inside.

instruction   |        1500        |        a driver can do it where instructions last longer than a switch
layer         |  1500  |    1410   |        layers are alike: some at one setting, the others at another
kernel        |15|14|15|15|14|15|..|        what the kernels themselves would like
schedule      | 1500 |  1410  |1500|        stretches as long as a switch takes
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.errors import BadInputError
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.nodes import Ways
from wastenot.planning.switching import SwitchTime
from wastenot.setting import Setting
from wastenot.stack.pipeline.kernel_table import KernelTable
from wastenot.suggest import suggestion
from wastenot.workloads.stages import StageWork

Settings = Literal["instruction", "layer", "kernel", "schedule"]
"""What gets a setting of its own."""
SETTINGS: tuple[Settings, ...] = get_args(Settings)


def ways_of(
    table: KernelTable, work: StageWork, settings: Settings, fixed_s: float, waiting_w: float, switching: SwitchTime
) -> Frontier:
    """The ways to run an instruction.

    Args:
        table: of the kernels.
        work: what the instruction runs.
        settings: what gets a setting of its own.
        fixed_s: collectives inside, which take as long at every clock and draw what waiting does.
        waiting_w: power while waiting.
        switching: how long the device takes to change clocks.

    Raises:
        BadInputError: there are no such settings.
    """
    if settings not in SETTINGS:
        raise BadInputError(f"`settings` {settings}: unknown; {suggestion(settings, SETTINGS)}")
    time_s, energy_j, labels = _tied(table, work)
    return choice(Ways(time_s + fixed_s, energy_j + fixed_s * waiting_w, labels))


def _tied(table: KernelTable, work: StageWork) -> tuple[FloatArray, FloatArray, list[Setting]]:
    """All kernels at one setting, at each that all were measured at."""
    counts = np.zeros(len(table.kernels))
    for loop in work.loops:
        counts[list(loop.members)] += loop.times
    used = counts > 0.0
    common = np.asarray((table.rows[:, used] >= 0).all(axis=1))
    time_s, energy_j = (each[np.ix_(common, used)] @ counts[used] for each in (table.time_s, table.energy_j))
    return time_s, energy_j, [each for each, kept in zip(table.settings, common.tolist(), strict=True) if kept]
