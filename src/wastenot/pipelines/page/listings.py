"""The numbers under the figures: stages, ranks, plans at other deadlines, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.pages.formatting import change, percent, quantity
from wastenot.pages.table import Column, Fold, Row, Table
from wastenot.pipelines.page.drawing import before_text, instruction_text, mhz_text
from wastenot.pipelines.page.story import joules
from wastenot.pipelines.plan.overview import Box, PipelineOverview

_SHOWN = 24


def stages_table(overview: PipelineOverview) -> Table:
    """Each instruction of each stage, before and after."""
    columns = (
        Column("Instruction"), Column("Times an iteration", numeric=True), Column("Time before", numeric=True),
        Column("Time, mean", numeric=True), Column("Energy before", numeric=True), Column("Energy, mean", numeric=True),
        Column("Mean clock", numeric=True), Column("Lowest", numeric=True), Column("Highest", numeric=True),
    )  # fmt: skip
    before, after = _by_instruction(overview.before.boxes), _by_instruction(overview.after.boxes)
    rows = []
    for (stage, name), boxes in sorted(after.items(), key=lambda item: item[0][0]):
        was = before[stage, name][0]
        time_s, energy_j = (sum(getattr(box, field) for box in boxes) / len(boxes) for field in ("time_s", "energy_j"))
        clocks = [box.core_mhz for box in boxes if box.core_mhz is not None]
        mean = sum(clocks) / len(clocks) if clocks else None
        low, high = (min(clocks), max(clocks)) if clocks else (None, None)
        high = None if len(clocks) < len(boxes) else high  # the GPU may take any
        what = f"{instruction_text(name)}, stage {stage}"
        rows.append(
            Row(
                None,
                (
                    what, f"{len(boxes):,}", quantity(was.time_s, "s", 4), quantity(time_s, "s", 4),
                    quantity(was.energy_j, "J", 4), quantity(energy_j, "J", 4), *map(mhz_text, (mean, low, high)),
                ),
                (what, len(boxes), was.time_s, time_s, was.energy_j, energy_j, mean, low, high),
            )
        )  # fmt: skip
    before_is = f"before is at the {before_text(overview.plan)}"
    note = f"For one micro-batch on one GPU; {before_is}; the mean clock is of those that are set."
    fold = Fold(_SHOWN, f"{len(rows) - _SHOWN} more") if len(rows) > _SHOWN else None
    return Table("Instructions of each stage", columns, tuple(rows), note, fold)


def ranks_table(overview: PipelineOverview) -> Table:
    """Energy of each rank's GPUs, before and after."""
    columns = (
        Column("Rank"), Column("Energy before", numeric=True), Column("Energy", numeric=True),
        Column("Change", numeric=True), Column("Waiting before", numeric=True), Column("Waiting", numeric=True),
    )  # fmt: skip
    before, after, rows = overview.before, overview.after, []
    for rank in range(len(overview.plan.ranks)):
        was_j, is_j = (float(line.working_j[rank] + line.waiting_j[rank]) for line in (before, after))
        waited, waits = float(before.rank_waiting[rank]), float(after.rank_waiting[rank])
        texts = (
            f"rank {rank}", joules(was_j), joules(is_j), change(is_j / was_j - 1.0, 1),
            percent(waited, 1), percent(waits, 1),
        )  # fmt: skip
        rows.append(Row(None, texts, (rank, was_j, is_j, is_j / was_j - 1.0, waited, waits)))
    note = "Energy of all GPUs of a rank in an iteration; waiting: fraction of the iteration's time."
    fold = Fold(_SHOWN, f"{len(rows) - _SHOWN} more") if len(rows) > _SHOWN else None
    return Table("Ranks", columns, tuple(rows), note, fold)


def frontier_table(overview: PipelineOverview) -> Table | None:
    """Plans at other deadlines; ``None`` where there are none."""
    if not overview.frontier:
        return None
    baseline = overview.plan.baseline
    columns = (
        Column("Time"), Column("Against the default", numeric=True), Column("Energy", numeric=True),
        Column("Change", numeric=True), Column("Above the bound by at most", numeric=True),
    )  # fmt: skip
    rows = []
    for each in overview.frontier:
        slower, saved = each.time_s / baseline.time_s - 1.0, each.energy_j / _own_baseline_j(overview) - 1.0
        gap = (each.energy_j - each.lower_bound_j) / each.energy_j
        texts = (quantity(each.time_s, "s", 5), change(slower), joules(each.energy_j), change(saved), percent(gap))
        rows.append(Row(None, texts, (each.time_s, slower, each.energy_j, saved, gap)))
    fold = Fold(10, f"{len(rows) - 10} more") if len(rows) > 10 else None
    return Table("Plans at other deadlines", columns, tuple(rows), None, fold)


def _own_baseline_j(overview: PipelineOverview) -> float:
    """Energy at the default clocks without waiting for anybody."""
    plan, before = overview.plan, overview.before
    return before.energy_j - plan.gpus * plan.waiting_w * (before.lasts_s - before.time_s)


def stragglers_table(overview: PipelineOverview) -> Table | None:
    """What plans save while another pipeline is slow; ``None`` where that is not known."""
    if not overview.stragglers:
        return None
    columns = (
        Column("Another pipeline is slower by"), Column("Iteration", numeric=True), Column("Waiting for it", numeric=True),
        Column("Done just then", numeric=True), Column("Change", numeric=True),
    )  # fmt: skip
    rows = [
        Row(
            None,
            (
                percent(each.slowdown, 0), quantity(each.until_s, "s", 4), joules(each.waiting_j), joules(each.energy_j),
                change(each.energy_change, 1),
            ),
            (each.slowdown, each.until_s, each.waiting_j, each.energy_j, each.energy_change),
        )
        for each in overview.stragglers
    ]  # fmt: skip
    note = f"Energy of this pipeline in an iteration; waiting for the other is at the {before_text(overview.plan)}."
    return Table("When another pipeline is slow", columns, tuple(rows), note)


def _by_instruction(boxes: Sequence[Box]) -> dict[tuple[int, str], list[Box]]:
    found: dict[tuple[int, str], list[Box]] = {}
    for box in boxes:
        if box.clocks:
            found.setdefault((box.stage, box.name), []).append(box)
    return found
