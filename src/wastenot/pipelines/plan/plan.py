"""A pipeline's plan, and the JSON document that holds it (schema ``wastenot.pipeline/1``)."""

from __future__ import annotations

import json
import os
import re
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field

from wastenot.core.documents import Count, Finite, Name, NotNegative, Part, Positive, SparsePart, content_digest
from wastenot.core.files import write_text
from wastenot.core.origin import Origin
from wastenot.core.result import HasPage
from wastenot.core.setting import Setting
from wastenot.pipelines.model.profile import BaselineClocks
from wastenot.planning.headline import Interval
from wastenot.planning.switching import SwitchTime

SCHEMA: Final = "wastenot.pipeline/1"
OF_THE_PROFILE: Final = (
    "name", "device", "origin", "gpus_per_stage", "replicas", "waiting_w", "transfer_s", "iteration_s", "iteration_j",
    "baseline_clocks", "recomputes", "notes",
)  # fmt: skip
"""What a plan says as the profile that it was made from."""

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
        clocks: one setting for the whole instruction, or several, each for a number of ``kernels`` of it, in order.
        time_s: on one GPU, for one micro-batch.
        energy_j: likewise.
    """

    stage: Count
    instruction: Name
    clocks: Annotated[tuple[Clocks, ...], Field(strict=False, min_length=1)]
    time_s: Positive
    energy_j: Positive


class RankPlan(SparsePart):
    """What one rank runs.

    Attributes:
        instructions: in order of execution: (index into the plan's ways, micro-batch).
        beside: of each ``forward_backward`` among them, in order, the backward: (stage, micro-batch).
    """

    instructions: Annotated[
        tuple[Annotated[tuple[Count, Count], Field(strict=False)], ...], Field(strict=False, min_length=1)
    ]
    beside: Annotated[tuple[Annotated[tuple[Count, Count], Field(strict=False)], ...], Field(strict=False)] = ()


class FixedWork(Part):
    """Work of a stage that takes the same time at every clock; see :class:`wastenot.pipelines.model.profile.Fixed`.

    Attributes:
        energy_j: of one GPU; ``None`` where it draws what it draws while it waits.
        overlapped: it runs beside the stage's last backward.
    """

    stage: Count
    name: Name
    time_s: NotNegative
    energy_j: NotNegative | None = None
    overlapped: bool = False


class Iteration(Part):
    """Time of an iteration, and energy of all GPUs of the pipeline, waiting included."""

    time_s: Positive
    energy_j: Positive


class Promise(Part):
    """What becomes of the plan under all errors of the numbers that it was made from.

    Attributes:
        confidence: with which the plan was to keep its slowdown.
        probability: with which it does.
        level: of the intervals.
        time_change: of an iteration, expected, relative to the baseline.
        energy_change: of all GPUs, likewise.
    """

    confidence: Annotated[float, Field(gt=0.5, lt=1.0)]
    probability: Annotated[float, Field(ge=0.0, le=1.0)]
    level: Annotated[float, Field(gt=0.0, lt=1.0)]
    time_change: Finite
    time_change_interval: Interval
    energy_change: Finite
    energy_change_interval: Interval

    @property
    def sure(self) -> float:
        """The confidence with which the slowdown may be said to be kept."""
        return min(self.confidence, self.probability)


class Rung(Part):
    """Another plan of the same pipeline, of least energy at another deadline.

    Attributes:
        within_s: the deadline of an iteration.
        time_s: of an iteration.
        energy_j: of all GPUs of the pipeline in that time; who waits longer adds ``waiting_w`` of each GPU.
        lower_bound_j: no plan within ``within_s`` needs less.
        stragglers_only: it is slower than the plan of least energy, and saves only while all wait.
        sure_s: time of an iteration with the plan's confidence, where one of the plan itself takes as long as predicted;
            ``None`` if the noise of the numbers is unknown.
        ways: for each rank the ways of its instructions, in the order of the plan's :attr:`PipelinePlan.ranks`.
    """

    within_s: Positive
    time_s: Positive
    energy_j: Positive
    lower_bound_j: Positive
    stragglers_only: bool = False
    sure_s: Positive | None = None
    ways: Annotated[tuple[Annotated[tuple[Count, ...], Field(strict=False)], ...], Field(strict=False)]


class PipelinePlan(HasPage, Part):
    """Settings for each instruction of each rank.

    Attributes:
        origin: where the times and energies come from.
        ranks: of one pipeline; each stands for ``gpus_per_stage`` GPUs.
        replicas: number of pipelines (data-parallel degree); energies are of one.
        max_slowdown: limit, relative to the baseline's iteration.
        within_s: what the iteration was to be done within.
        until_s: iteration time of a slower pipeline (a straggler) that all wait for; ``None`` if there is none.
        baseline: at the default clocks, waiting for the straggler too.
        baseline_clocks: what stands in for the default clocks.
        predicted: under the plan, likewise.
        lower_bound_j: no plan within the deadline needs less, by the numbers expected.
        promise: confidence of staying within the slowdown limit; ``None`` if the noise of the numbers is unknown.
        defaults: each instruction of each stage as it runs in the baseline.
        fixed: loads, sends, receives and the like, which have no ways.
        recomputes: whether a backward runs the forward again first.
        switching: how long the device takes to change clocks: the plan's settings last at least as long; ``None`` where it
            was planned as if that took no time.
        lasting_lower_bound_j: no plan within the deadline needs less whose settings last as long and that keeps as much time
            in reserve; ``None`` where switching takes no time.
        free: under the plan as it would be if switching took no time, to compare; ``None`` where this is that plan.
        time_limit_s: for improving the plan, which then depends on how fast the machine was; ``None`` where its work was
            fixed, and the same question has the same plan.
        notes: what was assumed, for a reader.
        rungs: plans along the frontier, and this one, by rising time, whose settings last as long as this plan's; those
            slower than that of least energy are for stragglers only.
        digest: of the content, by which an edit is noticed.
    """

    drawn_by: ClassVar[str] = "wastenot.pipelines.page.page:plan_page"

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
    promise: Promise | None = None
    ways: Annotated[tuple[Way, ...], Field(strict=False, min_length=1)]
    ranks: Annotated[tuple[RankPlan, ...], Field(strict=False, min_length=1)]
    defaults: Annotated[tuple[Way, ...], Field(strict=False)] = ()
    fixed: Annotated[tuple[FixedWork, ...], Field(strict=False)] = ()
    recomputes: bool = False
    switching: SwitchTime | None = None
    free: Iteration | None = None
    lasting_lower_bound_j: Positive | None = None
    time_limit_s: Positive | None = None
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    rungs: Annotated[tuple[Rung, ...], Field(strict=False)] = ()
    digest: str = ""

    @property
    def energy_change(self) -> float:
        """Energy of an iteration under the plan, relative to the baseline; negative is saved."""
        return self.predicted.energy_j / self.baseline.energy_j - 1.0

    @property
    def free_energy_change(self) -> float:
        """As :attr:`energy_change`, if switching took no time."""
        return (self.free or self.predicted).energy_j / self.baseline.energy_j - 1.0

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
    def lasting_gap(self) -> float | None:
        """As :attr:`gap`, of plans whose settings last; ``None`` without their bound."""
        least_j = self.lasting_lower_bound_j
        return None if least_j is None else (self.predicted.energy_j - least_j) / self.predicted.energy_j

    @property
    def gpus(self) -> int:
        """GPUs of one pipeline."""
        return len(self.ranks) * self.gpus_per_stage

    @property
    def own_baseline_j(self) -> float:
        """Energy of an iteration at the default clocks that waits for no straggler."""
        waited_s = max((self.until_s or 0.0) - self.baseline.time_s, 0.0)
        return self.baseline.energy_j - self.waiting_w * self.gpus * waited_s

    def sealed(self) -> Self:
        """The same plan with the digest of its content."""
        return self.model_copy(update={"digest": self.content_digest()})

    def document(self) -> dict[str, Any]:
        """The plan as JSON values; what only some plans, ranks and rungs have is left out of the others."""
        absent = {name for name in ("time_limit_s", "lasting_lower_bound_j") if getattr(self, name) is None}
        content = self.model_dump(mode="json", by_alias=True, exclude=absent)
        for rung in content["rungs"]:
            if rung["sure_s"] is None:
                del rung["sure_s"]
        return content

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

    def content_digest(self) -> str:
        """The digest of what the plan says."""
        content = self.document()
        for name in ("switching", "free"):  # files from before these keep their digests
            if content[name] is None:
                del content[name]
        return content_digest(content)
