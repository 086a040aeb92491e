"""Measured switching latencies: the file ``wastenot.latency/1``, and the switching time that plans take from it."""

from __future__ import annotations

import json
import math
import os
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from wastenot.core.documents import Count, Finite, Name, NotNegative, Part, Positive, parse_document, read_document
from wastenot.core.errors import BadInputError
from wastenot.core.files import write_text
from wastenot.core.origin import Origin
from wastenot.core.result import HasPage
from wastenot.planning.switching import SwitchTime, TargetTime, switch_time
from wastenot.study.sweep import Sweep, quoted

LATENCY_SCHEMA: Literal["wastenot.latency/1"] = "wastenot.latency/1"

What = Literal["core", "memory", "power_limit"]
"""What a request changes: the core clock in MHz, the memory clock in MHz, or the power limit in watts."""

CLEAR = 3.0
"""Standard errors from 0 at which a cost counts as there; they come from few windows, so that two are not enough."""

_REMEDY = "measure it again with 'wastenot device latency'"


class TargetLatency(Part):
    """How long changes to one target take, whatever they start from, or from one start.

    Attributes:
        what: what changes.
        start: value before, in MHz or watts; ``None`` where all starts are taken together.
        target: value requested.
        seconds: typical time from the request until the change is in effect: the geometric mean, outliers left out.
        error_s: standard error of that.
        jitter: standard deviation of the logarithm of the time, outliers left out.
        switches: number of changes that were timed, outliers among them.
        outliers: number of them that took so much longer or shorter than the others that they are told apart.
        longest_s: the longest of all, outliers among them; at least so long where one was not waited for.
    """

    what: What
    start: Positive | None
    target: Positive
    seconds: NotNegative
    error_s: NotNegative
    jitter: NotNegative
    switches: Count
    outliers: Count
    longest_s: NotNegative


class Indistinct(Part):
    """Two values that changes between them cannot be timed: they look the same to the workload, or one was never reached.

    Attributes:
        reason: why, for people.
    """

    what: What
    start: Positive
    target: Positive
    reason: str


class SwitchCost(Part):
    """What a switch costs beyond its latency: two equally long windows, one with switches and one without, many times over.

    Attributes:
        what: what changes.
        switches: in the windows with switches.
        stall_s: time that a switch takes from the workload; may come out a little below 0.
        stall_error_s: its standard error.
        energy_j: that a switch uses beyond what the workload uses at the clocks in effect; ``None`` where the device does
            not say how much it uses.
        energy_error_j: its standard error.
    """

    what: What
    switches: Count
    stall_s: Finite
    stall_error_s: NotNegative
    energy_j: Finite | None
    energy_error_j: NotNegative | None


class Latency(Part, HasPage):
    """How long a device takes to switch, as it was measured.

    Attributes:
        origin: whether the device is real.
        device: its name in studies and plans.
        model: of the GPU.
        measured_at: in UTC, ISO 8601.
        seconds: that measuring took, by the device's clock.
        error: relative standard error at which it was to end.
        iteration_s: time of one iteration of the workload, the resolution of a single latency.
        clock_error_s: uncertainty of the relation between the clocks of host and GPU.
        targets: by target, all starts together.
        pairs: by start and target.
        indistinct: pairs that could not be timed.
        costs: what a switch costs beyond waiting.
        not_covered: what this does not tell, for people.
    """

    drawn_by: ClassVar[str] = "wastenot.kernels.latency.page:latency_page"

    schema_: Literal["wastenot.latency/1"] = Field(default=LATENCY_SCHEMA, alias="schema")
    origin: Origin
    device: Name
    model: str
    measured_at: Name
    seconds: NotNegative
    error: Positive
    iteration_s: Positive
    clock_error_s: NotNegative
    targets: Annotated[tuple[TargetLatency, ...], Field(strict=False)]
    pairs: Annotated[tuple[TargetLatency, ...], Field(strict=False)]
    indistinct: Annotated[tuple[Indistinct, ...], Field(strict=False)] = ()
    costs: Annotated[tuple[SwitchCost, ...], Field(strict=False)] = ()
    not_covered: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.targets:
            raise ValueError("targets: is empty")
        for name in ("targets", "pairs"):
            keys = [(entry.what, entry.start, entry.target) for entry in getattr(self, name)]
            if len(keys) != len(set(keys)):
                raise ValueError(f"{name}: has an entry twice")
        return self

    def of(self, what: What) -> tuple[TargetLatency, ...]:
        """The targets of one kind by ascending value."""
        return tuple(sorted((each for each in self.targets if each.what == what), key=lambda each: each.target))

    @property
    def switch_time(self) -> SwitchTime:
        """The switching time for plans; what was not measured of it is assumed as before, and the source says so."""
        assumed = switch_time(self.device)
        core, memory, limit = self.of("core"), self.of("memory"), self.of("power_limit")
        core_s = max((each.seconds for each in core), default=assumed.core_s)
        parts = [name for name, found in (("core clock", core), ("memory clock", memory), ("power limit", limit)) if found]
        source = f"wastenot device latency on {self.device}, {self.measured_at[:10]}: {', '.join(parts)}"
        if not core or not memory:
            missing = "memory clock" if core else "core clock" if memory else "clocks"
            source += f"; {missing} {assumed.basis}: {assumed.source}"
        costs = {cost.what: cost for cost in self.costs}
        return SwitchTime(
            core_s=core_s,
            memory_s=max((each.seconds for each in memory), default=max(assumed.memory_s, core_s)),
            basis="measured",
            source=source,
            core_by_target=_by_target(core) or assumed.core_by_target,
            memory_by_target=_by_target(memory),
            power_limit_s=max((each.seconds for each in limit), default=None),
            jitter=_jitter(self.targets),
            stall_s=_shown_stall(costs.get("core")),
            memory_stall_s=_shown_stall(costs.get("memory")),
            energy_j=_shown_energy(costs.get("core")),
        )

    def to_json(self) -> str:
        """The JSON document."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=2, ensure_ascii=False) + "\n"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON document; raises :class:`BadInputError` where that is not possible."""
        write_text(path, self.to_json())


def read_latency(path: str | os.PathLike[str]) -> Latency:
    """Read measured switching latencies.

    Raises:
        BadInputError: the file cannot be read or breaks a rule; the text gives file, line and field.
    """
    return read_document(path, Latency, _REMEDY).content


def parse_latency(text: str, where: str) -> Latency:
    """As :func:`read_latency`, from a text; ``where`` is how errors name it."""
    return parse_document(text, Latency, _REMEDY, where).content


def switching_of(
    source: Sweep | str,
    seconds: float | None = None,
    latency: Latency | str | os.PathLike[str] | None = None,
    other: str | None = None,
) -> SwitchTime:
    """The best that is known of a device's switching time: given, measured, stated by the device, or assumed.

    Args:
        source: a sweep, whose study may hold what was measured, or the name of a device in studies and plans.
        seconds: what a switch takes, where that is known better than all else.
        latency: measured latencies, or a file of them; by default those of the study.
        other: name of a device whose times count instead, as published or stated by a simulated one.

    Raises:
        BadInputError: the seconds are no duration, the file cannot be read, or it is of another device; or nothing is known
            of ``other``, or it is not given alone.
    """
    if other is not None:
        if seconds is not None or latency is not None:
            raise BadInputError("`device`: selects whose switching times to use; leave out `switch_time_s` and `latency`")
        known = switch_time(other)
        if other.startswith("sim:") and known.basis != "stated":
            raise BadInputError(f"`device` {other}: no simulated GPU of that name gives its switching time")
        return known
    device = source if isinstance(source, str) else source.device
    if seconds is not None:
        return switch_time(device, seconds)
    if latency is not None:
        found = latency if isinstance(latency, Latency) else read_latency(latency)
        if found.device != device:
            where = "`latency`" if isinstance(latency, Latency) else f"`latency`: {os.fspath(latency)}"
            raise BadInputError(
                f"{where}: is of {quoted(found.device)}, but the measurements are of {quoted(device)}; measure that "
                "device: wastenot device latency --device D, or give --switch-time"
            )
        return found.switch_time
    if not isinstance(source, str) and source.latency is not None:
        return parse_latency(source.latency, "the study's switching latency").switch_time
    return switch_time(device)


def _by_target(found: tuple[TargetLatency, ...]) -> tuple[TargetTime, ...]:
    return tuple(TargetTime(mhz=each.target, seconds=each.seconds) for each in found)


def _jitter(targets: tuple[TargetLatency, ...]) -> float:
    """That of all switches together."""
    timed = [(each.switches - each.outliers, each.jitter) for each in targets]
    total = sum(count for count, _ in timed)
    return math.sqrt(sum(count * jitter**2 for count, jitter in timed) / total) if total else 0.0


def _shown_stall(cost: SwitchCost | None) -> float:
    """The stall, where it is told apart from none."""
    return cost.stall_s if cost is not None and cost.stall_s > CLEAR * cost.stall_error_s else 0.0


def _shown_energy(cost: SwitchCost | None) -> float:
    if cost is None or cost.energy_j is None or cost.energy_error_j is None:
        return 0.0
    return cost.energy_j if abs(cost.energy_j) > CLEAR * cost.energy_error_j else 0.0
