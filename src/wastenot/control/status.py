"""What is known of an applied plan: while it runs (status), and at the end (summary)."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from wastenot.core.documents import Count, Finite, Name, NotNegative, Part, SparsePart, read_document
from wastenot.core.origin import Origin
from wastenot.core.result import HasDocument, HasPage

STATUS_SCHEMA: Literal["wastenot.apply-status/1"] = "wastenot.apply-status/1"
Outcome = Literal["held", "close", "too slow", "more energy", "unusable"]
"""What became of a setting that was tried."""
SUMMARY_SCHEMA: Literal["wastenot.apply/1"] = "wastenot.apply/1"


class Estimate(Part):
    """A number with its 95 % interval."""

    value: Finite
    low: Finite
    high: Finite


class GpuStatus(SparsePart):
    """One GPU. What it does not report is ``None``.

    Attributes:
        device: its name, such as ``nvidia:0``.
        model: of the GPU.
        unique_id: of the GPU.
        target_core_mhz: requested core clock; ``None`` is auto.
        target_memory_mhz: likewise.
        target_power_limit_w: likewise.
        core_mhz: in effect.
        memory_mhz: in effect.
        power_w: latest reading.
        temperature_c: latest reading.
        energy_j: used since the plan was applied.
        target_profile: workload power profile, likewise.
    """

    device: Name
    model: str
    unique_id: str
    target_core_mhz: NotNegative | None
    target_memory_mhz: NotNegative | None
    target_power_limit_w: NotNegative | None
    core_mhz: NotNegative | None
    memory_mhz: NotNegative | None
    power_w: NotNegative | None
    temperature_c: Finite | None
    energy_j: NotNegative | None
    target_profile: Name | None = None


class Event(Part):
    """Something worth telling that happened: a step along the frontier, drift, a refusal."""

    at_s: Finite
    kind: Literal["started", "stepped", "drift", "refused", "restored", "stopped", "ended", "note"]
    text: str


class Proof(Part):
    """What alternating with the default clocks showed so far; estimates are ``None`` until there is one.

    Attributes:
        time_change: of an iteration at the present rung against the default clocks.
        energy_change: likewise, of energy.
        saved_j: all that was saved so far, all GPUs together.
        plan_iterations: iterations at the plan's clocks.
        default_iterations: iterations at the default clocks, for comparison.
        blocks: stretches of iterations compared.
    """

    time_change: Estimate | None
    energy_change: Estimate | None
    saved_j: Estimate | None
    plan_iterations: Count
    default_iterations: Count
    blocks: Count


NOTHING_PROVED = Proof(time_change=None, energy_change=None, saved_j=None, plan_iterations=0, default_iterations=0, blocks=0)


class Tuning(Part):
    """The search for a setting on a running job.

    Attributes:
        done: whether it has ended.
        tried: settings so far.
        left: of these, still in the race.
        trials: stretches at these settings that were compared with the default clocks.
        iterations: of the job that the search took so far.
        trying: the setting that runs now; ``None`` at the default clocks.
        best: the best setting so far within the slowdown limit; ``None`` for the default clocks.
        time_change: of an iteration at the best against the default clocks, and ``energy_change`` of its energy.
        regret: fraction of energy by which another setting might be better, at most.
    """

    done: bool
    tried: Count
    left: Count
    trials: Count
    iterations: Count
    trying: str | None
    best: str | None
    time_change: Estimate | None
    energy_change: Estimate | None
    regret: NotNegative | None


class Trial(SparsePart):
    """A setting that was tried on a running job.

    Attributes:
        core_mhz: requested core clock; ``None`` is auto.
        memory_mhz: likewise.
        power_limit_w: likewise.
        stretches: at it that were compared with the default clocks.
        time_change: of an iteration against the default clocks; ``None`` if it was abandoned before it was compared.
        energy_change: likewise, of energy.
        outcome: what became of it; ``close`` is one that may be as good as the one held.
        profile: workload power profile, likewise.
    """

    core_mhz: NotNegative | None
    memory_mhz: NotNegative | None
    power_limit_w: NotNegative | None
    stretches: Count
    time_change: Estimate | None
    energy_change: Estimate | None
    outcome: Outcome
    profile: Name | None = None


class PipelineStatus(Part):
    """A pipeline's plan at work on the GPUs of this machine.

    Attributes:
        ranks: that each GPU runs; ``None`` for one that has not said yet.
        iteration_s: median time of the latest iterations; ``None`` before the second.
        planned_s: what the plan predicts of it.
        out_of_order: instructions that came in another order than planned.
        requests: of clocks, so far.
    """

    ranks: Annotated[tuple[Count | None, ...], Field(strict=False)]
    iteration_s: NotNegative | None
    planned_s: NotNegative
    out_of_order: Count
    requests: Count


class Rehearsal(Part):
    """What was seen of a program that ran beside simulated GPUs, which ran nothing of it.

    Attributes:
        iterations: seen on each GPU.
        iteration_s: median time of one on the first, as the program runs here; ``None`` before the second.
        passes: how often each was seen, on all GPUs together.
        layers: found in the model; ``None`` where hooks found no model.
        missing: markers of the plan that were never seen.
        requests: of clocks, so far.
        refusal: why the plan would be refused on a real GPU, as far as that can be told here.
    """

    iterations: Annotated[tuple[Count, ...], Field(strict=False)]
    iteration_s: NotNegative | None
    passes: dict[str, Count]
    layers: Count | None
    missing: Annotated[tuple[str, ...], Field(strict=False)]
    requests: Count
    refusal: str | None


class Proxy(Part):
    """Progress by proxy, by memory traffic, of a program that reports no iterations: iterations are units of it.

    Attributes:
        error: of changes of time and energy, as a logarithm: not exceeded in 95 % of jobs.
        jobs: that reported their iterations, by which it is known; 0 where it is assumed.
        unit_s: time that a unit takes; ``None`` until it is chosen.
    """

    error: NotNegative
    jobs: Count
    unit_s: NotNegative | None = None

    def at(self, unit_s: float | None) -> Proxy:
        """With the time that a unit takes."""
        return self.model_copy(update={"unit_s": unit_s})


class Status(Part):
    """A plan being applied now.

    Attributes:
        plan: path of the plan, or what was applied instead.
        plan_digest: the plan's digest.
        process: ID of the process that controls the clocks.
        started_unix_s: when it began, by the calendar.
        elapsed_s: since then.
        dry_run: whether clocks are only pretended to be set.
        max_slowdown: what is kept.
        iteration: the latest begun; ``None`` before the first.
        marker: name of the latest marker.
        rung: the present one, 0 is the plan's own.
        rungs: how many there are; the last is the default clocks.
        at_default: whether the present block runs at the default clocks for comparison.
        events: the latest, oldest first.
        tuning: the search for a setting, where that is what runs.
        pipeline: what is known of a pipeline, where it is one that runs.
        rehearsal: what was seen of a program whose GPUs are simulated; ``None`` where they are real, or run a simulated job.
        proxy: by what progress is followed where the program reports no iterations; ``None`` where it does.
        proxy_error: by how much the proxy would have been off in this job; ``None`` where that is not known.
    """

    schema_: Literal["wastenot.apply-status/1"] = Field(default=STATUS_SCHEMA, alias="schema")
    origin: Origin
    plan: str
    plan_digest: str
    workload: str
    process: Count
    started_unix_s: NotNegative
    elapsed_s: NotNegative
    dry_run: bool
    max_slowdown: NotNegative
    iteration: Count | None
    marker: str | None
    rung: Count
    rungs: Count
    at_default: bool
    predicted_time_change: Finite
    predicted_energy_change: Finite
    proof: Proof
    gpus: Annotated[tuple[GpuStatus, ...], Field(strict=False)]
    events: Annotated[tuple[Event, ...], Field(strict=False)]
    tuning: Tuning | None = None
    pipeline: PipelineStatus | None = None
    rehearsal: Rehearsal | None = None
    proxy: Proxy | None = None
    proxy_error: NotNegative | None = None


class Moment(Part):
    """A point of the time line of the first GPU, for pictures; the changes are those of the proof at that moment."""

    at_s: NotNegative
    power_w: NotNegative | None
    core_mhz: NotNegative | None
    target_core_mhz: NotNegative | None
    marker: str | None
    at_default: bool
    rung: Count
    saved_j: Finite | None
    time_change: Estimate | None = None
    energy_change: Estimate | None = None


class Instant(SparsePart):
    """A pass or an iteration that began on the first GPU, or a request of clocks; with what is requested from then on."""

    at_s: NotNegative
    marker: str | None
    at_default: bool
    target_core_mhz: NotNegative | None
    target_memory_mhz: NotNegative | None
    target_power_limit_w: NotNegative | None
    target_profile: Name | None = None


class Summary(HasDocument, HasPage, Part):
    """What became of it: the last status, why it ended, a time line of at most some thousand points, its end close up.

    ``trials`` are the settings that a search tried, in the order in which they were first tried.
    """

    drawn_by: ClassVar[str] = "wastenot.control.page.page:applied_page"

    schema_: Literal["wastenot.apply/1"] = Field(default=SUMMARY_SCHEMA, alias="schema")
    status: Status
    ended: Literal["job ended", "stopped", "refused", "failed"]
    exit_code: int | None
    time_line: Annotated[tuple[Moment, ...], Field(strict=False)]
    close_up: Annotated[tuple[Instant, ...], Field(strict=False)] = ()
    trials: Annotated[tuple[Trial, ...], Field(strict=False)] = ()

    def document(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return self.model_dump(mode="json", by_alias=True)


def unknown_status(plan: str) -> Status:
    """The status of a plan, by its name, of which nothing is known, as nobody answers who controls the clocks."""
    return Status(
        origin="measured",
        plan=plan,
        plan_digest="",
        workload="",
        process=os.getpid(),
        started_unix_s=time.time(),
        elapsed_s=0.0,
        dry_run=False,
        max_slowdown=0.0,
        iteration=None,
        marker=None,
        rung=0,
        rungs=1,
        at_default=True,
        predicted_time_change=0.0,
        predicted_energy_change=0.0,
        proof=NOTHING_PROVED,
        gpus=(),
        events=(),
    )


def read_summary(path: str | os.PathLike[str]) -> Summary:
    """Read the summary of a run.

    Raises:
        BadInputError: the file cannot be read, or is none; names file, line and field.
    """
    return read_document(path, Summary, "'wastenot apply --out' writes one").content
