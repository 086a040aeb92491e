"""A plan, and the JSON document that holds it (schema ``wastenot.plan/1``)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from wastenot.core.documents import (
    Count,
    Finite,
    Name,
    NotNegative,
    Part,
    Positive,
    SparsePart,
    content_digest,
)
from wastenot.core.files import write_text
from wastenot.core.origin import Origin
from wastenot.core.result import by_name
from wastenot.core.setting import Setting
from wastenot.planning.applicable import Applicable
from wastenot.planning.applicable_today import StatedToday, Today, stated_today, today_of
from wastenot.planning.carbon import Carbon, CarbonIntensity, carbon_of
from wastenot.planning.dwell import Switches
from wastenot.planning.headline import Headline, Interval, headline_of
from wastenot.planning.objective import DEFAULT_CONFIDENCE, Objective
from wastenot.planning.objective_kinds import KERNELS, ObjectiveKind, Scope
from wastenot.planning.schedule import Schedule
from wastenot.study.coverage import Coverage
from wastenot.workloads.identity import EnergyState, Granularity, ModelRun, WorkloadKey
from wastenot.workloads.shape import Shape

SCHEMA: Final = "wastenot.plan/1"
_SOURCES = {"validation": "measured again", "promise": "promised", "measurements": "as measured"}


class Goal(SparsePart):
    """What the plan was asked for; see :class:`wastenot.planning.objective.Objective`.

    Attributes:
        confidence: with which the plan keeps its slowdown; ``None`` where it promises nothing.
        basis: the numbers it was chosen by: the study's as ``measured``, or ``corrected`` for noise.
        carbon: of the grid, where the plan is to emit little.
    """

    kind: ObjectiveKind
    max_slowdown: Finite | None
    edp_exponent: NotNegative | None
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] | None = None
    basis: Literal["measured", "corrected"] = "measured"
    carbon: CarbonIntensity | None = None

    @classmethod
    def of(cls, objective: Objective, *, corrected: bool) -> Self:
        """What a plan was asked for, and whether it was chosen by numbers corrected for noise."""
        promises = corrected and objective.max_slowdown is not None
        return cls(
            kind=objective.kind,
            max_slowdown=objective.max_slowdown,
            edp_exponent=objective.edp_exponent if "edp_exponent" in objective.rules.parameters else None,
            confidence=(objective.confidence or DEFAULT_CONFIDENCE) if promises else None,
            basis="corrected" if corrected else "measured",
            carbon=objective.carbon_g_per_kwh,
        )

    @property
    def saves_time(self) -> bool:
        """Whether the plan is for saving time rather than energy."""
        return KERNELS[self.kind].saves == "time"

    @property
    def objective(self) -> Objective:
        """The objective, to plan again."""
        exponent = 1.0 if self.edp_exponent is None else self.edp_exponent
        return Objective(self.kind, self.max_slowdown, exponent, self.confidence, not self.corrected, self.carbon)

    @property
    def corrected(self) -> bool:
        """Whether the plan was chosen by numbers corrected for noise; older files say so by their confidence alone."""
        return self.basis == "corrected" or self.confidence is not None


class Total(Part):
    """Time and energy of one iteration, with standard errors (``None`` where a part of them is unknown)."""

    time_s: Positive
    energy_j: Positive
    time_se_s: NotNegative | None
    energy_se_j: NotNegative | None


class PredictedTotal(Total):
    """The plan's iteration, and how it differs from the baseline: changes are plan/baseline − 1."""

    time_change: Finite
    energy_change: Finite
    time_change_se: NotNegative | None
    energy_change_se: NotNegative | None


class Expected(Part):
    """The plan's expected true time and energy, corrected for the luck of choosing among noisy measurements.

    Attributes:
        level: probability that a true change is within its interval.
        probability_within_budget: that the plan's true time is within its budget; ``None`` where there is no budget.
    """

    level: Annotated[float, Field(gt=0.0, lt=1.0)]
    time_s: Positive
    energy_j: Positive
    time_change: Finite
    time_change_interval: Interval
    energy_change: Finite
    energy_change_interval: Interval
    probability_within_budget: Annotated[float, Field(ge=0.0, le=1.0)] | None


class Measured(Part):
    """One measured change: the mean over repeats, its interval, and the range over all pairs of repeats."""

    mean: Finite
    interval: Interval
    least: Finite
    most: Finite


class Validation(Part):
    """The plan and auto measured again, interleaved (paper, §6, Validation; Fig. 7).

    Attributes:
        repeats: of the plan, and of auto.
        level: of the intervals, which are of the mean over repeats.
        pairs: of one repeat of the plan and one of auto.
        time_s: of an iteration under the plan in each repeat, as are the other three.
    """

    device: str
    repeats: Annotated[int, Field(ge=2)]
    level: Annotated[float, Field(gt=0.0, lt=1.0)]
    pairs: Annotated[int, Field(ge=4)]
    time_s: Annotated[tuple[Positive, ...], Field(strict=False)]
    energy_j: Annotated[tuple[Positive, ...], Field(strict=False)]
    baseline_time_s: Annotated[tuple[Positive, ...], Field(strict=False)]
    baseline_energy_j: Annotated[tuple[Positive, ...], Field(strict=False)]
    time_change: Measured
    energy_change: Measured


class Waste(Part):
    """What the baseline wastes (paper, Eq. 2): its energy less the least energy at no more time."""

    joules: NotNegative
    share: NotNegative


class Potential(Part):
    """The best plan of the numbers as measured: what the same objective would seem to give, favourable errors included."""

    time_change: Finite
    energy_change: Finite


class Tolerance(Part):
    """What a slowdown would save that is too small for a run to show, beside a plan that allows none.

    Attributes:
        max_slowdown: that would be allowed.
        energy_change: expected, with its 95 % interval.
    """

    max_slowdown: Positive
    energy_change: Finite
    energy_change_interval: Interval


class Certificate(Part):
    """The proof: no plan of this granularity and scope that keeps the budget needs less than the lower bound.

    It speaks of plans of the points that were measured; the plan's ``coverage`` says whether these are all intended ones.
    Of a plan chosen by corrected numbers it is about expected energies, and plans that keep the budget with the confidence.

    Attributes:
        lower_bound_j: the bound.
        gap: (energy of the plan − bound) / energy of the plan; 0 is the best of the points measured.
        budget_s: the time budget that the bound holds for: what was allowed, or the plan's own time where nothing was.
    """

    lower_bound_j: Positive
    gap: NotNegative
    budget_s: Positive


class Fastest(Part):
    """The least time that any settings could give, and its change from the baseline."""

    time_s: Positive
    time_change: Finite


class Assignment(SparsePart):
    """The setting of one kernel; ``None`` is auto. Time and energy are of one call, changes against its baseline."""

    kernel: str
    pass_name: str | None = Field(alias="pass")
    block: str | None
    unit: str
    count: Annotated[int, Field(gt=0)]
    core_mhz: Positive | None
    memory_mhz: Positive | None
    power_limit_w: Positive | None
    time_s: Positive
    energy_j: Positive
    time_change: Finite
    energy_change: Finite
    profile: Name | None = None

    @property
    def setting(self) -> Setting:
        """The setting as a value."""
        return Setting(self.core_mhz, self.memory_mhz, self.power_limit_w, self.profile)


class Tuned(SparsePart):
    """How a plan was found by tuning a running job rather than by a sweep.

    Attributes:
        settings: that were tried.
        trials: of them, each against the default clocks.
        iterations: of the job that it took.
        regret: fraction of energy by which another setting might be better, at most.
        proxy_error: how far all of it may be off, where units of memory traffic stood for iterations; ``None`` where not.
    """

    settings: Count
    trials: Count
    iterations: Count
    regret: NotNegative
    proxy_error: NotNegative | None = None


class Plan(Part):
    """One setting for every unit of a workload, what it is predicted to give, and the proof that it is best."""

    schema_: Literal["wastenot.plan/1"] = Field(alias="schema")
    origin: Origin
    device: str
    workload: str
    objective: Goal
    granularity: Granularity
    scope: Scope
    clock_tolerance_mhz: NotNegative
    baseline: Total
    predicted: PredictedTotal
    waste: Waste
    certificate: Certificate
    fastest: Fastest
    switches: Switches
    assignments: Annotated[tuple[Assignment, ...], Field(min_length=1, strict=False)]
    state: EnergyState = "ssp"
    measured_granularity: Granularity = "kernel"
    model: str | None = None
    shape: Shape | None = None
    captured_on: str | None = None
    coverage: Coverage | None = None
    expected: Expected | None = None
    validation: Validation | None = None
    applicable: Applicable | None = None
    schedule: Schedule | None = None
    potential: Potential | None = None
    tolerance: Tolerance | None = None
    tuned: Tuned | None = None
    stated_headline: Headline | None = Field(default=None, alias="headline")
    stated_today: StatedToday | None = Field(default=None, alias="today")
    stated_carbon: Carbon | None = Field(default=None, alias="carbon")
    digest: str = ""

    @property
    def headline(self) -> Headline:
        """Energy and time change as they are to be shown: measured again, promised, or as measured."""
        return headline_of(self)

    @property
    def today(self) -> Today:
        """What of the plan can be applied today, at today's switching speed."""
        return today_of(self)

    @property
    def carbon(self) -> Carbon | None:
        """What the headline is worth in CO2e, where the plan is to emit little."""
        goal = self.objective
        return None if goal.carbon is None else carbon_of(goal.carbon, self.headline, self.baseline)

    @property
    def measured(self) -> WorkloadKey:
        """The measurements that the plan was made of."""
        return WorkloadKey(self.workload, self.state, self.measured_granularity)

    @property
    def run(self) -> ModelRun | None:
        """The model that the workload is of, and how that is run; ``None`` where not known."""
        return None if self.model is None or self.shape is None else ModelRun(self.model, self.shape)

    def sealed(self) -> Self:
        """The same plan with its headline, and with the digest of its content, by which an edit is noticed."""
        headed = self.model_copy(
            update={
                "stated_headline": self.headline,
                "stated_today": None if self.applicable is None else stated_today(self),
                "stated_carbon": self.carbon,
            }
        )
        return headed.model_copy(update={"digest": content_digest(headed.document())})

    def document(self) -> dict[str, Any]:
        """The plan as JSON values; optional parts that it does not have are left out."""
        values = self.model_dump(mode="json", by_alias=True)
        optional = (
            "model", "shape", "captured_on", "coverage", "expected", "validation", "applicable", "schedule", "potential",
            "tolerance", "tuned", "headline", "today", "carbon",
        )  # fmt: skip
        for part in optional:
            if values[part] is None:
                del values[part]
        if "coverage" in values:
            values["coverage"] = {name: value for name, value in values["coverage"].items() if value is not None}
        return values

    def to_json(self) -> str:
        """The plan as a JSON document, for people to read as well."""
        return json.dumps(self.document(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON document; raises :class:`BadInputError` where that is not possible."""
        write_text(path, self.to_json())

    def page(
        self,
        path: str | os.PathLike[str],
        *,
        study: object,
        figures: str | os.PathLike[str] | None = None,
        command: str | None = None,
    ) -> tuple[Path, ...]:
        """Write the plan's page; arguments and errors are those of :func:`wastenot.report`.

        Args:
            path: the HTML file to create or replace.
            study: that the plan was made from, whose measurements the page shows, too.
            figures: folder to write every figure to as SVG, PDF and PNG.
            command: that makes the page again, shown in its foot.

        Returns:
            The files written.
        """
        files: tuple[Path, ...] = by_name("wastenot.kernels.page.page:report")(
            study, path, plan=self, figures=figures, command=command
        )
        return files

    def __repr__(self) -> str:
        goal = self.objective.kind + ("" if self.objective.max_slowdown is None else f" {self.objective.max_slowdown:g}")
        return (
            f"Plan('{self.workload}' on '{self.device}', {self.origin}: {goal}, {self.granularity}, {self.scope}; "
            f"{len(self.assignments)} kernels, energy {self.headline.energy_change:+.2%}, "
            f"time {self.headline.time_change:+.2%}, {_SOURCES[self.headline.source]})"
        )

    __str__ = __repr__
