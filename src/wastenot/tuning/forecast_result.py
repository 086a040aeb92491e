"""A forecast as a value, and as the JSON document ``wastenot.forecast/1``: the same fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wastenot.origin import Origin
from wastenot.setting import Setting
from wastenot.tuning.forecast_prior import Knowledge

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
