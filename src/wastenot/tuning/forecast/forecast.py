"""What kernel-level clocks would save where clocks may not be set: a forecast from a study of the driver's own clocks.

Nothing but auto was observed. What is not known (how time follows the clocks, the voltage curve, how power divides) is
drawn many times from stated ranges, each time so that every kernel's observed time and power come out exactly; each draw
is planned exactly; the answer is the spread of the plans' savings. It says what a sweep would find, if clocks could be set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wastenot.arrays import FloatArray
from wastenot.devices.simulated.preset import Preset
from wastenot.errors import BadInputError
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.nodes import Ways
from wastenot.origin import Origin
from wastenot.setting import AUTO, Setting
from wastenot.study.store import Study
from wastenot.tuning.forecast.kernels import Choices, choices, costs, draw_kernels
from wastenot.tuning.forecast.observed import Observed, observe
from wastenot.tuning.forecast.prior import GROUPS, KNOWLEDGES, RANGES, GpuDraw, Knowledge, draw_gpus

SCHEMA: Final = "wastenot.forecast/1"


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over all draws.

    Attributes:
        median: half of the draws are below.
        central_80: between a tenth and nine tenths of them.
        central_95: between 2.5 and 97.5 % of them.
    """

    median: float
    central_80: tuple[float, float]
    central_95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class KernelForecast:
    """The clocks that plans choose for a kernel.

    Attributes:
        kernel: its name.
        count: how often it runs in an iteration.
        setting: that most draws choose; auto stands for leaving it alone.
        chosen_share: of the draws that choose just this setting.
        core_mhz: core clock in effect over the draws.
        memory_mhz: memory clock that most draws choose.
        memory_share: of the draws that choose it.
        energy_change: of one call against auto.
        time_change: likewise.
    """

    kernel: str
    count: int
    setting: Setting
    chosen_share: float
    core_mhz: Spread
    memory_mhz: float
    memory_share: float
    energy_change: Spread
    time_change: Spread


@dataclass(frozen=True, slots=True)
class Unknown:
    """Where the width of the forecast comes from.

    Attributes:
        what: the unknowns.
        share: of the variance of the energy change that they explain by themselves.
        narrowed_by: what would tell them.
    """

    what: str
    share: float
    narrowed_by: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """What kernel-level clocks would give within a slowdown, as far as observations at auto can tell.

    Attributes:
        schema: of the document.
        origin: always ``forecast``.
        observed_origin: of the study's rows: measured or simulated.
        device: that the study is of.
        gpu: preset that gave clocks, power limit and peaks.
        workload: that was observed.
        knowledge: whether the GPU is taken to be like any, or about as the preset says.
        max_slowdown: allowed to the whole iteration.
        core_only: whether memory clocks were left alone.
        draws: how many GPUs were drawn.
        auto_time_s: of an iteration, observed.
        auto_energy_j: likewise.
        energy_change: of a plan against auto.
        time_change: likewise.
        saves_share: of the draws in which a plan saves anything (more than 0.01 %).
        unknowns: where the width comes from, the most important first.
        notes: what a reader should know.
        kernels: in order of execution.
    """

    schema: str
    origin: Origin
    observed_origin: Origin
    device: str
    gpu: str
    workload: str
    knowledge: Knowledge
    max_slowdown: float
    core_only: bool
    draws: int
    auto_time_s: float
    auto_energy_j: float
    energy_change: Spread
    time_change: Spread
    saves_share: float
    unknowns: tuple[Unknown, ...]
    notes: tuple[str, ...]
    kernels: tuple[KernelForecast, ...]


DRAWS = 200
_LEAST_DRAWS = 40  # of which one is the 2.5 % quantile
_GAP = 1e-5  # of a plan's energy: far below what the draws differ by
_SAVES = 1e-4  # least saving that counts as one
_SAME_TIME = 1e-6  # relative difference to auto that no measurement tells: counts as none

_SLOW_SWITCH_S = 0.5  # to another memory clock: nothing to do between kernels

NARROWED_BY = {
    "voltage": "a sweep of core clocks of one kernel that arithmetic bounds, or --knowledge preset with its preset",
    "power": "idle power with the memory awake, and kernels that draw little, at two core clocks",
    "memory power": "a sensor of memory power, or a sweep of memory clocks",
    "auto": "the same core clock once left to the driver and once locked",
    "time": "FLOPs and bytes of every kernel (by formula or captured), or a sweep of core clocks of a few kernels",
}
"""For each group of unknowns, what would tell them."""


def forecast(
    study: Study,
    workload: str | None = None,
    *,
    gpu: Preset | None = None,
    max_slowdown: float = 0.0,
    knowledge: Knowledge = "any",
    core_step_mhz: float | None = None,
    core_only: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> Forecast:
    """Forecast what kernel-level clocks would save, from a study's rows at auto.

    Args:
        study: whose rows at auto to use; others are passed over.
        workload: its name; may be left out where the study holds only one.
        gpu: gives clocks, power limit and peaks; ``None`` to find it by the study's device.
        max_slowdown: allowed to the whole iteration, at least 0.
        knowledge: whether voltage, power and memory of the GPU are like any GPU's, or about as ``gpu`` says.
        core_step_mhz: between the core clocks to choose from; ``None`` for about 32 of them.
        core_only: leave the memory clock alone, as where it cannot be set or not from kernel to kernel.
        draws: how many GPUs to draw, at least 40.
        seed: of the draws.

    Raises:
        BadInputError: a negative slowdown, too few draws, no rows at auto, or an unknown GPU.
        StudyError: the study cannot be read.
    """
    if not (math.isfinite(max_slowdown) and max_slowdown >= 0.0):
        raise BadInputError(f"--max-slowdown {max_slowdown:g}: must be a number of at least 0, such as 0.02 for 2 %")
    if draws < _LEAST_DRAWS:
        raise BadInputError(f"--draws {draws}: must be at least {_LEAST_DRAWS}")
    if knowledge not in KNOWLEDGES:
        raise BadInputError(f"--knowledge {knowledge}: choose one of {', '.join(KNOWLEDGES)}")
    observed, preset, notes = observe(study, workload, gpu)
    offered = choices(preset, core_step_mhz, core_only=core_only)
    if not core_only and preset.switching.memory_s >= _SLOW_SWITCH_S:
        notes = (*notes, f"{preset.name} takes its memory clock over only when set up anew: compare with --core-only")
    highest = max(preset.clocks.boost_mhz, float(np.nanmax(np.append(observed.core_mhz, 0.0))))
    drawn = list(draw_gpus(preset, observed.bounds(highest), knowledge, draws, seed))
    plans = [_plan(observed, offered, each, max_slowdown) for each in drawn]
    count = np.array([kernel.count for kernel in observed.kernels], dtype=float)
    auto_time, auto_energy = float(count @ observed.time_s), float(count @ (observed.time_s * observed.power_w))
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
        energy_change=_spread(energy),
        time_change=_spread(time),
        saves_share=float(np.mean(energy < -_SAVES)),
        unknowns=_unknowns(drawn, energy),
        notes=notes,
        kernels=_kernels(observed, offered, plans),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The best plan of one draw; arrays of shape (kernels,), of one call. Option 0 is auto."""

    option: NDArray[np.intp]
    time_s: FloatArray
    energy_j: FloatArray
    core_mhz: FloatArray


def _plan(observed: Observed, offered: Choices, gpu: GpuDraw, max_slowdown: float) -> _Plan:
    kernels = draw_kernels(observed, gpu)
    time, energy = costs(gpu.device, kernels, offered)
    time = np.column_stack([observed.time_s, time])
    energy = np.column_stack([observed.time_s * observed.power_w, energy])
    option = best_options(time, energy, [kernel.count for kernel in observed.kernels], max_slowdown)
    rows = np.arange(len(option))
    clock = np.append(np.nan, offered.core_mhz)[option]
    clock = np.where(option == 0, kernels.core_mhz, clock)
    return _Plan(option, time[rows, option], energy[rows, option], clock)


def best_options(time_s: FloatArray, energy_j: FloatArray, counts: list[int], max_slowdown: float) -> NDArray[np.intp]:
    """The option of each kernel in the plan of least energy within a slowdown, global scope.

    Times that differ from auto's by less than a millionth count as auto's.

    Args:
        time_s: of one call, shape (kernels, options); option 0 is auto.
        energy_j: same shape.
        counts: how often each kernel runs.
        max_slowdown: allowed to the sum.
    """
    auto_s = time_s[:, :1]
    time_s = np.where(np.abs(time_s / auto_s - 1.0) < _SAME_TIME, auto_s, time_s)
    start = np.arange(len(time_s) + 1) * time_s.shape[1]
    frontier = choice(Ways(time_s.ravel(), energy_j.ravel(), start=start, runs=np.array(counts)))
    auto = exact_sum(zip(counts, auto_s.ravel().tolist(), strict=True))
    return frontier.least_energy(auto * (1 + Fraction(max_slowdown)), _GAP).options


def _spread(values: FloatArray) -> Spread:
    low95, low80, median, high80, high95 = np.quantile(values, [0.025, 0.1, 0.5, 0.9, 0.975]).tolist()
    return Spread(median, (low80, high80), (low95, high95))


def _kernels(observed: Observed, offered: Choices, plans: list[_Plan]) -> tuple[KernelForecast, ...]:
    option = np.array([plan.option for plan in plans])
    core = np.array([plan.core_mhz for plan in plans])
    time = np.array([plan.time_s for plan in plans]) / observed.time_s - 1.0
    energy = np.array([plan.energy_j for plan in plans]) / (observed.time_s * observed.power_w) - 1.0
    rows = []
    for index, kernel in enumerate(observed.kernels):
        chosen, times = np.unique(option[:, index], return_counts=True)
        most = int(times.argmax())
        memory = np.where(option[:, index] == 0, observed.memory_mhz[index], offered.memory_mhz[option[:, index] - 1])
        states, in_state = np.unique(memory, return_counts=True)
        rows.append(
            KernelForecast(
                kernel=kernel.name,
                count=kernel.count,
                setting=AUTO if chosen[most] == 0 else offered.settings[int(chosen[most]) - 1],
                chosen_share=float(times[most] / len(plans)),
                core_mhz=_spread(core[:, index]),
                memory_mhz=float(states[in_state.argmax()]),
                memory_share=float(in_state.max() / len(plans)),
                energy_change=_spread(energy[:, index]),
                time_change=_spread(time[:, index]),
            )
        )
    return tuple(rows)


def _unknowns(drawn: list[GpuDraw], change: FloatArray) -> tuple[Unknown, ...]:
    """The part of the variance of the ranks of the change that each group's ranks explain, adjusted for their number."""
    if np.ptp(change) == 0.0:
        return ()
    target = _ranks(change)
    found = []
    for group in GROUPS:
        names = [name for name, prior in RANGES.items() if prior.group == group]
        ranks = np.column_stack([_ranks(np.array([gpu.numbers[name] for gpu in drawn])) for name in names])
        answer = np.linalg.lstsq(ranks, target, rcond=None)[0]
        left = float(((target - ranks @ answer) ** 2).sum() / (target**2).sum())
        share = 1.0 - left * (len(target) - 1) / (len(target) - 1 - len(names))
        found.append(Unknown(group, max(share, 0.0), NARROWED_BY[group]))
    return tuple(sorted(found, key=lambda unknown: -unknown.share))


def _ranks(values: FloatArray) -> FloatArray:
    ranks = np.argsort(np.argsort(values)).astype(np.float64)
    return np.asarray(ranks - ranks.mean(), dtype=np.float64)
