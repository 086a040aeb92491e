"""What natural clocks say of a workload: what each kernel loses at lower clocks, plans of caps, the forecast."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final, Literal

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.devices.timeline import REST, Timeline
from wastenot.kernels.forecast.forecast import DRAWS, forecast
from wastenot.kernels.forecast.observed import unreached_note
from wastenot.kernels.forecast.result import Forecast
from wastenot.kernels.natural.curves import KernelCurve, NaturalCurves
from wastenot.kernels.natural.storage import curves_of, unpacked_timeline
from wastenot.kernels.natural.whole import OneCap, WholeIteration, best_cap, whole_of_study
from wastenot.planning.headline import Interval
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.study.store import Study, open_study

SCHEMA: Final = "wastenot.natural/1"
BOUNDS = (0.0, 0.02, 0.05)
"""Slowdowns that plans and forecasts are made for."""

CANNOT_TELL = (
    "Clocks below those seen: nothing was measured there, and forecasts for them rely on a model; where one cap for "
    "all is below what a kernel was seen at, that kernel's curve is extrapolated, and the interval allows for it.",
    "Memory clocks: the GPU does not change them by itself.",
    "How a locked clock differs from the same clock under the regulator: time is counted in cycles and should be the same; "
    "power is assumed to be the same within half a per cent. Only setting clocks would show it.",
    "What a cap does beyond lowering the clock: a kernel that the power limit holds down fluctuates around its clock, and a "
    "cap below that clock holds it steady, which saves up to one per cent more. Plans do not count that.",
    "What switching clocks between kernels costs: plans by kernel assume that switching is free.",
    "Kernels as they run in your program: here each ran on its own or next to a matrix product, with its own "
    "data, and nothing waited in between: a step of the program takes longer and uses more.",
)
"""What measurements at natural clocks leave open."""

Loss = Literal["nothing", "some", "all", "unknown"]
_NOTHING, _ALL = 0.1, 0.9  # of the clock's change that time follows: below and above, a kernel counts as losing none or all
_LEAST_RANGE = 0.03  # relative, of clocks, below which a kernel says nothing
_Z, _Z95 = NormalDist().inv_cdf(0.975), (2.5, 97.5)
_WAKE_KERNELS = 12  # whose wakes are shown
_WAKE_S = 0.2
_HEAVY_S = 0.08  # that heavy work lasts before a wake that is shown


@dataclass(frozen=True, slots=True, eq=False)
class KernelAtNaturalClocks:
    """What is known of one kernel.

    Attributes:
        kernel: its name.
        count: how often it runs in an iteration.
        time_share, energy_share: of the iteration at the default clocks.
        auto_mhz: its clock by itself.
        limited: whether the GPU held that down.
        low_mhz, high_mhz: the clocks that it was seen at.
        loses: how much of a lower clock its time loses: below a tenth counts as nothing, above nine tenths as all.
        slope: of log time over log clock over the range, from 0 (loses nothing) to 1 (loses all), its sign turned.
        slope_interval: that holds it with 95 %.
        time_at_low, energy_at_low: change of a call's time and energy at the lowest clock seen, against the default clocks.
        cap_mhz: by slowdown allowed, the cap of the plan; ``None`` for none.
        notes: what a reader should know.
    """

    kernel: str
    count: int
    time_share: float
    energy_share: float
    auto_mhz: float
    limited: bool
    low_mhz: float
    high_mhz: float
    loses: Loss
    slope: float
    slope_interval: Interval
    time_at_low: float
    energy_at_low: float
    cap_mhz: tuple[float | None, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CapPlan:
    """What a plan of caps is expected to do.

    Attributes:
        max_slowdown: allowed.
        granularity: what gets a cap of its own.
        energy_change, time_change: expected, against the default clocks, and the intervals that hold them with 95 %; of one
            cap, against a whole iteration at its common clock, else against each kernel by itself.
        cap_mhz: the one cap of all kernels; ``None`` where there is none, or kernels have their own.
    """

    max_slowdown: float
    granularity: str
    energy_change: float
    energy_change_interval: Interval | None
    time_change: float
    time_change_interval: Interval | None
    cap_mhz: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Wake:
    """The clock while a kernel runs right after heavy work; arrays of shape (groups,).

    Attributes:
        since_s: since the heavy work ended.
        core_mhz: mean clock of the group.
    """

    kernel: str
    since_s: FloatArray
    core_mhz: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class NaturalOverview:
    """What natural clocks say of a workload.

    The fields, without ``wakes``, ``curves``, ``plan`` and ``whole``, are those of the JSON document ``wastenot.natural/1``.

    Attributes:
        origin: of the measurements; plans are expected, and the forecast is one.
        seconds: device time that they took.
        auto_time_s, auto_energy_j: of an iteration at the default clocks, kernel by kernel.
        plans: of caps within the clocks seen, by kernel and with one cap for all.
        iteration_mhz: clock that all kernels have in common in an iteration at the default clocks, as predicted.
        iteration_limited: whether the power limit holds it there.
        forecast: what clocks would save, with the largest slowdown but one of :data:`BOUNDS`.
        cannot_tell: what these measurements leave open.
    """

    schema: str
    origin: Origin
    device: str
    workload: str
    seconds: float
    temperature_c: float | None
    auto_time_s: float
    auto_energy_j: float
    kernels: tuple[KernelAtNaturalClocks, ...]
    plans: tuple[CapPlan, ...]
    iteration_mhz: float
    iteration_limited: bool
    forecast: Forecast | None
    notes: tuple[str, ...]
    cannot_tell: tuple[str, ...] = CANNOT_TELL
    curves: NaturalCurves = field(kw_only=True)
    plan: Plan = field(kw_only=True)
    whole: WholeIteration = field(kw_only=True)
    wakes: tuple[Wake, ...] = field(kw_only=True, default=())


def natural_overview(
    study: str | os.PathLike[str] | Study, workload: str | None = None, *, draws: int = DRAWS, seed: int = 0
) -> NaturalOverview:
    """What a study's measurements at natural clocks say.

    Args:
        study: or its file or URL.
        workload: its name; ``None`` if the study holds only one.
        draws: of the forecast.
        seed: of these.

    Raises:
        BadInputError: it was not measured at natural clocks.
        StudyError: the study cannot be read, or no kernel was measured yet.
    """
    held = open_study(study)
    sweep = held.read(workload, "natural", partial=True)
    curves = curves_of(sweep, held.natural_curves(sweep.workload, sweep.granularity))
    planner = Planner(sweep)
    plans = [planner.plan(Objective("waste", bound)) for bound in BOUNDS]
    notes = [unreached_note(sweep)] if sweep.unreached else []
    whole = whole_of_study(held, sweep.workload, sweep.kernels, curves.curves)
    try:
        predicted = forecast(held, sweep.workload, max_slowdown=BOUNDS[1], core_only=True, draws=draws, seed=seed)
    except BadInputError as error:  # a card that no preset knows
        predicted = None
        notes.append(f"no forecast: {error}")
    count = np.array([kernel.count for kernel in sweep.kernels], dtype=float)
    auto = [curves[kernel.name].auto for kernel in sweep.kernels]
    time, energy = (count * np.array([getattr(each, name) for each in auto]) for name in ("time_s", "energy_j"))
    kernels = tuple(
        _kernel(
            curves[kernel.name],
            kernel.count,
            float(time[index] / time.sum()),
            float(energy[index] / energy.sum()),
            tuple(plan.assignments[index].core_mhz for plan in plans),
        )
        for index, kernel in enumerate(sweep.kernels)
    )
    free = [(-energy[index], kernel.kernel) for index, kernel in enumerate(kernels) if not kernel.limited]
    shown = [name for _, name in sorted(free)]  # of kernels that the power limit holds down the clock hardly rises
    return NaturalOverview(
        schema=SCHEMA,
        origin=sweep.origin,
        device=sweep.device,
        workload=sweep.workload,
        seconds=curves.seconds,
        temperature_c=curves.temperature_c,
        auto_time_s=float(time.sum()),
        auto_energy_j=float(energy.sum()),
        kernels=kernels,
        plans=(
            *(_own_caps(plan, bound) for plan, bound in zip(plans, BOUNDS, strict=True)),
            *(_one_cap(best_cap(whole, bound), bound) for bound in BOUNDS),
        ),
        iteration_mhz=whole.default.core_mhz,
        iteration_limited=whole.default.limited,
        forecast=predicted,
        notes=(*curves.notes, *notes),
        curves=curves,
        plan=plans[1],
        whole=whole,
        wakes=_wakes(held, sweep.workload, shown[:_WAKE_KERNELS]),
    )


def _kernel(
    curve: KernelCurve, count: int, time_share: float, energy_share: float, caps: tuple[float | None, ...]
) -> KernelAtNaturalClocks:
    low, high = float(curve.core_mhz[0]), float(curve.core_mhz[-1])
    span = float(np.log(high / low))
    top = min(max(curve.auto.core_mhz, low), high)
    slope, error, loses = 0.0, 1.0, "unknown"
    if span >= _LEAST_RANGE:
        ends = np.zeros(len(curve.core_mhz))
        ends[0], ends[-1] = 1.0 / span, -1.0 / span
        variance = max(float(ends @ curve.log_time_cov @ ends), 0.0)  # of errors that cancel, rounding may leave less
        slope, error = float(ends @ np.log(curve.time_s)), variance**0.5
        loses = "nothing" if slope < _NOTHING else "all" if slope > _ALL else "some"
    time_at_low = float(curve.time_at(low) / curve.time_at(top)) - 1.0
    power_at_low = float(curve.power_at(low) / curve.power_at(top)) - 1.0
    return KernelAtNaturalClocks(
        kernel=curve.kernel,
        count=count,
        time_share=time_share,
        energy_share=energy_share,
        auto_mhz=curve.auto.core_mhz,
        limited=curve.auto.limited,
        low_mhz=low,
        high_mhz=high,
        loses=loses,  # type: ignore[arg-type]  # one of them
        slope=slope,
        slope_interval=(slope - _Z * error, slope + _Z * error),
        time_at_low=time_at_low,
        energy_at_low=(1.0 + time_at_low) * (1.0 + power_at_low) - 1.0,
        cap_mhz=caps,
        notes=curve.notes,
    )


def _own_caps(plan: Plan, bound: float) -> CapPlan:
    headline = plan.headline
    energy, time = headline.energy_change_interval, headline.time_change_interval
    return CapPlan(bound, plan.granularity, headline.energy_change, energy, headline.time_change, time, None)


def _one_cap(best: OneCap | None, bound: float) -> CapPlan:
    if best is None:
        return CapPlan(bound, "iteration", 0.0, (0.0, 0.0), 0.0, (0.0, 0.0), None)
    time, energy = best.change.tolist()
    time_interval, energy_interval = ((float(low), float(high)) for low, high in np.percentile(best.drawn, _Z95, axis=0).T)
    return CapPlan(bound, "iteration", energy, energy_interval, time, time_interval, best.core_mhz)


def _wakes(study: Study, workload: str, kernels: Iterable[str]) -> tuple[Wake, ...]:
    """The clock in the wake of heavy work, of kernels that were run so."""
    found = []
    for kernel in kernels:
        since: list[FloatArray] = []
        clock: list[FloatArray] = []
        for kept in study.timelines(workload, kernel):
            for begin, end in wakes_in(timeline := unpacked_timeline(kept.content).timeline):
                middle = 0.5 * (timeline.begin_s[begin:end] + timeline.end_s[begin:end])
                since.append(middle - timeline.end_s[begin - 1])
                clock.append(timeline.core_mhz[begin:end])
        if since:
            moment, mhz = np.concatenate(since), np.concatenate(clock)
            early = moment < _WAKE_S
            found.append(Wake(kernel, moment[early], mhz[early]))
    return tuple(found)


def wakes_in(timeline: Timeline) -> Sequence[tuple[int, int]]:
    """Where groups of the kernel of interest, subject 0, follow long work of another subject without a rest.

    First group, and the one after the last. What runs for less does not bring the clock down.
    """
    follows = np.flatnonzero(np.diff(timeline.subject) != 0) + 1
    bounds = [0, *follows.tolist(), len(timeline.subject)]
    return [
        (begin, end)
        for before, begin, end in zip(bounds, bounds[1:], bounds[2:], strict=False)
        if timeline.subject[begin] == 0
        and timeline.subject[before] not in (0, REST)
        and timeline.phase[begin] == timeline.phase[begin - 1] + 1
        and timeline.end_s[begin - 1] - timeline.begin_s[before] >= _HEAVY_S
    ]
