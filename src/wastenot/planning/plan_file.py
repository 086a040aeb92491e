"""A plan's file, read and checked: that it is complete, consistent, and as it was written."""

from __future__ import annotations

import math
from collections.abc import Iterator

from wastenot.core.documents import content_digest, read_document
from wastenot.core.files import PathLike
from wastenot.frontiers.exact import exact_sum
from wastenot.planning.dwell import count_switches
from wastenot.planning.plan import Plan
from wastenot.planning.schedule import Schedule

_SAME = 1e-9  # relative difference of two numbers that are one number written twice


def read_plan(path: PathLike | Plan) -> Plan:
    """Read a plan and check that it is complete, consistent and unedited; one that is read already is returned as it is.

    Raises:
        BadInputError: it is not; the text gives file, line and field.
    """
    if isinstance(path, Plan):
        return path
    document = read_document(path, Plan, "make the plan again with 'wastenot kernel plan'")
    plan = document.content
    for field, stated, true in _recomputed(plan):
        if not math.isclose(stated, true, rel_tol=_SAME, abs_tol=_SAME):
            raise document.error(field, f"is {stated!r} but the other fields give {true!r}: the file was edited")
    if plan.digest != content_digest(plan.document()):
        raise document.error(("digest",), "does not match the content: the file was edited")
    return plan


def _recomputed(plan: Plan) -> Iterator[tuple[tuple[int | str, ...], float, float]]:
    """Fields of a plan that follow from its others, by which an edit is noticed: (field, as stated, as it should be)."""
    base, predicted, expected, rows = plan.baseline, plan.predicted, plan.expected, plan.assignments
    for index, row in enumerate(rows):
        if row.time_change <= -1.0 or row.energy_change <= -1.0:
            yield ("assignments", index, "time_change"), row.time_change, 0.0
            return
    time_s = float(exact_sum((row.count, row.time_s) for row in rows))
    energy_j = float(exact_sum((row.count, row.energy_j) for row in rows))
    base_time_s = math.fsum(row.count * row.time_s / (1 + row.time_change) for row in rows)
    base_energy_j = math.fsum(row.count * row.energy_j / (1 + row.energy_change) for row in rows)
    yield ("predicted", "time_s"), predicted.time_s, time_s
    yield ("predicted", "energy_j"), predicted.energy_j, energy_j
    yield ("predicted", "time_change"), predicted.time_change, predicted.time_s / base.time_s - 1
    yield ("predicted", "energy_change"), predicted.energy_change, predicted.energy_j / base.energy_j - 1
    yield ("baseline", "time_s"), base.time_s, base_time_s
    yield ("baseline", "energy_j"), base.energy_j, base_energy_j
    if plan.switches.shortest_dwell_s is not None:
        yield ("switches", "shortest_dwell_s"), plan.switches.shortest_dwell_s, count_switches(rows).shortest_dwell_s or 0.0
    yield ("fastest", "time_change"), plan.fastest.time_change, plan.fastest.time_s / base.time_s - 1
    yield ("waste", "share"), plan.waste.share, plan.waste.joules / base.energy_j
    if expected is not None:
        for name, (low, high), middle in (
            ("time_change_interval", expected.time_change_interval, expected.time_change),
            ("energy_change_interval", expected.energy_change_interval, expected.energy_change),
        ):
            yield ("expected", name), 0.5 * (low + high), middle
    certified = predicted if expected is None or not plan.objective.corrected else expected
    energy_j, bound_j = certified.energy_j, plan.certificate.lower_bound_j
    yield ("certificate", "gap"), plan.certificate.gap, (energy_j - bound_j) / energy_j
    changes = ("energy_change", "time_change")
    for part, stated, true in (("headline", plan.stated_headline, plan.headline), ("today", plan.stated_today, plan.today)):
        yield from () if stated is None else (((part, name), getattr(stated, name), getattr(true, name)) for name in changes)
    if plan.stated_carbon is not None and plan.carbon is not None:
        for name in ("baseline_g", "saved_g", "saved_j", "change"):
            yield ("carbon", name), getattr(plan.stated_carbon, name), getattr(plan.carbon, name)
    if plan.schedule is not None:
        yield from _recomputed_schedule(plan.schedule)
    if plan.validation is not None:
        yield ("validation", "pairs"), plan.validation.pairs, plan.validation.repeats**2


def _recomputed_schedule(schedule: Schedule) -> Iterator[tuple[tuple[int | str, ...], float, float]]:
    """The same of a schedule."""
    base = schedule.rungs[-1]
    for index, rung in enumerate(schedule.rungs):
        where = ("schedule", "rungs", index)
        yield (*where, "time_s"), rung.time_s, math.fsum(segment.time_s for segment in rung.segments)
        yield (*where, "energy_j"), rung.energy_j, math.fsum(segment.energy_j for segment in rung.segments)
        yield (*where, "time_change"), rung.time_change, rung.time_s / base.time_s - 1
        yield (*where, "energy_change"), rung.energy_change, rung.energy_j / base.energy_j - 1
    energy_j = schedule.rungs[0].energy_j
    yield ("schedule", "gap"), schedule.gap, (energy_j - schedule.lower_bound_j) / energy_j
