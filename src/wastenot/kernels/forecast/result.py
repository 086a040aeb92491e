"""A forecast, and the JSON document that holds it (schema ``wastenot.forecast/1``)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pydantic import TypeAdapter

from wastenot.core.documents import validated
from wastenot.core.files import read_text
from wastenot.core.origin import Origin
from wastenot.core.result import HasDocument, HasPage
from wastenot.core.setting import Setting
from wastenot.kernels.forecast.prior import Knowledge

SCHEMA: Final = "wastenot.forecast/1"
_REMEDY = "'wastenot kernel forecast --out' writes one"


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of a number over all draws.

    Attributes:
        central_80: 10 % and 90 % quantiles.
        central_95: 2.5 % and 97.5 % quantiles.
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
        setting: the one that most draws choose; auto is the default clocks.
        chosen_share: fraction of the draws that choose exactly this setting.
        core_mhz: core clock in effect over the draws.
        memory_mhz: memory clock that most draws choose; ``memory_share`` is their fraction.
        energy_change, time_change: of one call, against the default clocks.
        energy_share: of the iteration at the default clocks, all calls together; ``None`` in older files.
    """

    kernel: str
    count: int
    setting: Setting
    chosen_share: float
    core_mhz: Quantiles
    memory_mhz: float
    memory_share: float
    energy_change: Quantiles
    time_change: Quantiles
    energy_share: float | None = None


@dataclass(frozen=True, slots=True)
class UncertaintySource:
    """A group of unknowns that widens the forecast.

    Attributes:
        what: the unknowns.
        share: fraction of the variance of the energy change that they explain by themselves.
        narrowed_by: the measurement that would determine them.
    """

    what: str
    share: float
    narrowed_by: str


@dataclass(frozen=True, slots=True)
class RangeForecast:
    """What caps on core clocks would save within the clocks that kernels were seen at.

    Attributes:
        max_slowdown: slowdown allowed to the whole iteration.
        energy_change, time_change: of a plan, against the default clocks.
        cap_mhz: the cap of all kernels; ``None`` where each has its own, or no cap saves anything.
    """

    max_slowdown: float
    energy_change: Quantiles
    time_change: Quantiles
    cap_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class NaturalForecast:
    """What is known of clocks that nobody set.

    Attributes:
        low_mhz, high_mhz: the range of clocks seen, over all kernels.
        seconds: device time that it took to see them.
        locked_power_sd: assumed uncertainty of power at a locked clock, see :mod:`wastenot.kernels.forecast.natural`.
        within_range: caps within that range, one for each kernel, by slowdown.
        without: the same forecast from the default clocks alone.
        one_cap: one cap for all kernels of an iteration, which have one clock without it too, by slowdown.
    """

    low_mhz: float
    high_mhz: float
    seconds: float
    locked_power_sd: float
    within_range: tuple[RangeForecast, ...]
    without: Quantiles
    one_cap: tuple[RangeForecast, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast(HasDocument, HasPage):
    """What kernel-level clocks would save within a slowdown, as far as observations at the default clocks can say.

    The fields are those of the JSON document ``wastenot.forecast/1``.

    Attributes:
        origin: always ``forecast``.
        observed_origin: origin of the study's rows: measured or simulated.
        device: device of the study.
        gpu: preset that provided clocks, power limit and peaks.
        knowledge: whether the GPU is assumed to be like any, or about as the preset says.
        max_slowdown: slowdown allowed to the whole iteration.
        core_only: whether memory clocks were left alone.
        draws: number of GPUs drawn.
        auto_time_s, auto_energy_j: of an iteration at the default clocks, as observed.
        energy_change, time_change: of a plan, against the default clocks.
        saves_share: fraction of the draws in which a plan saves anything (more than 0.01 %).
        unknowns: where the uncertainty comes from, the most important first.
        notes: caveats.
        kernels: in order of execution.
        natural: what measurements at natural clocks say; ``None`` where there are none, or they were ignored.
    """

    kind: ClassVar[str] = "forecast"
    drawn_by: ClassVar[str] = "wastenot.kernels.forecast.page:forecast_page"

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
    energy_change: Quantiles
    time_change: Quantiles
    saves_share: float
    unknowns: tuple[UncertaintySource, ...] = field(repr=False)
    notes: tuple[str, ...] = field(repr=False)
    kernels: tuple[KernelForecast, ...] = field(repr=False)
    natural: NaturalForecast | None = None


def read_forecast(path: str | os.PathLike[str]) -> Forecast:
    """Read a forecast that ``Forecast.write`` wrote.

    Raises:
        BadInputError: the file cannot be read, or is none; names file, line and field.
    """
    return validated(read_text(path, _REMEDY), TypeAdapter(Forecast).validate_json, SCHEMA, _REMEDY, str(path))[1]
