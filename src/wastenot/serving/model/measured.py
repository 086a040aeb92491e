"""Tables of an engine straight from measured steps: on the grid that was measured, with gaps where nothing was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.serving.model.steps import MeasuredStep, averaged, settings_of
from wastenot.serving.model.tables import EngineTables, Evidence


def measured_tables(
    steps: Iterable[MeasuredStep], idle_power_w: Mapping[Setting, float], *, evidence: Evidence = "measured"
) -> EngineTables:
    """Tables whose knots are the sizes and contexts that were measured; what lies between measured cells is interpolated.

    Args:
        steps: of one parallel degree; repeats are averaged. Prefill steps of several prompts are left out.
        idle_power_w: of the engine with nothing to do, at each of their settings.
        evidence: of the steps.

    Raises:
        BadInputError: power is missing.
    """
    rows = averaged(each for each in steps if each.phase == "decode" or each.sequences == 1)
    if not rows:
        raise BadInputError("there are no steps to make a profile from")
    check_power(rows)
    settings = settings_of(rows)
    prefill = _grid([each for each in rows if each.phase == "prefill"], settings)
    decode = _grid([each for each in rows if each.phase == "decode"], settings)
    return EngineTables(
        settings,
        *prefill,
        *decode,
        np.array([idle_power_w[each] for each in settings], dtype=np.float64),
        "measured",
        evidence,
    )


def check_power(steps: Iterable[MeasuredStep]) -> None:
    """Refuse steps without power, of which no energy can be told."""
    without = [each for each in steps if not np.isfinite(each.power_w)]
    if without:
        phases = " and ".join(sorted({each.phase for each in without}))
        raise BadInputError(
            f"power: {counted(len(without), f'{phases} step')} of the table without it, so no energy is known; measure it"
        )


def _grid(rows: list[MeasuredStep], settings: tuple[Setting, ...]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Knots of size and of context, times and energies; one cell that is not known where there are no rows."""
    sizes = np.unique([each.new_tokens for each in rows] or [1.0]).astype(np.float64)
    contexts = np.unique([each.context for each in rows] or [0.0]).astype(np.float64)
    times = np.full((len(settings), len(sizes), len(contexts)), np.nan)
    energies = times.copy()
    for row in rows:
        cell = (
            settings.index(row.setting),
            int(np.searchsorted(sizes, row.new_tokens)),
            int(np.searchsorted(contexts, row.context)),
        )
        times[cell], energies[cell] = row.time_s, row.time_s * row.power_w
    return sizes, contexts, times, energies
