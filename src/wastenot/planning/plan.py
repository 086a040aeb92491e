"""A plan, and the JSON document that holds it (schema ``wastenot.plan/1``)."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wastenot.errors import BadInputError
from wastenot.files import write_text
from wastenot.json_lines import line_of
from wastenot.origin import Origin
from wastenot.planning.objective import Granularity, Scope
from wastenot.planning.plan_check import recomputed
from wastenot.setting import Setting

SCHEMA: Final = "wastenot.plan/1"
_SAME = 1e-9  # relative difference of two numbers that are one number written twice

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Error = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class Goal(_Part):
    """What the plan was asked for; see :class:`wastenot.planning.objective.Objective`."""

    kind: Literal["waste", "edp", "energy", "time"]
    max_slowdown: Finite | None
    edp_exponent: Error | None
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] | None = None


class Total(_Part):
    """Time and energy of one iteration, with standard errors (``None`` where a part of them is unknown)."""

    time_s: Positive
    energy_j: Positive
    time_se_s: Error | None
    energy_se_j: Error | None


class Prediction(Total):
    """The plan's iteration, and how it differs from the baseline: changes are plan/baseline − 1."""

    time_change: Finite
    energy_change: Finite
    time_change_se: Error | None
    energy_change_se: Error | None


Interval = Annotated[tuple[Finite, Finite], Field(strict=False)]


class Expected(_Part):
    """What the plan is believed to give in truth, once luck in choosing among noisy measurements is taken out.

    Attributes:
        level: probability that a true change is within its interval.
        probability_within_budget: that the plan's true time is; ``None`` where nothing was to be kept.
    """

    level: Annotated[float, Field(gt=0.0, lt=1.0)]
    time_s: Positive
    energy_j: Positive
    time_change: Finite
    time_change_interval: Interval
    energy_change: Finite
    energy_change_interval: Interval
    probability_within_budget: Annotated[float, Field(ge=0.0, le=1.0)] | None


class Measured(_Part):
    """One change as measured again: the mean over repeats, its interval, and the range of all pairs of repeats."""

    mean: Finite
    interval: Interval
    least: Finite
    most: Finite


class Validation(_Part):
    """The plan and auto measured again in turn (paper, §6, Validation; Fig. 7).

    Attributes:
        device: that they were measured on.
        repeats: of the plan, and of auto.
        level: of the intervals, which are of the mean over repeats.
        pairs: of one repeat of the plan and one of auto.
        time_s: of an iteration under the plan in each repeat.
        energy_j: likewise.
        baseline_time_s: of an iteration at auto in each repeat.
        baseline_energy_j: likewise.
        time_change: against auto.
        energy_change: against auto.
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


class Waste(_Part):
    """What the baseline wastes (paper, Eq. 2): its energy less the least energy at no more time."""

    joules: Error
    share: Error


class Certificate(_Part):
    """The proof: no plan of this granularity and scope that keeps the budget needs less than the lower bound.

    Of a plan made with a confidence it is about expected energies, and plans that keep the budget with the confidence.

    Attributes:
        lower_bound_j: the bound.
        gap: (energy of the plan − bound) / energy of the plan; 0 is proven best.
        budget_s: the time budget that the bound holds for: what was allowed, or the plan's own time where nothing was.
    """

    lower_bound_j: Positive
    gap: Error
    budget_s: Positive


class Fastest(_Part):
    """The least time that any settings could give, and its change from the baseline."""

    time_s: Positive
    time_change: Finite


class Switches(_Part):
    """How often clocks change when iterations follow each other, and how long they stay between changes."""

    per_iteration: Annotated[int, Field(ge=0)]
    mean_dwell_s: Positive | None


class Assignment(_Part):
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

    @property
    def setting(self) -> Setting:
        """The setting as a value."""
        return Setting(self.core_mhz, self.memory_mhz, self.power_limit_w)


class Plan(_Part):
    """One setting for every unit of a workload, what it is predicted to give, and the proof that it is best."""

    schema_: Literal["wastenot.plan/1"] = Field(alias="schema")
    origin: Origin
    device: str
    workload: str
    objective: Goal
    granularity: Granularity
    scope: Scope
    clock_tolerance_mhz: Error
    baseline: Total
    predicted: Prediction
    waste: Waste
    certificate: Certificate
    fastest: Fastest
    switches: Switches
    assignments: Annotated[tuple[Assignment, ...], Field(min_length=1, strict=False)]
    expected: Expected | None = None
    validation: Validation | None = None
    digest: str = ""

    def sealed(self) -> Self:
        """The same plan with the digest of its content, by which an edit is noticed."""
        return self.model_copy(update={"digest": self._digest()})

    def document(self) -> dict[str, Any]:
        """The plan as JSON values; parts that it does not have are left out, as in files of before there were such."""
        found = self.model_dump(mode="json", by_alias=True)
        for holder, part in ((found, "expected"), (found, "validation"), (found["objective"], "confidence")):
            if holder[part] is None:
                del holder[part]
        return found

    def to_json(self) -> str:
        """The plan as a JSON document, for people to read as well."""
        return json.dumps(self.document(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON document; raises :class:`BadInputError` where that is not possible."""
        write_text(path, self.to_json())

    def _digest(self) -> str:
        content = self.document()
        del content["digest"]
        canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan and check that it is whole, consistent, and as it was written.

    Raises:
        BadInputError: it is not; the text gives file, line and field.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}; make a plan with 'wastenot plan'") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: is not a plan: byte {error.start} is not UTF-8") from error

    def refuse(field: tuple[int | str, ...], what: str) -> BadInputError:
        name = ".".join(map(str, field)) or "document"
        return BadInputError(f"{path}:{line_of(text, field)}: {name}: {what}; make the plan anew with 'wastenot plan'")

    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise BadInputError(f"{path}:{line}: not a plan: not JSON ({error})") from error
    except ValueError as error:
        raise BadInputError(f"{path}: not a plan: {error}") from error
    if not isinstance(document, dict):
        raise refuse((), "is not a JSON object")
    if document.get("schema") != SCHEMA:
        raise refuse(("schema",), f"is {document.get('schema')!r}, where this version reads {SCHEMA!r}")
    try:
        plan = Plan.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise refuse(first["loc"], str(first["msg"])) from error
    for field, stated, true in recomputed(plan):
        if not math.isclose(stated, true, rel_tol=_SAME, abs_tol=_SAME):
            raise refuse(field, f"is {stated!r} where the other fields give {true!r}: the file was edited")
    if plan.digest != plan._digest():
        raise refuse(("digest",), "does not match the content: the file was edited")
    return plan


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that a plan can hold")
