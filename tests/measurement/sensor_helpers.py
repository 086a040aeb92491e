"""Simulated GPUs whose power sensors can be chosen."""

from __future__ import annotations

from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.instrument import SimulatedInstrument
from wastenot.devices.simulated.preset import find_preset
from wastenot.devices.simulated.preset_parts import GaugeModel
from wastenot.measurement.identify_sensors import identify_sensors
from wastenot.measurement.sensor_identity import SensorIdentity
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.primitives import primitive

LOAD = primitive("gemm:4096")[0]


def sensed(name: str, seed: int, **changes: object) -> tuple[SimulatedInstrument, GaugeModel]:
    """The instrument of a preset with a changed sensor and no components, and what that sensor truly is."""
    preset = find_preset(name)
    dynamics = preset.dynamics.model_copy(update={"components": {}})
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


def identified_total(instrument: SimulatedInstrument, kernel: KernelSpec, budget_s: float = 60.0) -> SensorIdentity:
    """The channel of total power."""
    return identify_sensors(instrument, kernel, budget_s).channels[0]
