"""A pipeline's plan, and the JSON document that holds it (schema ``wastenot.pipeline/1``)."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from wastenot.documents import Count, Finite, Name, NotNegative, Part, Positive, read_document
from wastenot.files import write_text
from wastenot.origin import Origin
from wastenot.setting import Setting
from wastenot.stack.pipeline.profile import BaselineClocks

SCHEMA: Final = "wastenot.pipeline/1"
_SAME = 1e-9  # relative difference of two numbers that are one number written twice
_INDENT = 2
_ROW = re.compile(r"\[(?:\s|\d|,|\[|\])+\]")  # whole numbers only, however nested


class Clocks(Part):
    """One setting, each part of which may be auto (``None``), for a number of kernels in a row.

    Attributes:
        kernels: how many; ``None`` for all of the instruction.
        time_s: that these kernels take at it, where it is known.
    """

    core_mhz: Positive | None
    memory_mhz: Positive | None = None
    power_limit_w: Positive | None = None
    kernels: Annotated[int, Field(ge=1)] | None = None
    time_s: Positive | None = None

    @property
    def setting(self) -> Setting:
        """The setting as a value."""
        return Setting(self.core_mhz, self.memory_mhz, self.power_limit_w)


class Way(Part):
    """A way that the plan uses to run an instruction of a stage.

    Attributes:
        clocks: one setting for the whole instruction, or several, each for so many ``kernels`` of it, in order.
        time_s: on one GPU, for one micro-batch.
        energy_j: likewise.
    """

    stage: Count
    instruction: Name
    clocks: Annotated[tuple[Clocks, ...], Field(strict=False, min_length=1)]
    time_s: Positive
    energy_j: Positive


class RankPlan(Part):
    """What one rank runs.

    Attributes:
        instructions: in order of execution: (index into the plan's ways, micro-batch).
    """

    instructions: Annotated[
        tuple[Annotated[tuple[Count, Count], Field(strict=False)], ...], Field(strict=False, min_length=1)
    ]


class Iteration(Part):
    """Time of an iteration, and energy of all GPUs of the pipeline, waiting included."""

    time_s: Positive
    energy_j: Positive


class Rung(Part):
    """Another plan of the same pipeline, of least energy at another deadline.

    Attributes:
        within_s: the deadline of an iteration.
        time_s: of an iteration.
        energy_j: of all GPUs of the pipeline in that time; who waits longer adds ``waiting_w`` of each GPU.
        lower_bound_j: no plan within ``within_s`` needs less.
        ways: for each rank the ways of its instructions, in the order of the plan's :attr:`PipelinePlan.ranks`.
    """

    within_s: Positive
    time_s: Positive
    energy_j: Positive
    lower_bound_j: Positive
    ways: Annotated[tuple[Annotated[tuple[Count, ...], Field(strict=False)], ...], Field(strict=False)]


class PipelinePlan(Part):
    """Settings for each instruction of each rank.

    Attributes:
        origin: where the times and energies come from.
        ranks: of one pipeline; each stands for ``gpus_per_stage`` GPUs.
        replicas: pipelines beside each other (data parallel degree); energies are of one.
        max_slowdown: allowed, of the baseline's iteration.
        within_s: what the iteration was to be done within.
        until_s: another pipeline (a straggler) takes so long, and all wait for it; ``None`` where none does.
        baseline: at the default clocks, waiting for the straggler too.
        baseline_clocks: what stands for the default clocks.
        predicted: under the plan, likewise.
        lower_bound_j: no plan within the deadline needs less.
        rungs: plans along the frontier, by rising time; the runtime changes between them as a straggler comes and goes.
        digest: of the content, by which an edit is noticed.
    """

    schema_: Annotated[Literal["wastenot.pipeline/1"], Field(alias="schema")] = SCHEMA
    name: Name
    device: Name
    origin: Origin
    schedule: Name
    stages: Annotated[int, Field(ge=1)]
    micro_batches: Annotated[int, Field(ge=1)]
    gpus_per_stage: Annotated[int, Field(ge=1)]
    replicas: Annotated[int, Field(ge=1)] = 1
    waiting_w: NotNegative
    transfer_s: NotNegative
    iteration_s: NotNegative
    iteration_j: NotNegative
    max_slowdown: Finite | None
    within_s: Positive | None
    until_s: Positive | None
    baseline: Iteration
    baseline_clocks: BaselineClocks = "highest"
    predicted: Iteration
    lower_bound_j: Positive
    ways: Annotated[tuple[Way, ...], Field(strict=False, min_length=1)]
    ranks: Annotated[tuple[RankPlan, ...], Field(strict=False, min_length=1)]
    rungs: Annotated[tuple[Rung, ...], Field(strict=False)] = ()
    digest: str = ""

    @property
    def energy_change(self) -> float:
        """Energy of an iteration under the plan, relative to the baseline; negative is saved."""
        return self.predicted.energy_j / self.baseline.energy_j - 1.0

    @property
    def time_change(self) -> float:
        """Time of an iteration under the plan, relative to the baseline; with a straggler both last until it is done."""
        until_s = self.until_s or 0.0
        return max(self.predicted.time_s, until_s) / max(self.baseline.time_s, until_s) - 1.0

    @property
    def gap(self) -> float:
        """How far the energy can be above the least possible, as a fraction of it."""
        return (self.predicted.energy_j - self.lower_bound_j) / self.predicted.energy_j

    @property
    def gpus(self) -> int:
        """GPUs of one pipeline."""
        return len(self.ranks) * self.gpus_per_stage

    def rung_within(self, time_s: float) -> Rung | None:
        """The rung that costs least of those that are done within a time; ``None`` where none is that fast."""
        waiting_w = self.waiting_w * self.gpus
        fast = (rung for rung in self.rungs if rung.time_s <= time_s)
        return min(fast, key=lambda rung: rung.energy_j - waiting_w * rung.time_s, default=None)

    def sealed(self) -> Self:
        """The same plan with the digest of its content."""
        return self.model_copy(update={"digest": self._digest()})

    def document(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return self.model_dump(mode="json", by_alias=True)

    def to_json(self) -> str:
        """The plan as a JSON document; lists of numbers stand on one line."""
        text = json.dumps(self.document(), indent=_INDENT, ensure_ascii=False, allow_nan=False)
        return _ROW.sub(lambda row: " ".join(row[0].split()).replace("[ ", "[").replace(" ]", "]"), text) + "\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON document; raises :class:`BadInputError` where that is not possible."""
        write_text(path, self.to_json())

    def __repr__(self) -> str:
        return (
            f"PipelinePlan('{self.name}' on '{self.device}', {self.origin}: {self.schedule}, {len(self.ranks)} ranks x "
            f"{self.micro_batches} micro-batches, energy {self.energy_change:+.2%}, time {self.time_change:+.2%})"
        )

    __str__ = __repr__

    def _digest(self) -> str:
        content = self.document()
        del content["digest"]
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def read_pipeline_plan(path: str | os.PathLike[str]) -> PipelinePlan:
    """Read a plan and check that it is whole, consistent, and as it was written.

    Raises:
        BadInputError: it is not; the text gives file, line and field.
    """
    document = read_document(path, PipelinePlan, "make the plan anew with 'wastenot pipeline'")
    plan = document.content
    for field, problem in _problems(plan):
        raise document.error(field, problem)
    if plan.digest != plan._digest():
        raise document.error(("digest",), "does not match the content: the file was edited")
    return plan


_Field = tuple[int | str, ...]


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
                return
            if micro_batch >= plan.micro_batches:
                yield where, f"is of micro-batch {micro_batch}, where these are 0 to {plan.micro_batches - 1}"
    for number, rung in enumerate(plan.rungs):
        yield from _problems_of_rung(plan, number, rung)
        if number and rung.time_s < plan.rungs[number - 1].time_s:
            yield ("rungs", number, "time_s"), "is less than that of the rung before: they are to rise"
    lasts_s = max(plan.predicted.time_s, plan.until_s or 0.0)
    energy_j = _energy_j(plan, (tuple(way for way, _ in rank.instructions) for rank in plan.ranks), lasts_s)
    if not math.isclose(plan.predicted.energy_j, energy_j, rel_tol=_SAME):
        problem = f"is {plan.predicted.energy_j!r} where the instructions add up to {energy_j!r}: the file was edited"
        yield ("predicted", "energy_j"), problem


def _problems_of_rung(plan: PipelinePlan, number: int, rung: Rung) -> Iterator[tuple[_Field, str]]:
    if tuple(map(len, rung.ways)) != tuple(len(rank.instructions) for rank in plan.ranks):
        yield ("rungs", number, "ways"), "has not the instructions of the plan's ranks"
        return
    for index, (ways, rank) in enumerate(zip(rung.ways, plan.ranks, strict=True)):
        for place, (way, (own, _)) in enumerate(zip(ways, rank.instructions, strict=True)):
            where = ("rungs", number, "ways", index, place)
            if way >= len(plan.ways):
                yield where, f"is {way}, where ways are 0 to {len(plan.ways) - 1}"
                return
            one, other = plan.ways[way], plan.ways[own]
            if (one.stage, one.instruction) != (other.stage, other.instruction):
                yield where, f"is a {one.instruction} of stage {one.stage}, not a {other.instruction} of stage {other.stage}"
    energy_j = _energy_j(plan, rung.ways, rung.time_s)
    if not math.isclose(rung.energy_j, energy_j, rel_tol=_SAME):
        problem = f"is {rung.energy_j!r} where the instructions add up to {energy_j!r}: the file was edited"
        yield ("rungs", number, "energy_j"), problem


def _energy_j(plan: PipelinePlan, ranks: Iterable[Iterable[int]], lasts_s: float) -> float:
    """Energy of all GPUs of the pipeline, from the ways that its ranks take."""
    taken = [plan.ways[way] for rank in ranks for way in rank]
    waiting_s = (lasts_s - plan.iteration_s) * len(plan.ranks) - math.fsum(way.time_s for way in taken)
    one = math.fsum(way.energy_j for way in taken) + plan.waiting_w * waiting_s + plan.iteration_j * len(plan.ranks)
    return plan.gpus_per_stage * one
