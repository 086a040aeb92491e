"""Reading a pipeline's plan: whole, consistent, and as it was written."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from wastenot.core.documents import read_document
from wastenot.core.errors import BadInputError
from wastenot.pipelines.plan.plan import Iteration, PipelinePlan, Rung
from wastenot.pipelines.plan.rank_steps import PlanGraph

_SAME = 1e-9  # relative difference of two numbers that are one number written twice
_REMEDY = "make the plan again with 'wastenot pipeline plan'"

_Field = tuple[int | str, ...]


def read_pipeline_plan(path: str | os.PathLike[str]) -> PipelinePlan:
    """Read a pipeline's plan, as :func:`wastenot.pipeline` and ``wastenot pipeline plan`` make it.

    Raises:
        BadInputError: it is incomplete or inconsistent, or was edited; the text gives file, line and field.
    """
    document = read_document(path, PipelinePlan, _REMEDY)
    plan = document.content
    for field, problem in _problems(plan):
        raise document.error(field, problem)
    if plan.digest != plan.content_digest():
        raise document.error(("digest",), "does not match the content: the file was edited")
    return plan


def _problems(plan: PipelinePlan) -> Iterator[tuple[_Field, str]]:
    """What does not fit together: the field, and what is wrong with it."""
    for number, way in enumerate(plan.ways):
        if way.stage >= plan.stages:
            yield ("ways", number, "stage"), f"is {way.stage}, where stages are 0 to {plan.stages - 1}"
    for number, rank in enumerate(plan.ranks):
        for place, (taken, micro_batch) in enumerate(rank.instructions):
            where = ("ranks", number, "instructions", place)
            if taken >= len(plan.ways):
                yield where, f"takes way {taken}, where ways are 0 to {len(plan.ways) - 1}"
            if micro_batch >= plan.micro_batches:
                yield where, f"is of micro-batch {micro_batch}, where these are 0 to {plan.micro_batches - 1}"
    for number, rung in enumerate(plan.rungs):
        yield from _misfits(plan, number, rung)
        if number and rung.time_s < plan.rungs[number - 1].time_s:
            yield ("rungs", number, "time_s"), "is less than that of the rung before; rungs must be in ascending order"
    try:
        yield from _wrong_numbers(plan, PlanGraph(plan))
    except BadInputError as error:
        yield ("ranks",), str(error)


def _misfits(plan: PipelinePlan, number: int, rung: Rung) -> Iterator[tuple[_Field, str]]:
    """Ways of a rung that are not those of the plan's instructions."""
    if tuple(map(len, rung.ways)) != tuple(len(rank.instructions) for rank in plan.ranks):
        yield ("rungs", number, "ways"), "does not have the instructions of the plan's ranks"
        return
    if rung.sure_s is not None and rung.sure_s < rung.time_s:
        yield ("rungs", number, "sure_s"), f"is {rung.sure_s!r}, less than the time expected"
    for index, (ways, rank) in enumerate(zip(rung.ways, plan.ranks, strict=True)):
        for place, (way, (own, _)) in enumerate(zip(ways, rank.instructions, strict=True)):
            where = ("rungs", number, "ways", index, place)
            if way >= len(plan.ways):
                yield where, f"is {way}, where ways are 0 to {len(plan.ways) - 1}"
                return
            one, other = plan.ways[way], plan.ways[own]
            if (one.stage, one.instruction) != (other.stage, other.instruction):
                yield where, f"is a {one.instruction} of stage {one.stage}, not a {other.instruction} of stage {other.stage}"


def _wrong_numbers(plan: PipelinePlan, graph: PlanGraph) -> Iterator[tuple[_Field, str]]:
    """Times and energies that do not follow from the instructions."""
    own = tuple(tuple(way for way, _ in rank.instructions) for rank in plan.ranks)
    stated: list[tuple[_Field, Iteration | Rung, tuple[tuple[int, ...], ...], float | None]] = [
        (("predicted",), plan.predicted, own, plan.until_s),
        *((("rungs", number), rung, rung.ways, None) for number, rung in enumerate(plan.rungs)),
    ]
    for where, numbers, ways, until_s in stated:
        solved = graph.timed_as(ways, None if until_s is None else max(until_s - plan.iteration_s, 0.0))
        energy_j = plan.gpus_per_stage * (solved.energy_j + plan.iteration_j * len(plan.ranks))
        for name, written, true in (
            ("time_s", numbers.time_s, solved.time_s + plan.iteration_s),
            ("energy_j", numbers.energy_j, energy_j),
        ):
            if not math.isclose(written, true, rel_tol=_SAME):
                yield (*where, name), f"is {written!r} but the instructions give {true!r}: the file was edited"
