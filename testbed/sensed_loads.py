"""Simulated GPUs whose power sensors can be chosen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.hardware import GaugeModel
from wastenot.devices.simulated.instrument import SimulatedInstrument
from wastenot.devices.simulated.preset import find_preset
from wastenot.meters.sensors.identify import identify_sensors
from wastenot.meters.sensors.identity import SensorIdentity
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.primitives import primitive

LOAD = primitive("gemm:4096")[0]


def sensed(
    name: str, seed: int, dynamics: Mapping[str, object] | None = None, **changes: object
) -> tuple[SimulatedInstrument, GaugeModel]:
    """The instrument of a preset with a changed sensor, other ``dynamics`` and no components; what that sensor truly is."""
    preset = find_preset(name)
    dynamics = preset.dynamics.model_copy(update={"components": {}, **(dynamics or {})})
    if dynamics.logger is not None:
        gauge = dynamics.logger.model_copy(update=changes)
        dynamics = dynamics.model_copy(update={"logger": gauge})
        preset = preset.model_copy(update={"dynamics": dynamics})
    else:
        assert preset.sensors.power is not None
        gauge = preset.sensors.power.model_copy(update=changes)
        preset = preset.model_copy(
            update={"dynamics": dynamics, "sensors": preset.sensors.model_copy(update={"power": gauge})}
        )
    return simulated_device(preset, f"sim:{name}", seed=seed).instrument(), gauge


def identified_total(instrument: SimulatedInstrument, kernel: KernelSpec, budget_s: float = 30.0) -> SensorIdentity:
    """The channel of total power."""
    return identify_sensors(instrument, kernel, budget_s).channels[0]


def delay_error_s(instrument: SimulatedInstrument, truth: GaugeModel, found: SensorIdentity) -> float:
    """By how much the delay that was found is off at most, over the time that it was looked for, whole samples aside."""
    assert found.delay_s is not None and found.delay_drift is not None and found.delay_at_s is not None
    log = instrument._bench.logs[0]
    first_s = instrument.now_s() - found.seconds
    moment_s = log.phase_s + truth.period_s * np.arange(first_s // truth.period_s, instrument.now_s() // truth.period_s)
    off_s = found.delay_s + found.delay_drift * (moment_s - found.delay_at_s)
    off_s -= moment_s - truth.seen_until_s(moment_s, log.sample_phase_s)
    if truth.sample_s:
        off_s -= truth.sample_s * np.round(off_s / truth.sample_s)
    return float(np.max(np.abs(off_s)))
