"""What kernel-level clocks would save where clocks may not be set: a forecast from a study of the default clocks.

Everything unknown (how time depends on the clocks, the voltage curve, the parts that power consists of) is drawn many times
from stated ranges, each time so that every kernel's observed time and power are reproduced exactly. Each draw is planned
exactly, and the forecast is the distribution of the plans' savings: what a sweep would find if clocks could be set.

Where kernels were seen at clocks that the GPU went through by itself, those are known up to the errors of their curves, and
only what lies below them is drawn.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray
from wastenot.core.blas import single_threaded
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.devices.simulated.preset import Preset
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.nodes import Ways
from wastenot.kernels.forecast.kernels import CandidateSettings, candidate_settings, costs, draw_kernels
from wastenot.kernels.forecast.natural import (
    LOCKED_POWER_SD,
    NaturalKnowledge,
    cap_costs,
    fit_kernels,
    know,
    matched,
    natural_costs,
)
from wastenot.kernels.forecast.observed import Observation, natural_curves, observe
from wastenot.kernels.forecast.prior import GROUPS, KNOWLEDGES, RANGES, GpuDraw, Knowledge, draw_gpus
from wastenot.kernels.forecast.result import (
    SCHEMA,
    Forecast,
    KernelForecast,
    NaturalForecast,
    Quantiles,
    RangeForecast,
    UncertaintySource,
)
from wastenot.kernels.natural.curves import NaturalCurves
from wastenot.kernels.natural.whole import OneCap, best_cap, whole_of_study
from wastenot.planning.switching import SLOW_SWITCH_S
from wastenot.study.store import Study, open_study

DRAWS = 200
_LEAST_DRAWS = 40  # from which on the 2.5 % quantile is one of them
_GAP = 1e-5  # relative gap of a plan's energy, far below the differences between draws
_SAVES = 1e-4  # relative; smaller savings count as none
_SAME_TIME = 1e-6  # relative; smaller differences from the default clocks cannot be measured and count as none

_TRIED = 3  # times as many GPUs are drawn, of which those are kept that agree best with what was seen at natural clocks
_BOUNDS = (0.0, 0.02, 0.05)  # slowdowns that savings within the range seen are stated for

NARROWED_BY = {
    "voltage": "a sweep of the core clocks of one compute-bound kernel, or --knowledge preset, to take the simulated GPU's",
    "power": "idle power with the memory active, and low-power kernels, at two core clocks",
    "memory power": "a memory power sensor, or a sweep of memory clocks",
    "auto": "the same core clock, once left to the driver and once locked",
    "time": "FLOPs and bytes of every kernel, or a sweep of the core clocks of a few kernels",
}
"""For each group of unknowns, the measurement that would determine them."""

MEMORY_LEFT: Final = "too long between kernels, so that it is left alone"
"""How the note ends that says why memory clocks stay; it is no caveat."""


def check_draws(draws: int) -> None:
    """Refuse so few draws that they say nothing about an interval.

    Raises:
        BadInputError: there are too few.
    """
    if draws < _LEAST_DRAWS:
        raise BadInputError(f"`draws` {draws}: must be at least {_LEAST_DRAWS}")


@single_threaded()
def forecast(
    study: str | os.PathLike[str] | Study,
    workload: str | None = None,
    *,
    gpu: Preset | None = None,
    max_slowdown: float = 0.0,
    knowledge: Knowledge = "any",
    core_step_mhz: float | None = None,
    core_only: bool | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    ignore_natural: bool = False,
) -> Forecast:
    """Forecast what kernel-level clocks would save, from a study's rows at the default clocks and at natural clocks.

        >>> import wastenot as wn
        >>> forecast = wn.forecast("my.db", max_slowdown=0.02, draws=40)
        >>> forecast.origin, forecast.energy_change.median < 0
        ('forecast', True)

    Args:
        study: or its file or URL; rows at requested clocks are ignored.
        workload: its name; ``None`` if the study holds only one.
        gpu: provides clocks, power limit and peaks; ``None`` to find it by the study's device.
        max_slowdown: slowdown allowed to the whole iteration, at least 0.
        knowledge: ``any`` if voltage, power and memory may be like any GPU's, ``preset`` if they are about as ``gpu`` says.
        core_step_mhz: distance between the core clocks to choose from; ``None`` for about 32 clocks.
        core_only: leave the memory clock alone, because it cannot be set, or not from kernel to kernel; by default where the
            preset says that it takes too long to change.
        draws: number of GPUs to draw, at least 40.
        seed: seed of the draws.
        ignore_natural: use the default clocks alone, though kernels were measured at natural clocks.

    Raises:
        BadInputError: a negative slowdown, too few draws, no rows at the default clocks, or an unknown GPU.
        StudyError: the study cannot be read.
    """
    if not (math.isfinite(max_slowdown) and max_slowdown >= 0.0):
        raise BadInputError(f"`max_slowdown` {max_slowdown:g}: must be a number of at least 0, such as 0.02 for 2 %")
    check_draws(draws)
    if knowledge not in KNOWLEDGES:
        raise BadInputError(f"`knowledge` {knowledge}: choose one of {', '.join(KNOWLEDGES)}")
    held = open_study(study)
    curves = None if ignore_natural else natural_curves(held, workload)
    observed, preset, notes = observe(held, workload, gpu, None if curves is None else "natural")
    slow = preset.switching.memory_s >= SLOW_SWITCH_S
    if core_only is None and slow:
        takes = f"{preset.name} takes about {preset.switching.memory_s:.2g} s to change its memory clock"
        notes = (*notes, f"{takes}, {MEMORY_LEFT}")
    core_only = slow if core_only is None else core_only
    candidates = candidate_settings(preset, core_step_mhz, core_only=core_only)
    highest = max(preset.clocks.boost_mhz, float(np.nanmax(np.append(observed.core_mhz, 0.0))))
    count = np.array([kernel.count for kernel in observed.kernels], dtype=float)
    auto_time, auto_energy = float(count @ observed.time_s), float(count @ (observed.time_s * observed.power_w))
    number = draws if curves is None else _TRIED * draws
    drawn = list(draw_gpus(preset, observed.bounds(highest), knowledge, number, seed))
    natural = None
    if curves is None:
        plans = [_plan(observed, candidates, each, max_slowdown) for each in drawn]
    else:
        known = know(curves, [kernel.name for kernel in observed.kernels], draws, seed)
        fits = [fit_kernels(observed, each, known, index % draws) for index, each in enumerate(drawn)]
        kept = matched(np.array([fit.misfit for fit in fits]), draws, seed)
        plans = []
        for index in kept:
            seen = natural_costs(observed, drawn[index].device, fits[index], known, candidates)
            plans.append(_best(observed, candidates, seen, fits[index].kernels.core_mhz, max_slowdown))
        drawn = [drawn[index] for index in kept]
        alone = forecast(
            held, workload, gpu=gpu, max_slowdown=max_slowdown, knowledge=knowledge, core_step_mhz=core_step_mhz,
            core_only=core_only, draws=draws, seed=seed, ignore_natural=True,
        )  # fmt: skip
        bounds = sorted({*_BOUNDS, max_slowdown})
        whole = whole_of_study(held, observed.workload, observed.kernels, curves.curves)
        one_cap = tuple(_one_cap(best_cap(whole, bound), bound, known.locked_power) for bound in bounds)
        natural = replace(_within_range(observed, known, curves, bounds, alone.energy_change), one_cap=one_cap)
    energy = np.array([plan.energy_j @ count for plan in plans]) / auto_energy - 1.0
    time = np.array([plan.time_s @ count for plan in plans]) / auto_time - 1.0
    return Forecast(
        schema=SCHEMA,
        origin="forecast",
        observed_origin=observed.origin,
        device=observed.device,
        gpu=preset.name,
        workload=observed.workload,
        knowledge=knowledge,
        max_slowdown=max_slowdown,
        core_only=core_only,
        draws=draws,
        auto_time_s=auto_time,
        auto_energy_j=auto_energy,
        energy_change=_quantiles(energy),
        time_change=_quantiles(time),
        saves_share=float(np.mean(energy < -_SAVES)),
        unknowns=_unknowns(drawn, energy),
        notes=notes,
        kernels=_kernels(observed, candidates, plans),
        natural=natural,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The best plan of one draw; arrays of shape (kernels,), costs of one call. Option 0 is the default clocks."""

    option: NDArray[np.intp]
    time_s: FloatArray
    energy_j: FloatArray
    core_mhz: FloatArray


def _plan(observed: Observation, candidates: CandidateSettings, gpu: GpuDraw, max_slowdown: float) -> _Plan:
    kernels = draw_kernels(observed, gpu)
    return _best(observed, candidates, costs(gpu.device, kernels, candidates), kernels.core_mhz, max_slowdown)


def _best(
    observed: Observation,
    candidates: CandidateSettings,
    costs_there: tuple[FloatArray, FloatArray],
    auto_mhz: FloatArray,
    max_slowdown: float,
) -> _Plan:
    """The best plan by times and energies at the candidates, each of shape (kernels, settings)."""
    time = np.column_stack([observed.time_s, costs_there[0]])
    energy = np.column_stack([observed.time_s * observed.power_w, costs_there[1]])
    option = best_options(time, energy, [kernel.count for kernel in observed.kernels], max_slowdown)
    rows = np.arange(len(option))
    clock = np.where(option == 0, auto_mhz, np.append(np.nan, candidates.core_mhz)[option])
    return _Plan(option, time[rows, option], energy[rows, option], clock)


def _within_range(
    observed: Observation, known: NaturalKnowledge, curves: NaturalCurves, bounds: list[float], without: Quantiles
) -> NaturalForecast:
    """What caps within the range seen would save, one for each kernel."""
    counts = [kernel.count for kernel in observed.kernels]
    count, kernels = np.array(counts), np.arange(len(counts))
    changes = np.empty((len(bounds), known.draws, 2))
    for draw in range(known.draws):
        time_s, energy_j = cap_costs(known.curves, draw, observed.time_s, observed.power_w, float(known.locked_power[draw]))
        for row, bound in enumerate(bounds):
            option = best_options(time_s, energy_j, counts, bound)
            for place, each in enumerate((energy_j, time_s)):
                changes[row, draw, place] = count @ each[kernels, option] / (count @ each[:, 0]) - 1.0
    return NaturalForecast(
        low_mhz=min(curve.low_mhz for curve in known.curves),
        high_mhz=max(float(curve.core_mhz[-1]) for curve in curves),
        seconds=curves.seconds,
        locked_power_sd=LOCKED_POWER_SD,
        within_range=tuple(
            RangeForecast(bound, _quantiles(changes[row, :, 0]), _quantiles(changes[row, :, 1]))
            for row, bound in enumerate(bounds)
        ),
        without=without,
    )


def _one_cap(best: OneCap | None, bound: float, locked_power: FloatArray) -> RangeForecast:
    if best is None:
        return RangeForecast(bound, _quantiles(np.zeros(1)), _quantiles(np.zeros(1)))
    time, energy = best.change.tolist()
    locked = np.resize(locked_power / locked_power.mean(), len(best.drawn))
    energies = replace(_quantiles((1.0 + best.drawn[:, 1]) * locked - 1.0), median=energy)
    return RangeForecast(bound, energies, replace(_quantiles(best.drawn[:, 0]), median=time), best.core_mhz)


def best_options(time_s: FloatArray, energy_j: FloatArray, counts: list[int], max_slowdown: float) -> NDArray[np.intp]:
    """The option of each kernel in the plan of least energy within a slowdown, global scope.

    Times within a millionth of those at the default clocks count as the same.

    Args:
        time_s: time of one call, shape (kernels, options); option 0 is the default clocks.
        energy_j: energy of one call, same shape.
        counts: how often each kernel runs.
        max_slowdown: slowdown allowed to the sum.
    """
    auto_s = time_s[:, :1]
    time_s = np.where(np.abs(time_s / auto_s - 1.0) < _SAME_TIME, auto_s, time_s)
    start = np.arange(len(time_s) + 1) * time_s.shape[1]
    frontier = choice(Ways(time_s.ravel(), energy_j.ravel(), start=start, runs=np.array(counts)))
    auto = exact_sum(zip(counts, auto_s.ravel().tolist(), strict=True))
    return frontier.least_energy(auto * (1 + Fraction(max_slowdown)), _GAP).options


def _quantiles(values: FloatArray) -> Quantiles:
    low95, low80, median, high80, high95 = np.quantile(values, [0.025, 0.1, 0.5, 0.9, 0.975]).tolist()
    return Quantiles(median, (low80, high80), (low95, high95))


def _kernels(observed: Observation, candidates: CandidateSettings, plans: list[_Plan]) -> tuple[KernelForecast, ...]:
    option = np.array([plan.option for plan in plans])
    core = np.array([plan.core_mhz for plan in plans])
    time = np.array([plan.time_s for plan in plans]) / observed.time_s - 1.0
    energy = np.array([plan.energy_j for plan in plans]) / (observed.time_s * observed.power_w) - 1.0
    used_j = np.array([kernel.count for kernel in observed.kernels]) * observed.time_s * observed.power_w
    rows = []
    for index, kernel in enumerate(observed.kernels):
        chosen, times = np.unique(option[:, index], return_counts=True)
        most = int(times.argmax())
        memory = np.where(option[:, index] == 0, observed.memory_mhz[index], candidates.memory_mhz[option[:, index] - 1])
        states, in_state = np.unique(memory, return_counts=True)
        rows.append(
            KernelForecast(
                kernel=kernel.name,
                count=kernel.count,
                setting=AUTO if chosen[most] == 0 else candidates.settings[int(chosen[most]) - 1],
                chosen_share=float(times[most] / len(plans)),
                core_mhz=_quantiles(core[:, index]),
                memory_mhz=float(states[in_state.argmax()]),
                memory_share=float(in_state.max() / len(plans)),
                energy_change=_quantiles(energy[:, index]),
                time_change=_quantiles(time[:, index]),
                energy_share=float(used_j[index] / used_j.sum()),
            )
        )
    return tuple(rows)


def _unknowns(drawn: list[GpuDraw], change: FloatArray) -> tuple[UncertaintySource, ...]:
    """The fraction of the variance of the change's ranks that each group's ranks explain (adjusted R²)."""
    if np.ptp(change) == 0.0:
        return ()
    target = _ranks(change)
    sources = []
    for group in GROUPS:
        names = [name for name, prior in RANGES.items() if prior.group == group]
        ranks = np.column_stack([_ranks(np.array([gpu.numbers[name] for gpu in drawn])) for name in names])
        coefficients = np.linalg.lstsq(ranks, target, rcond=None)[0]
        unexplained = float(((target - ranks @ coefficients) ** 2).sum() / (target**2).sum())
        share = 1.0 - unexplained * (len(target) - 1) / (len(target) - 1 - len(names))
        sources.append(UncertaintySource(group, max(share, 0.0), NARROWED_BY[group]))
    return tuple(sorted(sources, key=lambda source: -source.share))


def _ranks(values: FloatArray) -> FloatArray:
    ranks = np.argsort(np.argsort(values)).astype(np.float64)
    return np.asarray(ranks - ranks.mean(), dtype=np.float64)
