"""The numbers under the figures: stages, ranks, plans at other deadlines, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from wastenot.pages.formatting import change, percent, quantity
from wastenot.pages.table import Listed, Table, listing
from wastenot.pipelines.page.drawing import before_text, instruction_text, mhz_text
from wastenot.pipelines.page.story import joules
from wastenot.pipelines.plan.frontier_table import FrontierRow
from wastenot.pipelines.plan.overview import Box, PipelineOverview
from wastenot.pipelines.plan.straggler import Saving

_SHOWN = 24
_seconds = partial(quantity, unit="s", digits=4)
_short_s, _short_j = (partial(quantity, unit=unit, digits=3) for unit in ("s", "J"))
_tenths, _whole = (partial(percent, digits=digits) for digits in (1, 0))
_changed = partial(change, digits=1)


def stages_table(overview: PipelineOverview) -> Table:
    """Each instruction of each stage that the plan changes, before and after; all where it changes none."""
    before, after = _by_instruction(overview.before.boxes), _by_instruction(overview.after.boxes)
    clocks = {key: [box.core_mhz for box in boxes if box.core_mhz is not None] for key, boxes in after.items()}

    def among(key: tuple[int, str]) -> str:
        lowest, highest = (mhz_text(choose(clocks[key])) for choose in (min, max))
        which = lowest if lowest == highest else f"{lowest} to {highest}, mean {mhz_text(fmean(clocks[key]))}"
        return which if len(clocks[key]) == len(after[key]) else f"{which} for {len(clocks[key])} of {len(after[key])}"

    columns: tuple[Listed[tuple[int, str]], ...] = (
        Listed("Instruction", lambda key: f"{instruction_text(key[1])}, stage {key[0]}", numeric=False),
        Listed("Times per iteration", lambda key: len(after[key]), "{:,}".format),
        Listed("Time before", lambda key: before[key][0].time_s, _short_s),
        Listed("Time, mean", lambda key: sum(box.time_s for box in after[key]) / len(after[key]), _short_s),
        Listed("Energy before", lambda key: before[key][0].energy_j, _short_j),
        Listed("Energy, mean", lambda key: sum(box.energy_j for box in after[key]) / len(after[key]), _short_j),
        Listed("Core clock", lambda key: fmean(clocks[key]) if clocks[key] else None, text_of=among, unknown="auto"),
    )
    ordered = sorted(after, key=lambda key: key[0])
    changed = [key for key in ordered if any(box.clocks != before[key][0].clocks for box in after[key])] or ordered
    rest = "" if len(changed) == len(ordered) else " All other instructions are as before."
    note = f"Before: at the {before_text(overview.plan)}.{rest}"
    title = "Instructions whose clocks change, for one micro-batch on one GPU"
    return listing(title, changed, columns, note, shown=_SHOWN)


def frontier_table(overview: PipelineOverview) -> Table | None:
    """Plans at other deadlines; ``None`` where there are none."""
    columns: tuple[Listed[FrontierRow], ...] = (
        Listed("Time", lambda row: row.time_s, partial(quantity, unit="s", digits=5), numeric=False),
        Listed("Against the default", lambda row: row.time_change, change),
        Listed("Energy", lambda row: row.energy_j, joules),
        Listed("Change", lambda row: row.energy_change, change),
        Listed("Above the bound by at most", lambda row: row.gap, percent),
    )
    least = min(range(len(overview.frontier)), key=lambda index: overview.frontier[index].energy_j, default=-1)
    rows = overview.frontier[: least + 1]  # slower ones need more energy, too
    return listing("Plans at other deadlines", rows, columns, shown=10) if rows else None


def stragglers_table(overview: PipelineOverview) -> Table | None:
    """What plans save while another pipeline is slow; ``None`` where that is not known."""
    columns: tuple[Listed[tuple[float, Saving]], ...] = (
        Listed("Another pipeline is slower by", lambda each: each[0], _whole, numeric=False),
        Listed("Iteration", lambda each: each[1].until_s, _seconds),
        Listed("Waiting for it", lambda each: each[1].default_j, joules),
        Listed("Finishing just in time", lambda each: each[1].energy_j, joules),
        Listed("Change", lambda each: each[1].energy_change, _changed),
    )
    waiting = f"while waiting for the other, it runs at the {before_text(overview.plan)}"
    note = f"Energy of this pipeline in an iteration; {waiting}."
    slow = tuple(overview.stragglers.items())
    return listing("When another pipeline is slow", slow, columns, note) if slow else None


def _by_instruction(boxes: Sequence[Box]) -> dict[tuple[int, str], list[Box]]:
    found: dict[tuple[int, str], list[Box]] = {}
    for box in boxes:
        if box.clocks:
            found.setdefault((box.stage, box.name), []).append(box)
    return found
